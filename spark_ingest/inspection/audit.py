"""Compares what commits counted with what the log in the store has: records by topic and ten minutes.

Reads the segments of committed ranges again. A commit is compared if the store still has all of its ranges of a topic.
Beside that, the records of each whole segment are compared with the number that the node wrote into the manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.record_columns import columns_of
from spark_ingest.decode.time_counts import counts_of
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.results import ALL_TIMES, add_counts
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, slice_of, slices_of, unread_entries
from spark_ingest.source.range_sets import common, offset_count, without
from spark_ingest.source.scan import scan
from spark_ingest.source.slices import Range, Slice


@dataclass(slots=True)
class TopicAudit:
    """The comparison of a topic, and its JSON. `records` were counted by commits, `log_records` are those of the log.

    `not_compared` are commits whose records the store no longer has, or that releases without counts made.
    """

    commits: int = 0
    records: int = 0
    log_records: int = 0
    rows: int = 0
    not_compared: list[int] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def audit(source: ObjectStore, commits: Sequence[Commit]) -> dict[str, TopicAudit]:
    """Returns the comparison of each topic that commits have records of. Raises Corrupt, NoSuchObject."""
    if not commits:
        return {}
    topics = {result.topic for commit in commits for result in commit.results}
    by_id: dict[tuple[str, str], list[TieredPartition]] = {}
    for partition in discover(source, commits[-1].cluster, lambda topic: topic in topics):
        by_id.setdefault((partition.topic, partition.topic_id), []).append(partition)
    audits = {topic: TopicAudit() for topic in sorted(topics)}
    for commit in commits:
        for topic in sorted({result.topic for result in commit.results}):
            partitions = by_id.get((topic, commit.positions[topic].topic_id), [])
            _compare(source, commit, topic, partitions, audits[topic])
    for (topic, topic_id), partitions in by_id.items():
        done = [result for commit in commits if _has(commit, topic, topic_id) for result in commit.results]
        ranges = [Range(*span) for result in done if result.topic == topic for span in result.ranges]
        audits[topic].differences += _segments(source, partitions, ranges)
    return audits


def _has(commit: Commit, topic: str, topic_id: str) -> bool:
    return topic in commit.positions and commit.positions[topic].topic_id == topic_id


def _compare(
    source: ObjectStore, commit: Commit, topic: str, partitions: Sequence[TieredPartition], done: TopicAudit
) -> None:
    ranges = [Range(*span) for result in commit.results if result.topic == topic for span in result.ranges]
    stored = [Range(partition.partition, partition.log_start, partition.tiered_end) for partition in partitions]
    counted = commit.audit.get(topic)
    if counted is None or offset_count(common(ranges, stored)) < offset_count(ranges):
        done.not_compared.append(commit.number)
        return
    log: dict[int, int] = {}
    for tiered in partitions:
        mine = [each for each in ranges if each.partition == tiered.partition]
        folded = load_folded(source, [(tiered, each.start, each.end) for each in mine])
        for each in mine:
            log = add_counts(log, _counts(source, list(slices_of(tiered, each.start, each.end, folded))))
    done.commits += 1
    done.records += sum(counted.records.values())
    done.rows += sum(counted.events.values())
    done.log_records += sum(log.values())
    for bucket in sorted({*log, *counted.records}):
        here, there = counted.records.get(bucket, 0), log.get(bucket, 0)
        if here != there:
            done.differences.append(
                f"commit {commit.number}: {topic} {_time(bucket)}: {here:,} records were counted, the log has {there:,}"
            )
    rows = sum(result.rows for result in commit.results if result.topic == topic)
    if sum(counted.events.values()) != rows:
        text = f"commit {commit.number}: {topic}: {sum(counted.events.values()):,} rows were counted, it has {rows:,}"
        done.differences.append(text)


def _counts(source: ObjectStore, slices: Sequence[Slice]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for batch in scan(source, slices):
        if batch.undecodable is not None:
            first = max(batch.header.base_offset, batch.source.start)
            last = min(batch.header.next_offset, batch.source.end)
            counts.update(counts_of(pa.array([batch.header.max_timestamp] * (last - first), pa.int64())))
        elif batch.record_count:
            counts.update(counts_of(columns_of([batch]).timestamps))
    return counts


def _segments(source: ObjectStore, partitions: Sequence[TieredPartition], ingested: Sequence[Range]) -> list[str]:
    """Returns the segments that are ingested and have another number of records than the node counted."""
    wrong = []
    folded = load_folded(source, [(partition, partition.log_start, partition.tiered_end) for partition in partitions])
    for tiered in partitions:
        for entry in unread_entries(tiered, tiered.log_start, folded):
            whole = Range(tiered.partition, entry.base_offset, entry.end_offset)
            if entry.base_offset < tiered.log_start or without([whole], ingested):
                continue
            whole_segment = slice_of(tiered.partition, entry, entry.base_offset, entry.end_offset)
            has = _counts(source, [whole_segment]).total()
            if has != entry.record_count:
                wrong.append(f"{entry.key}: the node counted {entry.record_count:,} records, the segment has {has:,}")
    return wrong


def _time(bucket: int) -> str:
    if bucket < 0:
        return "in all" if bucket == ALL_TIMES else "without a time"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=10 * bucket)).isoformat()
