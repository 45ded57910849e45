"""Finds the clusters, topics and partitions of a store, and sorts the objects of a partition by what they are.

Goes by the names of objects and reads none of them. An object whose name tiering does not give is foreign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from engine.format.paths import AUX, LOG, TOPIC_FILE, is_stored_topic_name, is_topic_id, store_partition_prefix
from engine.tiering.manifest.keys import base_offset_of, generation_of, is_own, latest_key
from engine.tiering.store.store import ObjectInfo, ObjectStore

_DESCRIPTION = re.compile(rf"[^/]+/{re.escape(TOPIC_FILE)}")
_PLACE = re.compile(r"([^/]+)/(0|[1-9]\d*)/")


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition with objects in the store."""

    cluster_id: str
    topic: str
    topic_id: str
    partition: int

    @property
    def prefix(self) -> str:
        return store_partition_prefix(self.cluster_id, self.topic, self.topic_id, self.partition)

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a partition by key. `roots` are in the order of their generations."""

    roots: Mapping[int, ObjectInfo]
    hint: ObjectInfo | None
    segments: Mapping[str, ObjectInfo]
    aux: Mapping[str, ObjectInfo]
    sub_manifests: Mapping[str, ObjectInfo]
    foreign: tuple[ObjectInfo, ...]


def clusters_of(store: ObjectStore) -> list[str]:
    """Returns the ids of the clusters with topics in the store."""
    names = [name for name in _names(store, "") if not name.startswith(("_", "."))]
    return [cluster_id for cluster_id in names if topics_of(store, cluster_id)]


def topics_of(store: ObjectStore, cluster_id: str) -> list[str]:
    """Returns the names of the topics of a cluster that have objects, whether or not they are partitions."""
    return [name for name in _names(store, f"{cluster_id}/") if is_stored_topic_name(name)]


def partitions_of(
    store: ObjectStore, cluster_id: str, topic: str
) -> Iterator[tuple[StoredPartition | None, list[ObjectInfo]]]:
    """Yields each partition of a topic with its objects; None for objects that belong to no partition.

    A topic that was deleted and created again has partitions of several ids.
    """
    prefix = f"{cluster_id}/{topic}/"

    def place(info: ObjectInfo) -> tuple[str, int] | None:
        match = _PLACE.match(info.key.removeprefix(prefix))
        return (match[1], int(match[2])) if match and is_topic_id(match[1]) else None

    listed = (info for info in store.list(prefix) if not _DESCRIPTION.fullmatch(info.key.removeprefix(prefix)))
    for where, objects in groupby(listed, place):
        yield None if where is None else StoredPartition(cluster_id, topic, *where), list(objects)


def listing_of(prefix: str, objects: Iterable[ObjectInfo]) -> Listing:
    """Sort the objects below a partition's prefix."""
    roots: dict[int, ObjectInfo] = {}
    segments: dict[str, ObjectInfo] = {}
    aux: dict[str, ObjectInfo] = {}
    sub_manifests: dict[str, ObjectInfo] = {}
    hint: ObjectInfo | None = None
    foreign: list[ObjectInfo] = []
    for info in objects:
        generation = generation_of(prefix, info.key)
        if generation is not None:
            roots[generation] = info
        elif info.key == latest_key(prefix):
            hint = info
        elif base_offset_of(prefix, info.key) is None or not is_own(prefix, info.key):
            foreign.append(info)
        elif info.key.endswith(LOG):
            segments[info.key] = info
        elif info.key.endswith(AUX):
            aux[info.key] = info
        else:
            sub_manifests[info.key] = info
    return Listing(dict(sorted(roots.items())), hint, segments, aux, sub_manifests, tuple(foreign))


def _names(store: ObjectStore, prefix: str) -> list[str]:
    return [listed.removeprefix(prefix).rstrip("/") for listed in store.list_prefixes(prefix)]
