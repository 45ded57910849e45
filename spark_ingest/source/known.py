"""Remembers the manifests that a run has read, so that the next run of the job reads only those that have changed.

An object of its own, written after the discovery that it remembers. It saves requests and decides nothing else: a
remembered manifest counts if a listing shows the same root, by generation, size and time, and if the job has committed
all of it (discovery.py). If the object is lost, damaged or old, or of another store, manifests are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import msgspec

from engine.tiering.store.store import NoSuchObject, ObjectStore

_FORMAT = 1


class KnownManifest(msgspec.Struct, frozen=True, array_like=True):
    """The root that a LIST showed, and its range of offsets."""

    generation: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    size_bytes: int
    modified_ms: int
    log_start: int
    end_offset: int


class KnownTopic(msgspec.Struct, frozen=True):
    """The manifests of a topic id by partition, and how many keys of the topic were listed at once (listing.py)."""

    topic_id: str = ""
    keys: int = 0
    manifests: dict[int, KnownManifest] = {}


KnownTopics = Mapping[str, KnownTopic]


class _Stored(msgspec.Struct, frozen=True):
    format: int
    store: str
    cluster: str
    topics: dict[str, KnownTopic]


class KnownManifests:
    """The object at `key` that remembers the manifests of the store of a URL."""

    def __init__(self, output: ObjectStore, key: str, store_url: str) -> None:
        self._output = output
        self._key = key
        self._store_url = store_url
        self._stored: _Stored | None = None

    def load(self, cluster: str) -> KnownTopics:
        """Returns what is remembered of a cluster; nothing without a usable object."""
        with suppress(NoSuchObject, msgspec.DecodeError, UnicodeDecodeError):
            stored = msgspec.json.decode(self._output.get(self._key), type=_Stored)
            if (stored.format, stored.store, stored.cluster) == (_FORMAT, self._store_url, cluster):
                self._stored = stored
                return stored.topics
        return {}

    def store(self, cluster: str, topics: KnownTopics) -> None:
        """Writes the object, unless it is as it was loaded."""
        content = _Stored(_FORMAT, self._store_url, cluster, dict(topics))
        if content != self._stored:
            self._output.put(self._key, msgspec.json.encode(content))
