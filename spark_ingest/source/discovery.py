"""Finds clusters, topics and partitions of a store by their manifests. Reads no segment.

A recreated topic has several ids. Only the id with the newest manifest is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.format.paths import is_topic_name, store_manifest_key, store_partition_prefix, store_topic_prefix
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.source.slices import Slice


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """One partition in the store: offsets `log_start` to `tiered_end` (exclusive)."""

    topic: str
    topic_id: str
    partition: int
    manifest: Manifest

    @property
    def log_start(self) -> int:
        return self.manifest.log_start

    @property
    def tiered_end(self) -> int:
        return self.manifest.end_offset


def resolve_cluster(store: ObjectStore, wanted: str | None) -> str:
    """Returns the named cluster, or the only one. Raises IngestRefused."""
    found = [name for name in _names(store, "") if not name.startswith(("_", "."))]
    if wanted is not None:
        if wanted not in found:
            raise IngestRefused(
                f"no cluster {wanted!r} in {store.url}", hint=f"there are: {', '.join(found) or 'none'}"
            )
        return wanted
    clusters = [name for name in found if _holds_topics(store, name)]
    if len(clusters) != 1:
        hint = "no segment is tiered yet" if not clusters else f"name one of: {', '.join(clusters)}"
        raise IngestRefused(f"{store.url} holds {len(clusters)} clusters", hint=hint)
    return clusters[0]


def discover(store: ObjectStore, cluster: str, is_wanted: Callable[[str], bool]) -> list[TieredPartition]:
    """Returns every partition with a manifest of the wanted topics, by topic and number."""
    return [one for topic in topics_of(store, cluster, is_wanted) for one in partitions_of(store, cluster, topic)]


def topics_of(store: ObjectStore, cluster: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """Returns the wanted topics that have objects in the store; some may have no manifest yet."""
    return [topic for topic in _names(store, f"{cluster}/") if is_topic_name(topic) and is_wanted(topic)]


def slices_of(store: ObjectStore, partition: TieredPartition, start: int, end: int) -> Iterator[Slice]:
    """Yields the segment objects of a range of offsets, each clipped to the range."""
    return slices_between(store, partition, start, end, None, None)


def slices_between(
    store: ObjectStore, partition: TieredPartition, start: int, end: int, start_ms: int | None, end_ms: int | None
) -> Iterator[Slice]:
    """Yields the same slices without segments whose timestamps are all before start_ms or not before end_ms."""
    for entry in iter_entries(store, partition.manifest, start):
        if entry.base_offset >= end:
            return
        is_early = start_ms is not None and entry.max_timestamp_ms < start_ms
        is_late = end_ms is not None and entry.min_timestamp_ms >= end_ms
        if is_early or is_late:
            continue
        first, last = max(entry.base_offset, start), min(entry.end_offset, end)
        yield Slice(partition.partition, entry.key, entry.size_bytes, entry.base_offset, entry.end_offset, first, last)


def unread_entries(store: ObjectStore, partition: TieredPartition, start: int) -> list[ManifestEntry]:
    """Returns the segments with offsets from `start`."""
    return list(iter_entries(store, partition.manifest, start)) if start < partition.tiered_end else []


def partitions_of(store: ObjectStore, cluster: str, topic: str) -> list[TieredPartition]:
    """Returns the partitions with a manifest of a topic's newest id. Raises Corrupt, UnsupportedFormat."""
    by_id = [_partitions(store, cluster, topic, one) for one in _names(store, f"{cluster}/{topic}/")]
    by_id = [one for one in by_id if one]
    if len(by_id) < 2:
        return by_id[0] if by_id else []
    return max(by_id, key=lambda one: max(_written_ms(store, partition) for partition in one))


def _partitions(store: ObjectStore, cluster: str, topic: str, topic_id: str) -> list[TieredPartition]:
    numbers = sorted(
        int(name) for name in _names(store, store_topic_prefix(cluster, topic, topic_id)) if name.isdigit()
    )
    manifests = ((one, load_newest(store, store_partition_prefix(cluster, topic, topic_id, one))) for one in numbers)
    return [TieredPartition(topic, topic_id, one, manifest) for one, manifest in manifests if manifest is not None]


def _written_ms(store: ObjectStore, partition: TieredPartition) -> int:
    info = store.head(store_manifest_key(partition.manifest.prefix, partition.manifest.generation))
    return info.modified_ms if info else 0


def _holds_topics(store: ObjectStore, cluster: str) -> bool:
    return any(is_topic_name(name) for name in _names(store, f"{cluster}/"))


def _names(store: ObjectStore, prefix: str) -> list[str]:
    return [one.removeprefix(prefix).rstrip("/") for one in store.list_prefixes(prefix)]
