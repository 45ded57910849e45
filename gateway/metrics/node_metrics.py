"""The families of /metrics that a scrape reads from a node: times of stages, traffic and size of each topic.

Counts nothing itself: partitions, the committer and the stages keep plain numbers, so that a request does not pay for
metrics. Bounded: topics beyond the first `metrics_topics_max` are added up as "other".
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import penstock_codec
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.shard.shard import Shard
from gateway.metrics.loop_watch import LoopWatch
from gateway.metrics.metrics import Exemplars, Histograms, Numbers
from gateway.metrics.stages import Stages

OTHER = "other"  # a topic of this name is added to it, which is harmless


def time_families(
    shard: Shard, stages: Stages, watch: LoopWatch, exemplars: Exemplars
) -> Iterator[Numbers | Histograms]:
    """Yields times of requests by stage, and the lag of the loop. Call it in the loop's own thread."""
    times = shard.committer.times
    by_stage = {"body": stages.body, "decode": stages.decode, "ack": stages.ack, "answer": stages.answer}
    by_stage |= {"queue": times.queue, "append": times.append, "flush": times.flush}
    text = "Time of a produce (body, decode, ack, answer) and of a group commit (queue, append, flush)"
    yield Histograms("penstock_stage_duration_seconds", text, "stage", by_stage, exemplars)
    yield Numbers("penstock_flushes_total", "Files flushed to disk (fsync)", None, {"": times.flushes})
    text = "Delay of a timer of the event loop after its due time"
    yield Histograms("penstock_event_loop_lag_seconds", text, None, {"": watch.lag})
    text = "1 if the compiled codec of record batches runs, 0 if plain Python does its work"
    yield Numbers("penstock_codec_compiled", text, None, {"": penstock_codec.native is not None})
    text = "CPU time of the event loop's thread; its rate is the utilisation of the loop, at most 1"
    yield Numbers("penstock_event_loop_cpu_seconds_total", text, None, {"": time.thread_time()})


def topic_families(shard: Shard, topics_max: int, now_ms: int) -> Iterator[Numbers]:
    """Yields traffic since the start and size of each topic. A deleted topic's counts are dropped."""
    rows: dict[str, list[float]] = {}
    oldest_pending_ms = now_ms
    for rank, (name, topic) in enumerate(shard.topics.items()):
        row = rows.setdefault(name if rank < topics_max else OTHER, [0.0] * len(_BY_TOPIC))
        for partition in topic.partitions.values():
            is_shipper = shard.leading_epoch(partition) is not None  # a follower learns the leader's progress late
            pending = list(_pending(partition, shard.tiered_end(partition))) if is_shipper else []
            for index, number in enumerate(_numbers_of(partition, pending)):
                row[index] += number
            if pending:
                oldest_pending_ms = min(oldest_pending_ms, pending[-1].last_append_ms or now_ms)
    for index, (name, text) in enumerate(_BY_TOPIC):
        yield Numbers(name, text, "topic", {topic: row[index] for topic, row in rows.items()})
    text = "Age of the oldest closed segment that is not in the store yet"
    yield Numbers("penstock_tier_lag_seconds", text, None, {"": (now_ms - oldest_pending_ms) / 1000})


def directory_family(shard: Shard) -> Numbers:
    """Returns the free bytes of the disk of each data directory that can be asked."""
    free_bytes: dict[str, float] = {}
    for directory in shard.directories:
        with suppress(OSError):
            free_bytes[directory.path] = directory.disk.free_bytes(directory.path)
    return Numbers(
        "penstock_data_directory_free_bytes", "Free bytes of the disk of a data directory", "directory", free_bytes
    )


def admission_families(shard: Shard) -> Iterator[Numbers]:
    """Yields the outcomes of append validation, of all partitions together."""
    admissions = [partition.validator for partition in shard.partitions()]
    text = "Producer states in memory; a producer counts once for each partition"
    yield Numbers("penstock_producers", text, None, {"": sum(len(admission.producers) for admission in admissions)})
    for name, text, count in _JUDGEMENTS:
        yield Numbers(name, text, None, {"": sum(getattr(admission.counts, count) for admission in admissions)})


_JUDGEMENTS = (
    ("penstock_duplicate_appends_total", "Appends that repeat a stored batch and get its position", "duplicates"),
    (
        "penstock_older_duplicates_total",
        "Appends that repeat a batch older than the last 16 batches of their producer",
        "duplicates_older",
    ),
    ("penstock_fenced_appends_total", "Appends rejected because of an older producer epoch", "fenced"),
    ("penstock_sequence_gaps_total", "Appends rejected because their sequence is not the next one", "gaps"),
)
_BY_TOPIC = (
    ("penstock_topic_records_in_total", "Records written"),
    ("penstock_topic_batches_in_total", "Record batches written"),
    ("penstock_topic_bytes_in_total", "Bytes of record batches written"),
    ("penstock_topic_bytes_out_total", "Bytes of record batches read for fetches"),
    ("penstock_topic_log_bytes", "Bytes of the log on this disk"),
    ("penstock_topic_segments", "Segments on this disk"),
    ("penstock_topic_tier_pending_bytes", "Bytes of closed segments that are not in the store yet"),
    ("penstock_topic_tier_pending_segments", "Closed segments that are not in the store yet"),
)


def _numbers_of(partition: Partition, pending: list[Segment]) -> Iterable[float]:
    """Yields the values in the order of _BY_TOPIC."""
    return (
        partition.log_end - partition.opened_at,
        partition.batches_in,
        partition.bytes_in,
        partition.bytes_out,
        partition.log.size_bytes,
        len(partition.log.segments),
        sum(segment.size_bytes for segment in pending),
        len(pending),
    )


def _pending(partition: Partition, tiered_end: int | None) -> Iterator[Segment]:
    """Yields closed segments that wait for the store, newest first; usually few of all."""
    segments = partition.log.segments
    for position in range(len(segments) - 2, -1, -1):
        if tiered_end is None or segments[position].next_offset <= tiered_end:
            return
        yield segments[position]
