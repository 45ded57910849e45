"""Finds clusters, topics and partitions of a store by their manifests. Reads no segment.

A recreated topic has several ids. Only the id with the newest manifest is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from engine.errors import EngineError
from engine.format.paths import is_topic_name, store_manifest_key, store_partition_prefix, store_topic_prefix
from engine.tiering.manifest.chain import load_newest, load_sub_manifest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.source.requests import request_all, value_of
from spark_ingest.source.slices import Slice

Folded = Mapping[str, "Sequence[ManifestEntry] | EngineError"]  # by the key of the object


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
    """Returns every partition with a manifest of the wanted topics, by topic and number. Raises the first error."""
    found = partitions_of(store, cluster, topics_of(store, cluster, is_wanted))
    return [one for result in found.values() for one in value_of(result)]


def topics_of(store: ObjectStore, cluster: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """Returns the wanted topics that have objects in the store; some may have no manifest yet."""
    return [topic for topic in _names(store, f"{cluster}/") if is_topic_name(topic) and is_wanted(topic)]


def slices_of(partition: TieredPartition, start: int, end: int, folded: Folded) -> Iterator[Slice]:
    """Yields the segment objects of a range of offsets, each clipped to the range. Raises an error in `folded`."""
    return slices_between(partition, start, end, folded, None, None)


def slices_between(
    partition: TieredPartition, start: int, end: int, folded: Folded, start_ms: int | None, end_ms: int | None
) -> Iterator[Slice]:
    """Yields the same slices without segments whose timestamps are all before start_ms or not before end_ms."""
    for entry in _entries(partition, start, folded):
        if entry.base_offset >= end:
            return
        is_early = start_ms is not None and entry.max_timestamp_ms < start_ms
        is_late = end_ms is not None and entry.min_timestamp_ms >= end_ms
        if is_early or is_late:
            continue
        first, last = max(entry.base_offset, start), min(entry.end_offset, end)
        yield Slice(partition.partition, entry.key, entry.size_bytes, entry.base_offset, entry.end_offset, first, last)


def load_folded(store: ObjectStore, wanted: Iterable[tuple[TieredPartition, int, int]]) -> Folded:
    """Returns the older entries of ranges of offsets, which manifests have in objects of their own; or their errors."""
    refs = [
        ref
        for partition, start, end in wanted
        for ref in partition.manifest.folded
        if ref.end_offset > start and ref.base_offset < end
    ]
    loaded = request_all(lambda ref: load_sub_manifest(store, ref).entries, refs)
    return dict(zip((ref.key for ref in refs), loaded, strict=True))


def unread_entries(partition: TieredPartition, start: int, folded: Folded) -> list[ManifestEntry]:
    """Returns the segments with offsets from `start`."""
    return list(_entries(partition, start, folded)) if start < partition.tiered_end else []


def partitions_of(
    store: ObjectStore, cluster: str, topics: Sequence[str]
) -> dict[str, list[TieredPartition] | EngineError]:
    """Returns the partitions with a manifest of the newest id of each topic; or Corrupt, UnsupportedFormat."""
    listed = request_all(lambda topic: _names(store, f"{cluster}/{topic}/"), topics)
    ids = [(topic, one) for topic, names in zip(topics, listed, strict=True) for one in value_of(names)]
    numbers = request_all(lambda of: _numbers(store, cluster, *of), ids)
    places = [(*of, number) for of, found in zip(ids, numbers, strict=True) for number in value_of(found)]
    manifests = request_all(lambda place: load_newest(store, store_partition_prefix(cluster, *place)), places)
    by_topic: dict[str, list[TieredPartition] | EngineError] = {topic: [] for topic in topics}
    for (topic, topic_id, number), manifest in zip(places, manifests, strict=True):
        known = by_topic[topic]
        if isinstance(known, EngineError) or manifest is None:
            continue
        if isinstance(manifest, EngineError):
            by_topic[topic] = manifest
        else:
            known.append(TieredPartition(topic, topic_id, number, manifest))
    return {
        topic: one if isinstance(one, EngineError) else _of_newest_id(store, one) for topic, one in by_topic.items()
    }


def _of_newest_id(store: ObjectStore, partitions: list[TieredPartition]) -> list[TieredPartition]:
    ids = {one.topic_id for one in partitions}
    if len(ids) < 2:
        return partitions
    newest = max(partitions, key=lambda one: _written_ms(store, one)).topic_id
    return [one for one in partitions if one.topic_id == newest]


def _numbers(store: ObjectStore, cluster: str, topic: str, topic_id: str) -> list[int]:
    names = _names(store, store_topic_prefix(cluster, topic, topic_id))
    return sorted(int(name) for name in names if name.isdigit())


def _entries(partition: TieredPartition, start: int, folded: Folded) -> Iterator[ManifestEntry]:
    """Yields the entries that end after `start`, oldest first. Raises an error in `folded`."""
    older = (value_of(folded[ref.key]) for ref in partition.manifest.folded if ref.key in folded)
    for entry in chain(chain.from_iterable(older), partition.manifest.entries):
        if entry.end_offset > start:
            yield entry


def _written_ms(store: ObjectStore, partition: TieredPartition) -> int:
    info = store.head(store_manifest_key(partition.manifest.prefix, partition.manifest.generation))
    return info.modified_ms if info else 0


def _holds_topics(store: ObjectStore, cluster: str) -> bool:
    return any(is_topic_name(name) for name in _names(store, f"{cluster}/"))


def _names(store: ObjectStore, prefix: str) -> list[str]:
    return [one.removeprefix(prefix).rstrip("/") for one in store.list_prefixes(prefix)]
