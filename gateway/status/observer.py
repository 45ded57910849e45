"""Observes one process: samples its plain numbers every ten seconds, and judges what it knows about itself.

Reads counters that the parts keep anyway, so that no request pays for it. gateway/status/findings.py has the rules.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from math import isnan, nan
from typing import Any

import penstock_codec
from engine.errors import EngineError
from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from engine.runtime.histogram import Histogram
from engine.runtime.slices import in_slices
from engine.runtime.tasks import keep_running
from engine.shard.directory_moves import MoveStatus
from engine.shard.shard import Shard
from engine.tiering.shipping.shippers import TierStatistics
from gateway.groups.hosting.host import GroupHost
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.metrics.loop_watch import LoopWatch
from gateway.metrics.metrics import Metrics, Numbers
from gateway.metrics.stages import Stages
from gateway.routing.peers import Peers
from gateway.settings import NodeSettings
from gateway.status.findings import Directory, Facts, Finding, FirstSeen, GroupFacts, judge_cluster, judge_process
from gateway.status.history import STEP_MS, History, Series
from gateway.status.partition_look import PartitionLook, Row, look_at_partitions
from gateway.status.rates import TopicNumbers, TopicRates
from gateway.status.recent_rises import RecentRises
from gateway.status.series import GROUP, NODE, TOPIC
from gateway.subscriptions.hosting import PushHost
from replication.replica.replicas import Replicas

JUDGED_MS = 1000  # several consoles may ask
UPLOADS_ASKED_MAX = 20  # partitions that wait for an upload: the worker is asked why
UPLOAD_WAIT_S = 60.0
READS_FAILED_MS = 10 * 60_000  # as in deploy/prometheus
DEAD_LETTERS_MS = 15 * 60_000
GROWTH_SAMPLES = 30  # five minutes
ROUNDED = -(1 << 24)  # free bytes: an answer that is polled stays the same meanwhile
VERSION = version("penstock-server")
_FAILED = frozenset({500, 502, 504, 507})
_REFUSED = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Observed:
    """The parts of a process that are observed."""

    settings: NodeSettings
    shard: Shard
    peers: Peers
    replicas: Replicas
    metrics: Metrics
    stages: Stages
    watch: LoopWatch
    groups: GroupHost
    push: PushHost
    tier_statistics: Callable[[Partition], Any]
    clock: Clock
    executor: Executor


class Observer:
    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self.rates = TopicRates(observed.shard, observed.executor, observed.clock.monotonic)
        self.history = History(observed.clock.steady_ms())
        self.began_ms = observed.clock.now_ms()
        self._connections: Sized = ()
        self._expiries_ms: Mapping[str, int] = {}
        self.node_values: dict[str, float] = {}
        self._failed_reads = RecentRises[tuple[str, int]](READS_FAILED_MS)
        self._dead_letters = RecentRises[str](DEAD_LETTERS_MS)
        self._seen_here, self._seen_of_cluster = FirstSeen(), FirstSeen()
        self._findings: tuple[list[Finding], list[Finding]] = ([], [])
        self._look = PartitionLook()
        self._judging = asyncio.Lock()
        self._judged_ms = -JUDGED_MS
        self._not_uploaded: tuple[tuple[str, int, str], ...] = ()
        self._counts: dict[str, float] = {}
        self._buckets: dict[str, list[int]] = {}
        self._sampled_at = observed.clock.monotonic()
        self._sampling: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Observer({self.history})"

    def follow(self, connections: Sized, expiries_ms: Mapping[str, int]) -> None:
        """Follows the connections of clients, and when the certificates of listeners end: both as they change."""
        self._connections, self._expiries_ms = connections, expiries_ms

    def start(self) -> None:
        self._sampling = keep_running(self._sample_often, "observing the process")

    def stop(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()

    @property
    def node_id(self) -> int:
        return self._observed.peers.node_id

    def now_ms(self) -> int:
        return self._observed.clock.now_ms()

    def last(self, series: Series, samples: int) -> list[float] | None:
        """Returns the last samples of a series, the newest last; None: there is no such series."""
        return self.history.last(series, samples, self._observed.clock.steady_ms())

    def lag_trends(self) -> dict[str, list[float]]:
        """Returns the last hour of each group's lag in seconds, a sample in each TREND_STEPS steps."""
        return self.history.trends(GROUP, "lag_s")

    async def _sample_often(self) -> None:
        while True:
            await asyncio.sleep((STEP_MS - self._observed.clock.steady_ms() % STEP_MS) / 1000)
            await self.sample()

    async def sample(self) -> None:
        """Takes one sample of all series, and judges the process."""
        await self.rates.sample()
        async with self._judging:
            await self._look_at_partitions()
        await asyncio.sleep(0)
        self.node_values = self._read_node()
        values: dict[Series, float] = {(NODE, "", name): value for name, value in self.node_values.items()}
        now_ms = self._observed.clock.steady_ms()
        await asyncio.sleep(0)
        async for name in in_slices(list(self._observed.shard.topics)[: self._observed.settings.metrics_topics_max]):
            numbers = self.rates.numbers_of(name, now_ms)
            if numbers is not None:
                for series in ("records_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "log_bytes"):
                    values[TOPIC, name, series] = getattr(numbers, series)
        async for name, _, records, seconds in in_slices(list(self._observed.groups.lags())):
            values[GROUP, name, "lag_records"], values[GROUP, name, "lag_s"] = records, seconds
        await asyncio.sleep(0)
        self.history.put(now_ms, values)
        await self._ask_uploads()
        self._judge()

    async def findings(self) -> tuple[list[Finding], list[Finding]]:
        """Returns the findings about this process, and those about the cluster as it sees it; a second old at most."""
        async with self._judging:  # the second of two callers finds those of the first
            if self._observed.clock.steady_ms() - self._judged_ms >= JUDGED_MS:
                await self._look_at_partitions()
                self._judge()
        return self._findings

    async def _look_at_partitions(self) -> None:
        observed, now_ms = self._observed, self._observed.clock.steady_ms()
        self._look = await look_at_partitions(
            observed.shard, observed.replicas, lambda partition: self.rates.tier_lag_s(partition, now_ms), UPLOAD_WAIT_S
        )

    def _judge(self) -> None:
        observed = self._observed
        steady_ms, is_silent = observed.clock.steady_ms(), not observed.replicas.has_contact
        here = self._seen_here.date(judge_process(self.facts()), steady_ms)
        of_cluster: list[Finding] = []
        if observed.peers.index == 0:  # one process of a node judges the cluster
            judged = judge_cluster(observed.peers.cluster, is_silent=is_silent)
            of_cluster = self._seen_of_cluster.date(judged, steady_ms)
        self._findings, self._judged_ms = (here, of_cluster), steady_ms

    def topic_numbers(self, names: Iterable[str]) -> dict[str, TopicNumbers]:
        """Returns the numbers of the topics that this process has partitions of, or whose groups it coordinates."""
        numbers, now_ms = {}, self._observed.clock.steady_ms()
        lags = self._observed.groups.worst_lags
        for name in names:
            row = self.rates.numbers_of(name, now_ms)
            lag = lags.get(name)
            if lag is not None:
                row = row or TopicNumbers()
                row.lag_group, row.lag_records, row.lag_s = lag
            if row is not None:
                numbers[name] = row
        return numbers

    def facts(self) -> Facts:
        """Returns what this process knows about itself."""
        observed, shard, look = self._observed, self._observed.shard, self._look
        is_first = observed.peers.index == 0
        age_s = observed.replicas.store_age_s
        is_silent = is_first and not observed.replicas.has_contact and age_s is not None
        moves = shard.moves.statuses()
        now_ms = observed.clock.steady_ms()
        return Facts(
            node_id=observed.peers.node_id,
            offline=look.offline,
            damaged=look.damaged,
            diverged=look.diverged,
            not_uploaded=self._not_uploaded,
            without_room=tuple(shard.log_manager.without_room()),
            moving=tuple((row.topic, row.partition, _progress(row)) for row in moves if not row.error),
            move_failed=tuple((row.topic, row.partition, row.error) for row in moves if row.error),
            directories=self.directories(),
            groups=tuple(self._groups()),
            failing_pushes=tuple(observed.push.failing()),
            failed_reads=tuple(self._reads_that_failed(now_ms)),
            dead_letters=tuple(self._new_dead_letters(now_ms)),
            topics_set_aside=len(shard.catalog.without_metadata) if is_first else 0,
            mid_log_truncations=shard.recovered.mid_log_truncations,
            tier_lag_s=look.tier_lag_s,
            files_share=observed.metrics.files_share(),
            is_codec_compiled=penstock_codec.native is not None,
            certificate_s=self._certificate_s() if is_first else None,
            store_silent_s=min(age_s, observed.clock.monotonic()) if is_silent and age_s is not None else None,
        )

    def families(self) -> Iterator[Numbers]:
        """Yields the metrics of the process as a whole."""
        observed, settings = self._observed, self._observed.settings
        text = "Open connections of clients, and the bound beyond which further ones wait to be accepted"
        yield Numbers("penstock_connections", text, None, {"": len(self._connections)})
        text = "Connections of clients that the process takes at most (connections_max)"
        yield Numbers("penstock_connections_max", text, None, {"": settings.connections_max})
        text = "Long polls and event streams that the process takes at most (long_polls_max)"
        yield Numbers("penstock_long_polls_max", text, None, {"": settings.long_polls_max})
        if observed.peers.index:
            return
        yield Numbers("penstock_build_info", "1, with the version of the node", "version", {VERSION: 1})
        sizes = {row.path: float(row.size_bytes) for row in self.directories() if row.size_bytes is not None}
        text = "Size of the disk of a data directory"
        yield Numbers("penstock_data_directory_size_bytes", text, "directory", sizes)
        left_s = self._certificate_s()
        text = "Seconds until the first certificate of a listener ends; NaN without TLS"
        yield Numbers("penstock_tls_certificate_expiry_seconds", text, None, {"": nan if left_s is None else left_s})
        view, replicas = observed.peers.cluster, observed.replicas
        text = "1 if the coordination store has answered this node within the session timeout"
        yield Numbers("penstock_coordination_connected", text, None, {"": replicas.has_contact})
        text = "Sessions with the coordination store that this node has lost"
        yield Numbers("penstock_coordination_session_losses_total", text, None, {"": view.session_losses})
        text = "Times that a replica left the replicas in sync, as this node has observed"
        yield Numbers("penstock_in_sync_shrinks_total", text, None, {"": view.shrinks})
        text = "Times that a replica joined the replicas in sync, as this node has observed"
        yield Numbers("penstock_in_sync_expands_total", text, None, {"": view.expands})

    def sizes(self) -> tuple[int, int]:
        """Returns the number of partitions that this process leads, and the bytes of its logs at the last sample."""
        return self._look.led, self._look.log_bytes

    def directories(self) -> tuple[Directory, ...]:
        """Returns the data directories of the node, which its first process names."""
        if self._observed.peers.index:
            return ()
        rows = []
        for directory in self._observed.shard.directories:
            free_bytes = size_bytes = None
            if directory.fault is None:
                with suppress(OSError):
                    free_bytes = directory.disk.free_bytes(directory.path) & ROUNDED
                    size_bytes = directory.disk.capacity_bytes(directory.path)
            fault = None if directory.fault is None else str(directory.fault)
            rows.append(Directory(directory.path, free_bytes, size_bytes, fault))
        return tuple(rows)

    def _reads_that_failed(self, now_ms: int) -> Iterator[Row]:
        failures = self._observed.shard.reader.failures
        for (topic, number), count in self._failed_reads.follow(
            {name: count for name, (count, _) in failures.items()}, now_ms
        ):
            reason = failures[topic, number][1] if (topic, number) in failures else "its error is forgotten"
            yield topic, number, f"{count} times within ten minutes, at last {reason}"

    def _new_dead_letters(self, now_ms: int) -> Iterable[tuple[str, int]]:
        push = {PUSH_PREFIX + name: count for name, count in self._observed.push.dead_letters().items()}
        return self._dead_letters.follow(self._observed.groups.dead_letters() | push, now_ms)

    def _groups(self) -> Iterable[GroupFacts]:
        for name, members, records, seconds in self._observed.groups.lags():
            if records and not name.startswith(PUSH_PREFIX):
                ages = self.last((GROUP, name, "lag_s"), GROWTH_SAMPLES) or [nan]
                is_growing = not isnan(ages[0]) and seconds > ages[0]
                yield GroupFacts(name, members, records, seconds, is_growing)

    def _read_node(self) -> dict[str, float]:
        observed, metrics, now = self._observed, self._observed.metrics, self._observed.clock.monotonic()
        passed_s, self._sampled_at = max(now - self._sampled_at, 0.001), now
        answers = metrics.answers.items()
        counts = {
            "records_in_per_s": metrics.produce_records.value,
            "bytes_in_per_s": metrics.produce_bytes.value,
            "bytes_out_per_s": metrics.fetch_bytes.value,
            "requests_per_s": sum(answer.count for _, answer in answers),
            "errors_per_s": sum(answer.count for (_, status), answer in answers if status in _FAILED),
            "refusals_per_s": sum(answer.count for (_, status), answer in answers if status in _REFUSED),
            "loop_share": time.thread_time(),
        }
        before, self._counts = self._counts or counts, counts
        values = {name: max(0.0, count - before[name]) / passed_s for name, count in counts.items()}
        free = [row.free_bytes for row in self.directories() if row.free_bytes is not None]
        lags = list(observed.groups.lags())
        values |= {
            "ack_p99_s": self._p99("ack", observed.stages.ack),
            "flush_p99_s": self._p99("flush", observed.shard.committer.times.flush),
            "loop_lag_p99_s": self._p99("loop", observed.watch.lag),
            "connections": len(self._connections),
            "requests_in_flight": metrics.requests_in_flight.value,
            "event_streams": metrics.event_streams.value,
            "append_queue_bytes": observed.shard.committer.queued_bytes,
            "log_bytes": self._look.log_bytes,
            "free_bytes": min(free) if free else nan,
            "memory_bytes": metrics.memory_bytes(),
            "tier_lag_s": self._look.tier_lag_s,
            "replica_lag_records": self._look.replica_lag_records,
            "group_lag_records": sum(records for _, _, records, _ in lags),
            "group_lag_s": max((seconds for _, _, _, seconds in lags), default=0.0),
        }
        return values

    def _certificate_s(self) -> float | None:
        now_ms = self._observed.clock.now_ms()
        return min(((end_ms - now_ms) / 1000 for end_ms in self._expiries_ms.values()), default=None)

    def _p99(self, name: str, histogram: Histogram) -> float:
        """Returns the 99th percentile since the last sample, between two bounds; NaN: there were no values."""
        counts = histogram.cumulative()
        before, self._buckets[name] = self._buckets.get(name, counts), counts
        return percentile(histogram.bounds, [now - then for now, then in zip(counts, before, strict=True)], 0.99)

    async def _ask_uploads(self) -> None:
        """Learns why segments wait for their upload."""
        failed = []
        for partition in self._look.waiting[:UPLOADS_ASKED_MAX]:
            with suppress(EngineError, KeyError):  # the worker restarts, or the partition was closed
                statistics: TierStatistics = await self._observed.tier_statistics(partition)
                if statistics.last_error:
                    failed.append((partition.topic, partition.number, statistics.last_error))
        self._not_uploaded = tuple(failed)


def percentile(bounds: Iterable[float], cumulative: list[int], share: float) -> float:
    """Returns a percentile of values that are counted in buckets, as Prometheus does; NaN: there are no values."""
    rank = cumulative[-1] * share
    if not rank:
        return nan
    lower, below = 0.0, 0
    for bound, count in zip(bounds, cumulative, strict=False):
        if count >= rank:
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower


def _progress(move: MoveStatus) -> str:
    return f"{move.left_bytes} of {move.size_bytes} bytes are left to copy to {move.target}"
