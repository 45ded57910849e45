"""What there is to read: clusters, topics and partitions of a store, as their manifests tell. Reads no segment.

A topic that was deleted and created again has several ids; only the one written last counts, as for the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.format.paths import is_topic_name, store_manifest_key, store_partition_prefix, store_topic_prefix
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.source.cut import Slice


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """One partition in the store: the records from `log_start` to before `tiered_end`."""

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


def the_cluster(store: ObjectStore, wanted: str | None) -> str:
    """The cluster to read: the one named, else the only one. Raises IngestRefused."""
    found = [name for name in _names(store, "") if not name.startswith(("_", "."))]
    if wanted is not None:
        if wanted not in found:
            raise IngestRefused(
                f"no cluster {wanted!r} in {store.url}", hint=f"there are: {', '.join(found) or 'none'}"
            )
        return wanted
    clusters = [name for name in found if _holds_topics(store, name)]
    if len(clusters) != 1:
        hint = "has any segment been tiered yet?" if not clusters else f"name one of: {', '.join(clusters)}"
        raise IngestRefused(f"{store.url} holds {len(clusters)} clusters", hint=hint)
    return clusters[0]


def discover(store: ObjectStore, cluster: str, is_wanted: Callable[[str], bool]) -> list[TieredPartition]:
    """Every partition of the wanted topics that has a manifest, by topic and number."""
    found: list[TieredPartition] = []
    for topic in _names(store, f"{cluster}/"):
        if is_topic_name(topic) and is_wanted(topic):
            found += _newest_incarnation(store, cluster, topic)
    return found


def slices_of(store: ObjectStore, partition: TieredPartition, start: int, end: int) -> Iterator[Slice]:
    """The segment objects that hold a range of offsets, each clipped to it."""
    return slices_between(store, partition, start, end, None, None)


def slices_between(
    store: ObjectStore, partition: TieredPartition, start: int, end: int, start_ms: int | None, end_ms: int | None
) -> Iterator[Slice]:
    """The same without those segments whose records are all before one time, or none is before the other."""
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
    """The segments that hold anything from an offset on."""
    return list(iter_entries(store, partition.manifest, start)) if start < partition.tiered_end else []


def _newest_incarnation(store: ObjectStore, cluster: str, topic: str) -> list[TieredPartition]:
    incarnations = [_partitions(store, cluster, topic, one) for one in _names(store, f"{cluster}/{topic}/")]
    incarnations = [one for one in incarnations if one]
    if len(incarnations) < 2:
        return incarnations[0] if incarnations else []
    return max(incarnations, key=lambda one: max(_written_ms(store, partition) for partition in one))


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
