"""The numbers of a node that have no labels, for its metrics: read off its parts when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from engine.log.recovery import LastStop
from engine.partition.partition import Partition
from engine.shard.shard import Shard
from gateway.connections.response_buffers import UnreadAnswers
from gateway.http.in_flight import InFlight
from gateway.produce.keys_in_flight import KeyHolds
from gateway.routing.leader_failover import Handover
from gateway.routing.peers import Peers


class Counted(Protocol):
    """The parts and counters that are told of: gateway.node.Node."""

    shard: Shard
    peers: Peers
    handover: Handover
    in_flight: InFlight
    key_holds: KeyHolds
    unread_answers: UnreadAnswers
    idle_ended: int
    requests_under_way: int
    waiting_produces: int
    waiting_partitions: int


def gauges_of(node: Counted) -> Iterator[tuple[str, str, float]]:
    partitions = list(node.shard.partitions())
    if node.peers.index == 0:  # every shard knows all of them; one tells
        yield "penstock_topics", "Topics", len(node.shard.topics)
        offline = sum(directory.fault is not None for directory in node.shard.directories)
        unidentified = len(node.shard.catalog.unidentified)
        yield "penstock_unidentified_topics", "Topics that are set aside: their topic.json is missing", unidentified
        yield "penstock_offline_data_directories", "Data directories that are missing or failed", offline
    yield "penstock_partitions", "Partitions", len(partitions)
    yield (
        "penstock_offline_partitions",
        "Partitions that the disk failed",
        sum(p.offline is not None for p in partitions),
    )
    yield "penstock_log_bytes", "Bytes of the log on this disk", sum(p.log.size_bytes for p in partitions)
    yield "penstock_segments", "Segments on this disk", sum(len(p.log.segments) for p in partitions)
    yield "penstock_request_bytes_in_flight", "Bytes of bodies of open requests", node.in_flight.held_bytes
    unread = node.unread_answers
    yield "penstock_unread_answer_bytes", "Bytes of large answers that clients have yet to take", unread.size_bytes
    yield "penstock_refused_answers_total", "Answers refused for want of room for them", unread.refused
    yield "penstock_stalled_connections_total", "Connections ended: their answers were not taken", unread.given_up
    yield "penstock_idle_connections_total", "Connections ended: they asked for nothing", node.idle_ended
    yield "penstock_requests_under_way", "Requests that have no answer yet", node.requests_under_way
    yield "penstock_waiting_produces", "Produces that wait for their acks", node.waiting_produces
    yield "penstock_waiting_partitions", "Partitions that long polls wait on, together", node.waiting_partitions
    yield "penstock_forwarding_bytes", "Bytes on their way to another shard", node.peers.bytes_under_way
    yield "penstock_append_queue_bytes", "Bytes waiting to be written", node.shard.committer.queued_bytes
    yield "penstock_write_groups_total", "Groups written", node.shard.committer.groups
    yield (
        "penstock_page_cache_misses_total",
        "Reads that had to wait for the disk",
        node.shard.reader.page_cache_misses,
    )
    yield "penstock_failed_reads_total", "Reads that the disk failed", node.shard.reader.failed_reads
    yield "penstock_forwarded_requests_total", "Requests brought to another shard", node.peers.forwarded
    yield from node.handover.gauges()
    yield "penstock_recovered_bytes", "Bytes scanned at the last start", node.shard.recovered.scanned_bytes
    yield "penstock_recovery_cut_bytes", "Bytes of torn tails cut at the last start", node.shard.recovered.cut_bytes
    yield (
        "penstock_recovery_holes",
        "Cuts at the last start with whole batches behind them: what a power loss took out of the middle",
        node.shard.recovered.holes,
    )
    yield from _key_gauges(node, partitions)
    quarantine = node.shard.quarantine
    yield "penstock_scrubbed_bytes_total", "Bytes of sealed segments examined", quarantine.scrubbed_bytes
    yield "penstock_damaged_segments_total", "Sealed segments found damaged", quarantine.damaged_found
    yield "penstock_repaired_segments_total", "Damaged segments repaired from the store", quarantine.repaired
    yield (
        "penstock_quarantined_segments",
        "Segments with records that are not served because they are damaged",
        sum(bool(s.damage) for p in partitions for s in p.log.segments),
    )
    progress = node.shard.opener.progress
    yield "penstock_recovery_seconds", "Time that opening partitions took at the last start", progress.seconds
    yield "penstock_recovery_scanned_bytes", "Bytes scanned so far by a recovery", progress.scanned_bytes
    for last_stop in LastStop:
        name = f"penstock_last_stop_{last_stop.name.lower()}"
        yield name, f"1 if the run before ended so: {last_stop.value}", node.shard.directory.last_stop is last_stop


def _key_gauges(node: Counted, partitions: list[Partition]) -> Iterator[tuple[str, str, float]]:
    admissions = [partition.admission for partition in partitions]
    yield "penstock_idempotency_keys", "Idempotency keys that are remembered", node.shard.key_budget.keys
    dropped = sum(one.keys.window.dropped for one in admissions)
    text = "Idempotency keys let go before their time, because there were too many"
    yield "penstock_idempotency_keys_dropped_total", text, dropped
    duplicates = sum(one.counts.key_duplicates for one in admissions)
    text = "Batches not stored again because their Idempotency-Key was known"
    yield "penstock_idempotency_duplicates_total", text, duplicates
    yield (
        "penstock_idempotency_keys_reused_total",
        "Requests refused with the key of another",
        node.key_holds.reused,
    )
