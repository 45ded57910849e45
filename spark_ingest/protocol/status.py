"""The lag of a job: committed positions beside tiered ends. Reads manifests, and few of the commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore
from spark_ingest.progress import Progress
from spark_ingest.protocol.commit import Commit, no_progress, not_recovered
from spark_ingest.protocol.history import History
from spark_ingest.protocol.lost import changed_ids, counted, living_ids, lost_to_retention, rows_of
from spark_ingest.source.discovery import (
    Folded,
    TieredPartition,
    load_folded,
    partitions_of,
    resolve_cluster,
    topics_of,
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
    `failed` has the errors of topics that cannot be read.
    """
    history = History(output, job)
    head = history.head()
    cluster, progress = _of_job(source, head, cluster)
    by_topic, failed = _read_partitions(source, cluster, is_wanted)
    partitions = _partitions(source, by_topic, progress, failed)
    every = [partition for some in by_topic.values() for partition in some]
    changed = changed_ids(
        source, cluster, living_ids(every), progress, lambda topic: is_wanted(topic) and topic not in failed
    )
    failed |= {topic: error for topic, error in changed.lost.items() if isinstance(error, EngineError)}
    lost = lost_to_retention(every, progress)
    lost += [loss for some in changed.lost.values() if not isinstance(some, EngineError) for loss in some]
    skipped_in = history.commits_with_losses(head) if head else []
    pending = history.pending(head)
    return {
        "job": job,
        "cluster": cluster,
        "head": head.number if head else None,
        "committed_ms": head.committed_ms if head else None,
        "pending_plan": pending.number if pending else None,
        "incomplete_replay": incomplete_replay(history, head),
        "lag_records": sum(partition["lag_records"] for partition in partitions),
        "lag_bytes": sum(partition["lag_bytes"] for partition in partitions),
        "partitions": partitions,
        "held": head.held_details if head else {},
        "misfits": remaining_misfits(history, head),
        "lost_records": counted(lost),
        "lost": rows_of(lost),
        "skipped_records": head.lost_records - head.recovered_records if head else 0,
        "unseen_records": head.unseen_records if head else {},
        "skipped": rows_of(not_recovered(skipped_in)),
        "failed": _texts(failed),
    }


def remaining_misfits(history: History, head: Commit | None) -> dict[str, dict[str, int]]:
    """Returns the values of another type than their column, without those that rewrites lifted from `_extra`."""
    if head is None or not head.misfits:
        return {}
    lifted = history.effect().lifted
    remain = {topic: dict(Counter(misfits) - Counter(lifted.get(topic, {}))) for topic, misfits in head.misfits.items()}
    return {topic: misfits for topic, misfits in remain.items() if misfits}


def incomplete_replay(history: History, head: Commit | None) -> int | None:
    """Returns the commit of a replay whose earlier rows are still there; None without one."""
    return head.replay if head and head.replay and head.replay > history.effect().replay else None


def lag(
    source: ObjectStore, output: ObjectStore, job: str, is_wanted: Callable[[str], bool], cluster: str | None
) -> dict[str, Any]:
    """Returns the JSON document of `ingest lag`. `oldest_ms` bounds the times of the records that are not ingested.

    `failed` has the errors of topics that cannot be read.
    """
    head = History(output, job).head()
    cluster, progress = _of_job(source, head, cluster)
    topics: dict[str, dict[str, Any]] = {}
    by_topic, failed = _read_partitions(source, cluster, is_wanted)
    for partition in _partitions(source, by_topic, progress, failed):
        topic = topics.setdefault(
            partition["topic"], {"lag_records": 0, "lag_bytes": 0, "oldest_ms": None, "partitions": 0}
        )
        topic["lag_records"] += partition["lag_records"]
        topic["lag_bytes"] += partition["lag_bytes"]
        topic["partitions"] += 1
        topic["oldest_ms"] = min(filter(None, (topic["oldest_ms"], partition["oldest_ms"])), default=None)
    return {
        "job": job,
        "cluster": cluster,
        "head": head.number if head else None,
        "committed_ms": head.committed_ms if head else None,
        "topics": topics,
        "failed": _texts(failed),
    }


def _of_job(source: ObjectStore, head: Commit | None, cluster: str | None) -> tuple[str, Progress]:
    resolved = resolve_cluster(source, cluster, head.cluster if head else None)
    return resolved, head.progress if head else no_progress()


def _read_partitions(
    source: ObjectStore, cluster: str, is_wanted: Callable[[str], bool]
) -> tuple[dict[str, list[TieredPartition]], dict[str, EngineError]]:
    """Returns the partitions of each topic, and the errors of the others."""
    by_topic = partitions_of(source, cluster, topics_of(source, cluster, is_wanted)).topics
    failed = {topic: result for topic, result in by_topic.items() if isinstance(result, EngineError)}
    return {topic: result for topic, result in by_topic.items() if not isinstance(result, EngineError)}, failed


def _partitions(
    source: ObjectStore,
    by_topic: Mapping[str, Iterable[TieredPartition]],
    progress: Progress,
    failed: dict[str, EngineError],
) -> list[dict[str, Any]]:
    """Returns the documents of partitions. Adds topics to `failed` whose older entries cannot be read."""
    every = [partition for some in by_topic.values() for partition in some]
    folded = load_folded(
        source, [(partition, _start(partition, progress), partition.tiered_end) for partition in every]
    )
    documents: list[dict[str, Any]] = []
    for topic, some in by_topic.items():
        try:
            documents += [_partition(partition, progress, folded) for partition in some]
        except EngineError as error:
            failed[topic] = error
    return documents


def _texts(failed: Mapping[str, EngineError]) -> dict[str, str]:
    return {topic: str(error) for topic, error in sorted(failed.items())}


def _start(partition: TieredPartition, progress: Progress) -> int:
    return max(partition.log_start, progress.reached(partition.topic, partition.topic_id, partition.partition) or 0)


def _partition(partition: TieredPartition, progress: Progress, folded: Folded) -> dict[str, Any]:
    committed_end = progress.reached(partition.topic, partition.topic_id, partition.partition)
    start = _start(partition, progress)
    unread = unread_entries(partition, start, folded)
    oldest_ms = min((entry.min_timestamp_ms for entry in unread), default=None)
    span_ms = 0 if oldest_ms is None else max(entry.max_timestamp_ms for entry in unread) - oldest_ms
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start": partition.log_start,
        "committed_end": committed_end,
        "tiered_end": partition.tiered_end,
        "lag_records": max(0, partition.tiered_end - start),
        "lag_bytes": sum(entry.size_bytes for entry in unread),
        "lag_ms": span_ms,
        "oldest_ms": oldest_ms,
    }
