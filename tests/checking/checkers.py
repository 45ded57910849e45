"""Checkers of what clients produced and read, and of the final logs.

Pure functions that return findings as sentences, which begin with their kind; a good run has none. test_anomalies.py
plants an anomaly for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from engine.format.batch import read_header
from replication.cores.partition_state import VersionedState
from tests.checking.history import History, Latest, Polled, Produced

StateChange = tuple[float, str, VersionedState]


@dataclass
class FinalLog:
    """One replica's log of a partition at the end of a run."""

    partition: str
    node_id: int
    log_start: int
    high_watermark: int
    local_log_start: int = 0
    batches: list[bytes] = field(default_factory=list)
    records: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Guarantee:
    """The guarantees of a run.

    `keeps_sequences`: each client numbers its batches, so that a batch without an answer keeps its place among them.
    """

    keeps_acks_all: bool = True
    keeps_what_was_read: bool = True
    keeps_sequences: bool = False


def check_all(history: History, states: Sequence[StateChange], logs: list[FinalLog], guarantee: Guarantee) -> list[str]:
    """Run every checker. `logs`: all in-sync replicas of every partition, the leader's first."""
    leaders: dict[str, FinalLog] = {}
    for log in logs:
        leaders.setdefault(log.partition, log)
    findings = inconsistent_offsets(history, logs, only_final=not guarantee.keeps_what_was_read)
    if guarantee.keeps_acks_all:
        findings += lost_writes(history.produced, leaders, history.deleted_below)
        full_reads = [poll for poll in history.polled if poll.is_full_read]
        findings += unseen(history.produced, full_reads, history.deleted_below)
        findings += unexplained_deletions(logs, history.deleted_below)
        findings += out_of_real_time_order(history.produced)
        findings += history.cuts_below_watermark
        findings += [f"C17 a gap before the oldest: {gap}" for gap in history.gaps_of_oldest]
    if guarantee.keeps_what_was_read:
        findings += dirty_reads(history.polled, leaders, history.deleted_below)
        findings += ends_going_back(history.latest)
        findings += wrong_rejections(history)
    findings += aborted_reads(history.produced, history.polled, leaders.values())
    findings += duplicates(leaders.values())
    findings += invented(history.produced, history.polled, leaders.values())
    findings += out_of_sequence(history.produced, leaders.values(), only_acknowledged=not guarantee.keeps_sequences)
    findings += skipping_polls(history.polled)
    findings += different_replicas(logs)
    findings += positions_going_back(history, states)
    return findings


def check_values(history: History, values: Mapping[str, Sequence[str]], *, keeps_sequences: bool = True) -> list[str]:
    """Check against a full read: the values of each partition from offset 0 on."""
    given = [value for write in history.produced for value in write.values]
    assert len(given) == len(set(given)), "the test itself gave a value twice"
    logs = {name: FinalLog(name, 0, 0, len(those), records=dict(enumerate(those))) for name, those in values.items()}
    findings = lost_writes(history.produced, logs, {})
    findings += out_of_real_time_order(history.produced)
    findings += aborted_reads(history.produced, [], logs.values())
    findings += duplicates(logs.values())
    findings += invented(history.produced, [], logs.values())
    return findings + out_of_sequence(history.produced, logs.values(), only_acknowledged=not keeps_sequences)


def kinds_of(findings: Iterable[str]) -> set[str]:
    """Return the kinds of these findings: the text before the first colon."""
    return {text.partition(":")[0] for text in findings}


def lost_writes(
    produced: Iterable[Produced], leaders: Mapping[str, FinalLog], deleted_below: Mapping[str, int]
) -> list[str]:
    """C1: every record acknowledged with acks=all is at its offset, unless it was deleted later.

    One whose offset is unknown is somewhere in its partition; one whose partition is unknown, somewhere.
    """
    findings = []
    stored = {name: set(log.records.values()) for name, log in leaders.items()}
    stored[""] = set().union(*stored.values())
    for write in produced:
        if not write.is_acknowledged:
            continue
        if write.base_offset < 0:
            missing = [value for value in write.values if value not in stored.get(write.partition, ())]
            findings += [f"C1 lost: {value} was acknowledged to {write.client}, and is nowhere" for value in missing]
            continue
        log, start = leaders[write.partition], deleted_below.get(write.partition, 0)
        for offset, value in write.records():
            if offset >= start and log.records.get(offset) != value:
                findings.append(
                    f"C1 lost: {value} was acknowledged at {write.partition} {offset} at {write.done_at:.4f}, "
                    f"there is {log.records.get(offset)!r}, log_end {max(log.records, default=-1) + 1}"
                )
    return findings


def unseen(produced: Iterable[Produced], polled: Iterable[Polled], deleted_below: Mapping[str, int]) -> list[str]:
    """C2: a full read sees every record acknowledged with acks=all. `polled` is the full read."""
    seen = {(poll.partition, offset): value for poll in polled for offset, value in poll.records}
    findings = []
    for write in produced:
        if write.is_acknowledged and write.base_offset >= 0:
            for offset, value in write.records():
                if offset >= deleted_below.get(write.partition, 0) and seen.get((write.partition, offset)) != value:
                    text = f"{value} was acknowledged at {write.partition} {offset}"
                    findings.append(f"C2 unseen: {text}, a full read saw {seen.get((write.partition, offset))!r}")
    return findings


