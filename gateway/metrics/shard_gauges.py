"""The numbers of a shard that have no labels, read for each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from engine.log.recovery import LastShutdown
from engine.partition.partition import Partition
from engine.shard.shard import Shard


def shard_gauges(shard: Shard, *, is_first: bool) -> Iterator[tuple[str, str, float]]:
    """Yields name, text and value of each. Only the first shard yields the values that all shards know."""
    partitions = list(shard.partitions())
    if is_first:
        yield "penstock_topics", "Topics", len(shard.topics)
        offline = sum(directory.fault is not None for directory in shard.directories)
        stray = len(shard.catalog.without_metadata)
        text = "Quarantined topics: their topic.json is missing or cannot be read"
        yield "penstock_topics_without_metadata", text, stray
        yield "penstock_offline_data_directories", "Data directories that are missing or failed", offline
    yield "penstock_partitions", "Partitions", len(partitions)
    yield (
        "penstock_offline_replicas",
        "Replicas on this node that are offline because the disk failed",
        sum(p.offline is not None for p in partitions),
    )
    yield "penstock_log_bytes", "Bytes of the log on this disk", sum(p.log.size_bytes for p in partitions)
    yield "penstock_segments", "Segments on this disk", sum(len(p.log.segments) for p in partitions)
    yield "penstock_append_queue_bytes", "Bytes of batches that wait for the writer", shard.committer.queued_bytes
    yield "penstock_group_commits_total", "Groups of batches written and flushed together", shard.committer.groups
    yield (
        "penstock_page_cache_misses_total",
        "Reads that were not in the page cache",
        shard.reader.page_cache_misses,
    )
    yield "penstock_failed_reads_total", "Reads that failed with a disk error", shard.reader.failed_reads
    yield "penstock_recovered_bytes", "Bytes scanned by the recovery of the last start", shard.recovered.scanned_bytes
    yield (
        "penstock_recovery_truncated_bytes",
        "Bytes of incomplete batches truncated at the last start",
        shard.recovered.truncated_bytes,
    )
    yield (
        "penstock_recovery_mid_log_truncations",
        "Truncations at the last start with complete batches after them: bytes in the middle of a log were lost",
        shard.recovered.mid_log_truncations,
    )
    yield from _key_gauges(shard, partitions)
    quarantine = shard.quarantine
    yield "penstock_scrubbed_bytes_total", "Bytes of closed segments read by the scrubber", quarantine.scrubbed_bytes
    yield (
        "penstock_damaged_segments_total",
        "Closed segments in which the scrubber or a read found damage",
        quarantine.damaged_found,
    )
    yield "penstock_repaired_segments_total", "Damaged segments repaired from the store", quarantine.repaired
    yield (
        "penstock_quarantined_segments",
        "Segments with damaged records, which fetches do not return",
        sum(bool(s.damage) for p in partitions for s in p.log.segments),
    )
    swapper = shard.segment_swapper
    text = "Records removed by compaction, because a later one has their key"
    yield "penstock_compaction_removed_records_total", text, swapper.removed_records
    yield "penstock_compaction_freed_bytes_total", "Bytes that compaction has freed", swapper.freed_bytes
    progress = shard.opener.progress
    yield "penstock_recovery_seconds", "Duration of opening all partitions at the last start", progress.seconds
    yield "penstock_recovery_scanned_bytes", "Bytes scanned so far by the recovery in progress", progress.scanned_bytes
    for last_shutdown in LastShutdown:
        name = f"penstock_last_shutdown_{last_shutdown.name.lower()}"
        is_so = shard.directory.last_shutdown is last_shutdown
        yield name, f"1 if the previous run ended this way: {last_shutdown.value}", is_so


def _key_gauges(shard: Shard, partitions: list[Partition]) -> Iterator[tuple[str, str, float]]:
    admissions = [partition.validator for partition in partitions]
    yield "penstock_idempotency_keys", "Idempotency keys in memory", shard.key_budget.keys
    dropped = sum(admission.keys.window.dropped for admission in admissions)
    text = "Idempotency keys evicted before they expired, because the limit was reached"
    yield "penstock_idempotency_keys_evicted_total", text, dropped
    duplicates = sum(admission.counts.key_duplicates for admission in admissions)
    text = "Batches that were duplicates of a stored batch, by Idempotency-Key"
    yield "penstock_idempotency_duplicates_total", text, duplicates
    sources = sum(len(admission.sources) for admission in admissions)
    yield "penstock_sources", "Sources whose positions are in memory", sources
    text = "Batches that were not stored, because positions of their source were stored before"
    yield "penstock_source_repeats_total", text, sum(admission.counts.source_repeats for admission in admissions)
