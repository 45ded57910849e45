"""Finds clusters, topics and partitions of a store by their manifests. Reads no segment.

A recreated topic has several ids. Only the id with the newest manifest is read. listing.py finds the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from engine.errors import EngineError
from engine.format.paths import is_topic_name, store_partition_prefix, store_registrations_prefix
from engine.tiering.manifest.chain import NewestRoot, load_generation, load_newest, load_sub_manifest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry
from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.source.known import KnownManifest, KnownTopic, KnownTopics
from spark_ingest.source.listing import Place, TopicListing, names_below, newest_roots
from spark_ingest.source.requests import request_all, value_of
from spark_ingest.source.slices import Slice

Folded = Mapping[str, "Sequence[ManifestEntry] | EngineError"]  # by the key of the object


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """One partition in the store: offsets `log_start` to `tiered_end` (exclusive).

    `manifest` is None if it is as it was at an earlier discovery, and the caller needs none of its segments.
    """

    topic: str
    topic_id: str
    partition: int
    log_start: int
    tiered_end: int
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class Discovered:
    """The partitions of each topic, or its error; and what the next discovery may remember."""

    topics: dict[str, list[TieredPartition] | EngineError]
    known: KnownTopics


def resolve_cluster(store: ObjectStore, given: str | None, of_job: str | None = None) -> str:
    """Returns the cluster of the job, or the one that is given, or the only one. Raises IngestRefused.

    A store without it is another store, or is not mounted: nothing is read, and nothing is taken for deleted.
    """
    if of_job is not None and given not in (None, of_job):
        text = f"the commits of this job are of cluster {of_job}, and --cluster names {given}"
        raise IngestRefused(text, hint="give the other cluster a job with another name")
    cluster = of_job or given
    if cluster is not None and _is_cluster(store, cluster):
        return cluster
    clusters = [
        name for name in names_below(store, "") if not name.startswith(("_", ".")) and _holds_topics(store, name)
    ]
    if cluster is None and len(clusters) == 1:
        return clusters[0]
    fault = f"holds {len(clusters)} clusters"
    if cluster is not None:
        fault = f"has no cluster {cluster!r}" + (", which this job reads" if of_job else "")
    hint = f"name one of: {', '.join(clusters)}"
    if cluster is not None or not clusters:
        hint = "check that --store is the right one and is mounted"
        hint += f"; it has {', '.join(clusters)}" if clusters else "" if cluster else ", or no segment is tiered yet"
    raise IngestRefused(f"{store.url} {fault}", hint=hint)


def discover(store: ObjectStore, cluster: str, is_wanted: Callable[[str], bool]) -> list[TieredPartition]:
    """Returns every partition with a manifest of the selected topics, by topic and number. Raises the first error."""
    by_topic = partitions_of(store, cluster, topics_of(store, cluster, is_wanted)).topics
    return [partition for result in by_topic.values() for partition in value_of(result)]


def topics_of(store: ObjectStore, cluster: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """Returns the selected topics that have objects in the store; some may have no manifest yet."""
    return [topic for topic in names_below(store, f"{cluster}/") if is_topic_name(topic) and is_wanted(topic)]


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
        yield slice_of(partition.partition, entry, first, last)


def slice_of(partition: int, entry: ManifestEntry, start: int, end: int) -> Slice:
    """Returns the offsets `start` to before `end` of a segment."""
    return Slice(partition, entry.key, entry.size_bytes, entry.base_offset, entry.end_offset, start, end)


def load_folded(store: ObjectStore, partitions: Iterable[tuple[TieredPartition, int, int]]) -> Folded:
    """Returns the older entries of ranges of offsets, which manifests have in objects of their own; or their errors."""
    refs = [
        ref
        for partition, start, end in partitions
        if partition.manifest is not None
        for ref in partition.manifest.folded
        if ref.end_offset > start and ref.base_offset < end
    ]
    loaded = request_all(lambda ref: load_sub_manifest(store, ref).entries, refs)
    return dict(zip((ref.key for ref in refs), loaded, strict=True))


def unread_entries(partition: TieredPartition, start: int, folded: Folded) -> list[ManifestEntry]:
    """Returns the segments with offsets from `start`."""
    return list(_entries(partition, start, folded)) if start < partition.tiered_end else []


def partitions_of(
    store: ObjectStore,
    cluster: str,
    topics: Sequence[str],
    known_topics: KnownTopics = MappingProxyType({}),
    is_read: Callable[[Place, KnownManifest], bool] | None = None,
) -> Discovered:
    """Returns the partitions with a manifest of the newest id of each topic; or Corrupt, UnsupportedFormat.

    Does not read the manifests that are known if `is_read` says that the caller needs nothing of their entries.
    """
    listings = newest_roots(store, cluster, topics, known_topics)
    roots = {place: root for listing in listings.values() for place, root in listing.newest.items()}
    same = {place: cached for place, root in roots.items() if (cached := _find_known(known_topics, place, root))}
    same = {place: cached for place, cached in same.items() if is_read and is_read(place, cached)}
    changed = [place for place in roots if place not in same]
    loaded = request_all(lambda place: _load(store, cluster, place, roots[place]), changed)
    manifests = dict(zip(changed, loaded, strict=True))
    by_topic: dict[str, list[TieredPartition] | EngineError] = {}
    for topic, listing in listings.items():
        partitions = [_partition(place, same.get(place), manifests.get(place)) for place in listing.newest]
        errors = [partition for partition in partitions if isinstance(partition, EngineError)]
        by_topic[topic] = (
            errors[0] if errors else [partition for partition in partitions if isinstance(partition, TieredPartition)]
        )
    return Discovered(by_topic, {topic: _remember(listing, by_topic[topic]) for topic, listing in listings.items()})


def _find_known(known_topics: KnownTopics, place: Place, root: NewestRoot) -> KnownManifest | None:
    """Returns what is remembered of exactly this root."""
    topic = known_topics.get(place.topic)
    cached = topic.manifests.get(place.partition) if topic and topic.topic_id == place.topic_id else None
    return cached if cached and NewestRoot(cached.generation, cached.size_bytes, cached.modified_ms) == root else None


def _load(store: ObjectStore, cluster: str, place: Place, root: NewestRoot) -> Manifest | None:
    prefix = store_partition_prefix(cluster, *place)
    try:
        return load_generation(store, prefix, root.generation)
    except NoSuchObject:
        return load_newest(store, prefix)  # superseded for a day when it was listed


def _partition(
    place: Place, cached: KnownManifest | None, loaded: Manifest | EngineError | None
) -> TieredPartition | EngineError | None:
    if isinstance(loaded, EngineError):
        return loaded
    if cached is not None:
        return TieredPartition(*place, cached.log_start, cached.end_offset, None)
    return TieredPartition(*place, loaded.log_start, loaded.end_offset, loaded) if loaded else None


def _remember(listing: TopicListing, partitions: Sequence[TieredPartition] | EngineError) -> KnownTopic:
    """Returns what the next discovery needs. A root that was replaced meanwhile is not remembered."""
    manifests: dict[int, KnownManifest] = {}
    if isinstance(partitions, EngineError) or not partitions:
        return KnownTopic(keys=listing.keys)
    for partition in partitions:
        root = listing.newest[Place(partition.topic, partition.topic_id, partition.partition)]
        if partition.manifest is None or partition.manifest.generation == root.generation:
            manifests[partition.partition] = KnownManifest(*root, partition.log_start, partition.tiered_end)
    return KnownTopic(partitions[0].topic_id, listing.keys, manifests)


def _entries(partition: TieredPartition, start: int, folded: Folded) -> Iterator[ManifestEntry]:
    """Yields the entries that end after `start`, oldest first. Raises an error in `folded`."""
    assert partition.manifest is not None, "nothing of its entries was needed"
    older = (value_of(folded[ref.key]) for ref in partition.manifest.folded if ref.key in folded)
    for entry in chain(chain.from_iterable(older), partition.manifest.entries):
        if entry.end_offset > start:
            yield entry


def _is_cluster(store: ObjectStore, name: str) -> bool:
    """True if nodes have written below the name; registrations of jobs do not count."""
    jobs = store_registrations_prefix(name)
    return any(not info.key.startswith(jobs) for info in store.list(f"{name}/"))


def _holds_topics(store: ObjectStore, cluster: str) -> bool:
    return any(is_topic_name(name) for name in names_below(store, f"{cluster}/"))