def unexplained_deletions(logs: Iterable[FinalLog], deleted_below: Mapping[str, int]) -> list[str]:
    """log_start is raised only by retention and by delete requests."""
    return [
        f"C1 unexplained deletion: {log.partition} of node {log.node_id} starts at {log.log_start}, "
        f"records were deleted below {deleted_below.get(log.partition, 0)}"
        for log in logs
        if log.log_start > deleted_below.get(log.partition, 0)
    ]


def aborted_reads(produced: Iterable[Produced], polled: Iterable[Polled], logs: Iterable[FinalLog]) -> list[str]:
    """C3: a definitely rejected record is never seen."""
    refused = {value for write in produced if write.outcome == "fail" for value in write.values}
    seen = {value for poll in polled for _, value in poll.records} | {v for log in logs for v in log.records.values()}
    return [f"C3 aborted read: {value} was refused and is there" for value in sorted(refused & seen)]


def duplicates(logs: Iterable[FinalLog]) -> list[str]:
    """C4: every value is sent once, so the logs have it at most once."""
    findings = []
    at: dict[str, str] = {}
    for log in logs:
        for offset, value in sorted(log.records.items()):
            where = f"{log.partition} {offset}"
            if value in at:
                findings.append(f"C4 duplicate: {value} at {at[value]} and {where}")
            at[value] = where
    return findings


def invented(produced: Iterable[Produced], polled: Iterable[Polled], logs: Iterable[FinalLog]) -> list[str]:
    """C12: every value that is stored or read was sent."""
    sent = {value for write in produced for value in write.values}
    seen = {value for poll in polled for _, value in poll.records} | {v for log in logs for v in log.records.values()}
    return [f"C12 invented: no client sent {value[:100]}" for value in sorted(seen - sent)]


def out_of_sequence(
    produced: Iterable[Produced], logs: Iterable[FinalLog], *, only_acknowledged: bool = True
) -> list[str]:
    """C11: in each partition the values of one client, each sent after the answer to the last, are in that order.

    The first offset of a value counts.
    """
    order = {
        value: (write.client, (number, index))
        for number, write in enumerate(produced)
        if write.outcome == "ok" or not only_acknowledged
        for index, value in enumerate(write.values)
    }
    findings = []
    for log in logs:
        newest: dict[str, tuple[tuple[int, int], str]] = {}
        seen: set[str] = set()
        for _, value in sorted(log.records.items()):
            if value in order and value not in seen:
                seen.add(value)
                client, number = order[value]
                before = newest.get(client, ((-1, -1), ""))
                if number < before[0]:
                    findings.append(f"C11 order: {value} is behind {before[1]} in {log.partition}")
                newest[client] = max(before, (number, value))
    return findings


def inconsistent_offsets(history: History, logs: Iterable[FinalLog], *, only_final: bool = False) -> list[str]:
    """C5: an offset has one value in all acknowledgements, polls and replicas."""
    findings = []
    seen: dict[tuple[str, int], tuple[str, str]] = {}

    def see(partition: str, offset: int, value: str, where: str) -> None:
        before, who = seen.setdefault((partition, offset), (value, where))
        if before != value:
            findings.append(f"C5 inconsistent: {partition} {offset} is {before} ({who}) and {value} ({where})")

    if not only_final:
        for write in history.produced:
            if write.is_acknowledged and write.base_offset >= 0:
                for offset, value in write.records():
                    see(write.partition, offset, value, f"acknowledged to {write.client}")
        for poll in history.polled:
            for offset, value in poll.records:
                see(poll.partition, offset, value, f"read by {poll.client} at node {poll.node_id} at {poll.at:.4f}")
    for log in logs:
        for offset, value in log.records.items():
            if offset < log.high_watermark:
                see(log.partition, offset, value, f"in the log of node {log.node_id}")
    return findings


def skipping_polls(polled: Iterable[Polled]) -> list[str]:
    """C6: offsets in an answer are consecutive from the requested one, and below the high watermark."""
    findings = []
    for poll in polled:
        offsets = [offset for offset, _ in poll.records]
        if offsets and offsets != list(range(poll.asked, poll.asked + len(offsets))):
            findings.append(f"C6 skip: {poll.client} asked {poll.partition} for {poll.asked} and got {offsets}")
        if offsets and offsets[-1] >= poll.high_watermark:
            findings.append(f"C6 uncommitted: {poll.client} read {offsets[-1]} of {poll.partition} at {poll.at:.4f}")
    return findings


def ends_going_back(latest: Iterable[Latest]) -> list[str]:
    """C6, KIP-207: no leader reports an end below one that this client has read up to."""
    return [
        f"C6 end went back: {answer.client} had read {answer.partition} to {answer.seen}, then got {answer.offset}"
        for answer in latest
        if answer.offset < answer.seen
    ]


