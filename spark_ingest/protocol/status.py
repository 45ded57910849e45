"""The lag of a job: committed positions beside tiered ends. Reads manifests, and few of the commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from engine.tiering.store.store import ObjectStore
from spark_ingest.protocol.commit import Commit, not_recovered
from spark_ingest.protocol.history import History
from spark_ingest.protocol.lost import counted, lost_to_retention, lost_with_deleted_topics, rows_of
from spark_ingest.source.discovery import (
    Folded,
    TieredPartition,
    discover,
    load_folded,
    resolve_cluster,
    unread_entries,
)


def status(
    source: ObjectStore, output: ObjectStore, job: str, is_wanted: Callable[[str], bool], cluster: str | None
) -> dict[str, Any]:
    """Returns the JSON document of `ingest status`. `lag_ms` spans the oldest to the newest record not ingested.

    `held` are the errors of topics whose last plan failed. `misfits` counts values of another type than their column.
    `incomplete_replay` is a commit whose ranges have their rows twice until the replay is resumed.
    `lost` are ranges that the store no longer has and no commit has recorded. `skipped` are recorded ones, which
    `skipped_records` counts. `unseen_records` counts, by topic, what was gone when the job first read a partition.
    """
    history = History(output, job)
    head = history.head()
    cluster = resolve_cluster(source, cluster or (head.cluster if head else None))
    found, positions = discover(source, cluster, is_wanted), head.positions if head else {}
    partitions = _partitions(source, found, head)
    lost = [
        *lost_to_retention(found, positions),
        *lost_with_deleted_topics(source, cluster, found, positions, is_wanted),
    ]
    skipped_in = history.commits_with_losses(head) if head else []
    pending = history.plan(head.number + 1 if head else 1)
    return {
        "job": job,
        "cluster": cluster,
        "head": head.number if head else None,
        "committed_ms": head.committed_ms if head else None,
        "pending_plan": pending.number if pending else None,
        "incomplete_replay": incomplete_replay(history, head),
        "lag_records": sum(one["lag_records"] for one in partitions),
        "lag_bytes": sum(one["lag_bytes"] for one in partitions),
        "partitions": partitions,
        "held": head.held_details if head else {},
        "misfits": remaining_misfits(history, head),
        "lost_records": counted(lost),
        "lost": rows_of(lost),
        "skipped_records": head.lost_records - head.recovered_records if head else 0,
        "unseen_records": head.unseen_records if head else {},
        "skipped": rows_of(not_recovered(skipped_in)),
    }


def remaining_misfits(history: History, head: Commit | None) -> dict[str, dict[str, int]]:
    """Returns the values of another type than their column, without those that rewrites lifted from `_extra`."""
    if head is None or not head.misfits:
        return {}
    lifted = history.effect().lifted
    remain = {topic: dict(Counter(one) - Counter(lifted.get(topic, {}))) for topic, one in head.misfits.items()}
    return {topic: one for topic, one in remain.items() if one}


def incomplete_replay(history: History, head: Commit | None) -> int | None:
    """Returns the commit of a replay whose earlier rows are still there; None without one."""
    return head.replay if head and head.replay and head.replay > history.effect().replay else None


def lag(
    source: ObjectStore, output: ObjectStore, job: str, is_wanted: Callable[[str], bool], cluster: str | None
) -> dict[str, Any]:
    """Returns the JSON document of `ingest lag`. `oldest_ms` bounds the times of the records that are not ingested."""
    head = History(output, job).head()
    cluster = resolve_cluster(source, cluster or (head.cluster if head else None))
    topics: dict[str, dict[str, Any]] = {}
    for one in _partitions(source, discover(source, cluster, is_wanted), head):
        known = topics.setdefault(one["topic"], {"lag_records": 0, "lag_bytes": 0, "oldest_ms": None, "partitions": 0})
        known["lag_records"] += one["lag_records"]
        known["lag_bytes"] += one["lag_bytes"]
        known["partitions"] += 1
        known["oldest_ms"] = min(filter(None, (known["oldest_ms"], one["oldest_ms"])), default=None)
    return {
        "job": job,
        "cluster": cluster,
        "head": head.number if head else None,
        "committed_ms": head.committed_ms if head else None,
        "topics": topics,
    }


def _partitions(source: ObjectStore, found: Sequence[TieredPartition], head: Commit | None) -> list[dict[str, Any]]:
    folded = load_folded(source, [(one, _start(one, head), one.tiered_end) for one in found])
    return [_partition(one, head, folded) for one in found]


def _committed_end(partition: TieredPartition, head: Commit | None) -> int | None:
    position = head.positions.get(partition.topic) if head else None
    is_same = position is not None and position.topic_id == partition.topic_id
    return position.ends.get(partition.partition) if position and is_same else None


def _start(partition: TieredPartition, head: Commit | None) -> int:
    return max(partition.log_start, _committed_end(partition, head) or 0)


def _partition(partition: TieredPartition, head: Commit | None, folded: Folded) -> dict[str, Any]:
    committed_end, start = _committed_end(partition, head), _start(partition, head)
    unread = unread_entries(partition, start, folded)
    oldest_ms = min((one.min_timestamp_ms for one in unread), default=None)
    span_ms = 0 if oldest_ms is None else max(one.max_timestamp_ms for one in unread) - oldest_ms
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start": partition.log_start,
        "committed_end": committed_end,
        "tiered_end": partition.tiered_end,
        "lag_records": max(0, partition.tiered_end - start),
        "lag_bytes": sum(one.size_bytes for one in unread),
        "lag_ms": span_ms,
        "oldest_ms": oldest_ms,
    }
