"""The JSON Schema of a topic, from the topic's description in the store.

The leader of any partition writes the description after a change, so it may be a little older than the records.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from engine.format.paths import TOPIC_FILE
from engine.tiering.store.store import NoSuchObject, ObjectStore


class _Config(msgspec.Struct):
    value_schema: str = ""


class _Description(msgspec.Struct):
    config: _Config = msgspec.field(default_factory=_Config)


def value_schema_of(store: ObjectStore, segment_key: str) -> str:
    """Returns the schema of the topic that a segment is of; empty without one. Raises StoreUnavailable."""
    topic_prefix, _, _ = segment_key.rsplit("/", 2)
    with suppress(NoSuchObject, msgspec.DecodeError):  # a version before wrote none; one later may write another form
        return msgspec.json.decode(store.get(f"{topic_prefix}/{TOPIC_FILE}"), type=_Description).config.value_schema
    return ""