def wrong_rejections(history: History) -> list[str]:
    """C15: no node permanently rejects a position that was acknowledged or read as committed before the request."""
    committed: dict[str, list[tuple[float, int]]] = {}
    for write in history.produced:
        if write.is_acknowledged and write.base_offset >= 0:
            committed.setdefault(write.partition, []).append((write.done_at, write.end))
    for poll in history.polled:
        committed.setdefault(poll.partition, []).append((poll.at, poll.high_watermark))
    findings = []
    for write in history.refused:
        end = max((end for at, end in committed.get(write.partition, []) if at < write.asked_at), default=0)
        if write.position <= end:
            text = (
                f"{write.client} was refused permanently at {write.partition} {write.position} by node {write.node_id}"
            )
            findings.append(f"C15 wrong refusal: {text}, asked at {write.asked_at:.4f}; committed was {end}")
    return findings


def out_of_real_time_order(produced: Iterable[Produced]) -> list[str]:
    """C7: a record is stored after every record that was acknowledged before it was sent.

    A batch that got its offset as a repeat may have been stored early, but never before its first attempt.
    """
    findings = []
    by_partition: defaultdict[str, list[Produced]] = defaultdict(list)
    for write in produced:
        if write.is_acknowledged and write.base_offset >= 0:
            by_partition[write.partition].append(write)
    for partition, those in by_partition.items():
        done = sorted(those, key=lambda write: write.done_at)
        end, at = 0, 0
        for write in sorted(those, key=lambda write: write.invoked_at):
            while at < len(done) and done[at].done_at < write.invoked_at:
                end, at = max(end, done[at].end), at + 1
            if write.base_offset < end:
                findings.append(
                    f"C7 order: {write.values[0]} is at {partition} {write.base_offset}; the log had {end} before"
                )
    return findings


def dirty_reads(polled: Iterable[Polled], leaders: dict[str, FinalLog], deleted_below: Mapping[str, int]) -> list[str]:
    """C8: every record that was read stays in the log at its offset."""
    findings = []
    for poll in polled:
        log, start = leaders[poll.partition], deleted_below.get(poll.partition, 0)
        for offset, value in poll.records:
            if offset >= start and log.records.get(offset) != value:
                text = f"C8 dirty read: {poll.client} read {value} at {poll.partition} {offset} at {poll.at:.4f}"
                findings.append(f"{text}, there is {log.records.get(offset)!r}")
    return findings


def different_replicas(logs: Iterable[FinalLog]) -> list[str]:
    """C9: in-sync replicas have the same bytes from the greatest local start to the lowest high watermark."""
    findings = []
    first: dict[str, FinalLog] = {}
    for log in logs:
        leader = first.setdefault(log.partition, log)
        start = max(leader.local_log_start, log.local_log_start)
        end = min(leader.high_watermark, log.high_watermark)
        if _batches_between(leader, start, end) != _batches_between(log, start, end):
            findings.append(
                f"C9 replicas differ: {log.partition} {start}..{end} on nodes {leader.node_id} and {log.node_id}"
            )
    return findings


def positions_going_back(history: History, states: Sequence[StateChange]) -> list[str]:
    """C10: leader and partition epochs grow; an epoch has one leader; a leader's watermark grows within its epoch."""
    findings = []
    by_partition: dict[str, list[VersionedState]] = {}
    for _, partition, state in states:
        by_partition.setdefault(partition, []).append(state)
    for partition, versions in by_partition.items():
        for before, after in pairwise(versions):
            if after.partition_epoch <= before.partition_epoch:
                findings.append(f"C10 partition epoch of {partition} went back to {after.partition_epoch}")
            is_other = after.state.leader != before.state.leader
            grown = after.state.leader_epoch - before.state.leader_epoch
            if grown < 0 or (is_other and grown == 0):
                findings.append(f"C10 leader epoch of {partition} did not grow: {after.state}")
    highest: dict[tuple[str, int, int], int] = {}
    for partition, node, epoch, position in history.watermarks:
        if position < highest.get((partition, node, epoch), 0):
            findings.append(
                f"C10 high watermark of {partition} on node {node} went back to {position} in epoch {epoch}"
            )
        highest[partition, node, epoch] = position
    return findings


def thrown_out(states: Sequence[StateChange]) -> list[str]:
    """Without faults no replica leaves an in-sync set, even when nothing is sent for a long time."""
    findings = []
    last_states: dict[str, VersionedState] = {}
    for at, partition, state in states:
        before = last_states.get(partition, state)
        if missing := set(before.state.in_sync) - set(state.state.in_sync):
            findings.append(f"thrown out: {sorted(missing)} of {partition} at {at:.4f}, and nothing had failed")
        last_states[partition] = state
    return findings


def _batches_between(log: FinalLog, start: int, end: int) -> list[bytes]:
    headers = ((read_header(batch), batch) for batch in log.batches)
    return [batch for header, batch in headers if header.base_offset >= start and header.next_offset <= end]
