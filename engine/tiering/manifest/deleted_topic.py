"""The marker of a deleted topic: the tiered end of each partition when its objects were removed.

Ingestion compares the marker with what it has committed: without it, a topic that is deleted before its last records
are ingested would look complete. The marker is outside of the topic's prefix, so that a listing of topics does not
return it. It is written before the first object is removed and never overwritten, since a second removal finds fewer
manifests than the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

import orjson
from msgspec import Struct

from engine.errors import Corrupt
from engine.format.paths import (
    deleted_topic_of,
    store_deleted_prefix,
    store_deleted_topic_key,
    store_partition_prefix,
    store_topic_prefix,
)
from engine.tiering.manifest.chain import load_newest
from engine.tiering.manifest.json_reading import UnsupportedFormat, convert, read_object
from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectStore

FORMAT = 1
LogRanges = Mapping[int, tuple[int, int]]  # first offset and end, by partition


class _Marker(Struct):
    ends: dict[int, tuple[int, int]]
    untiered: dict[int, tuple[int, int]] = {}


def mark_deleted(
    store: ObjectStore, cluster_id: str, topic: str, topic_id: str, partitions: int, logs: LogRanges | None = None
) -> None:
    """Writes the marker of a topic, unless it exists or the store has no object of the topic. Idempotent.

    `logs` are the log_start and the high watermark of partitions, as far as this node knows them.
    """
    ends = tiered_ends(store, cluster_id, topic, topic_id, range(partitions))
    is_unreadable = not ends and any(True for _ in store.list(store_topic_prefix(cluster_id, topic, topic_id)))
    if ends or is_unreadable:
        key = store_deleted_topic_key(cluster_id, topic, topic_id)
        untiered = {
            str(number): (max(start, ends.get(number, (0, 0))[1]), end)
            for number, (start, end) in sorted((logs or {}).items())
            if end > max(start, ends.get(number, (0, 0))[1])
        }
        document = {"format": FORMAT, "ends": {str(number): end for number, end in ends.items()}, "untiered": untiered}
        with suppress(ObjectExists):
            store.put(key, orjson.dumps(document), if_absent=True)


def tiered_ends(
    store: ObjectStore, cluster_id: str, topic: str, topic_id: str, partitions: Iterable[int]
) -> dict[int, tuple[int, int]]:
    """Returns the first offset and the end of each partition that has a readable manifest."""
    ends = {}
    for number in partitions:
        try:
            manifest = load_newest(store, store_partition_prefix(cluster_id, topic, topic_id, number))
        except (Corrupt, UnsupportedFormat):
            continue  # a deletion must not wait for an unreadable manifest
        if manifest is not None:
            ends[number] = (manifest.log_start, manifest.end_offset)
    return ends


def list_deleted(store: ObjectStore, cluster_id: str, topics: Collection[str]) -> dict[str, set[str]]:
    """Returns the ids of each topic that have a marker. Lists the markers of all topics with the same first letters."""
    prefix = store_deleted_prefix(cluster_id)
    ids: dict[str, set[str]] = {topic: set() for topic in topics}
    shared = _common_start(min(topics, default=""), max(topics, default=""))
    for info in store.list(prefix + shared) if topics else ():
        topic, topic_id = deleted_topic_of(info.key.removeprefix(prefix)) or ("", "")
        if topic in ids:
            ids[topic].add(topic_id)
    return ids


def _common_start(first: str, last: str) -> str:
    """Returns the letters with which both begin; of the least and the greatest name, all between begin so too."""
    count = next(
        (at for at, (letter, other) in enumerate(zip(first, last, strict=False)) if letter != other), len(first)
    )
    return first[:count]


def deleted_ends(store: ObjectStore, cluster_id: str, topic: str, topic_id: str) -> LogRanges | None:
    """Returns the tiered range of each partition; None without a marker. Raises Corrupt, UnsupportedFormat."""
    marker = _load(store, cluster_id, topic, topic_id)
    return None if marker is None else marker.ends


def untiered_ranges(store: ObjectStore, cluster_id: str, topic: str, topic_id: str) -> LogRanges:
    """Returns the offsets of each partition that had not reached the store, as far as the marker has them.

    They may be more: a node writes what its shipper saw last. Raises Corrupt, UnsupportedFormat.
    """
    marker = _load(store, cluster_id, topic, topic_id)
    return {} if marker is None else marker.untiered


def _load(store: ObjectStore, cluster_id: str, topic: str, topic_id: str) -> _Marker | None:
    key = store_deleted_topic_key(cluster_id, topic, topic_id)
    try:
        return convert(read_object(store.get(key), key, FORMAT), _Marker, key)
    except NoSuchObject:
        return None
