"""Planted bugs of replication: each removes one rule, and a run of the simulator must find it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import engine.partition.writer
from engine.producers.append_validator import AppendValidator
from engine.producers.sequences import ID_MAX, Producers
from engine.tiering.manifest import chain as manifest_chain
from engine.tiering.manifest import manifest
from replication.cluster.start_counter import StartCounter
from replication.coordination.interface import Operation, Put
from replication.cores import controller, election, follower, in_sync_set, leader, progress, role
from replication.cores.partition_state import PartitionState, TopicRules
from tests.checking.mutants import Mutant, Planted, patched
from tests.simulation.run import options_for, run
from tests.simulation.world import hosted, store, tier
from tests.simulation.world.repairs import SteppedRepairs
from tests.simulation.world.replica_log import ReplicaLog


def _mutant(
    what: str,
    plant: Planted,
    *,
    rules: TopicRules | None = None,
    kinds: tuple[str, ...] | None = None,
    fault_every_s: float | None = None,
    reads_ahead: bool = False,
    has_pipelining: bool = False,
    first_seed: int = 0,
    is_rare: bool = False,
) -> Mutant:
    """Return a mutant. The options narrow a run to where the bug can show; None leaves everything to the seed.

    `what`: what a server with the bug does, for readers.
    """

    def found_in(seed: int) -> list[str]:
        options = replace(options_for(seed), reads_ahead=reads_ahead, has_pipelining=has_pipelining)
        if rules is not None:
            options = replace(options, rules=rules)
        if kinds is not None:
            options = replace(options, kinds=kinds)
        if fault_every_s is not None:
            options = replace(options, fault_every_s=fault_every_s)
        return run(seed, options).problems

    return Mutant(plant, found_in, first_seed=first_seed, is_rare=is_rare)


def _ack_at_log_end(self: leader.Leader, end: int) -> progress.AckVerdict:
    return progress.AckVerdict.COMMITTED


def own_end_only(current: int, own_end: int, other_ends: object, in_sync: int, min_in_sync: int) -> int:
    return max(current, own_end) if in_sync >= min_in_sync else current


def without_minimum(current: int, own_end: int, other_ends: list[int], in_sync: int, min_in_sync: int) -> int:
    return max(current, min([own_end, *other_ends]))


_on_answer = follower.on_answer


def _whatever_was_asked(position: follower.FollowerPosition, fetch: object, answer: object) -> object:
    asked = follower.next_fetch(0, 0, position)
    return _on_answer(position, asked, answer)  # type: ignore[arg-type]


_next_fetch = follower.next_fetch


def _ahead_counts(node_id: int, broker_epoch: int, position: follower.FollowerPosition, ahead: object = None) -> object:
    fetch = _next_fetch(node_id, broker_epoch, position, ahead)  # type: ignore[arg-type]
    return replace(fetch, log_end=fetch.wanted, durable_end=fetch.wanted) if ahead else fetch


_reconciled = election.reconciled


def same_epoch(*args: object) -> PartitionState:
    before: PartitionState = args[1]  # type: ignore[assignment]
    after = _reconciled(*args)  # type: ignore[arg-type]
    return replace(after, leader_epoch=before.leader_epoch)


@contextmanager
def _ignore_fsync_errors() -> Iterator[None]:
    real = engine.partition.writer._sync

    def ignoring(disk: object, work: object) -> None:
        real(disk, work)  # type: ignore[arg-type]

    with patch.object(engine.partition.writer, "_sync", ignoring):
        yield


@contextmanager
def _growth_not_waited_for() -> Iterator[None]:
    """Two rules wait for a joining replica; this removes both."""
    only_committed = patch.object(in_sync_set, "maximal", lambda committed, proposed: {m.node_id for m in committed})
    with only_committed, patch.object(leader.Leader, "_is_joining", lambda *_: False):
        yield


@contextmanager
def _unclean_by_mistake() -> Iterator[None]:
    """Elects any live replica and marks the election clean."""
    real = election._elected

    def elected(*args: object) -> object:
        chosen, _ = real(*args)  # type: ignore[arg-type]
        if chosen is not None:
            return chosen, False
        live = [node for node in args[1] if args[6](node)]  # type: ignore[attr-defined, operator]
        return (election._as_leader(live[0], args[5]), False) if live else (None, False)  # type: ignore[arg-type]

    with patch.object(election, "_elected", elected):
        yield


def _leads_again(member: object, state: PartitionState) -> role.Role:
    role_found = _role_of(member, state)  # type: ignore[arg-type]
    is_named = state.leader is not None and state.leader.node_id == member.node_id  # type: ignore[attr-defined]
    return role.Lead(state.leader_epoch) if is_named else role_found


_role_of = role.role_of


@contextmanager
def _ignore_minimum() -> Iterator[None]:
    """Usually too few in-sync replicas make others eligible, and that alone holds the high watermark."""
    nobody_eligible = patch.object(leader.Leader, "_may_others_lead", False)
    with patch.object(leader, "high_watermark", without_minimum), nobody_eligible:
        yield


@contextmanager
def _skip_version_check() -> Iterator[None]:
    """Neither the writer nor the store checks which state a change follows."""

    def demanded(self: store.Store, operations: list[Operation]) -> list[Operation]:
        there = self.snapshot.keys
        return [
            operation._replace(version=there[operation.key].version)
            if isinstance(operation, Put) and operation.key in there
            else operation
            for operation in operations
        ]

    with patch.object(store.Store, "_demanded", demanded):
        yield


def _refuse_by_the_clock(self: hosted.Hosted, offset: int, reply: hosted.Reply) -> None:
    is_leading = self.leader is not None and self.leader.latest_offset is not None
    if is_leading and self.life.session.has_contact(self._now):
        reply("above", b"", 0, self.high_watermark, self.role.leader_epoch)
    else:
        reply("not_leader", b"", 0, 0, 0)


_restart = ReplicaLog.restart


def _restart_at_its_own_start(self: ReplicaLog, at: int, log_start: int | None = None, handed: bytes = b"") -> None:
    _restart(self, at, at if log_start is None or log_start < at else log_start, handed)


@contextmanager
def _truncate_for_a_leader_that_lacks_records() -> Iterator[None]:
    """Both halves are off: each alone keeps the records."""
    with (
        patch.object(leader.Leader, "_lacks_committed_of", lambda self, fetch, answer: False),
        patch.object(follower, "_must_keep", lambda position, to: False),
    ):
        yield


@contextmanager
def _manifest_fence_off() -> Iterator[None]:
    off = _demand_nothing
    with patch.object(manifest, "check_leadership", off), patch.object(manifest_chain, "check_leadership", off):
        yield


def _demand_nothing(newest: manifest.Manifest, leader_epoch: int) -> None:
    """Every write request is accepted."""


OS = TopicRules(is_fsync_demanded=False)
GROUP = TopicRules()

MUTANTS = {
    "ack before replication": _mutant(
        "acks=all is answered once the leader has written",
        patched(leader.Leader, "ack_verdict", _ack_at_log_end),
        first_seed=9,
    ),
    "watermark ignores the in-sync set": _mutant(
        "the high watermark is the leader's own end",
        patched(leader, "high_watermark", own_end_only),
        first_seed=4,
    ),
    "watermark ignores the minimum": _mutant(
        "the high watermark moves while too few are in sync", _ignore_minimum, first_seed=112
    ),
    "watermark over log_end": _mutant(
        "durability=group counts what is not fsynced",
        lambda: patch.object(leader.Leader, "_end_of", lambda self, log_end, durable_end: log_end),
        rules=GROUP,
        kinds=("lose_power_everywhere", "lose_power", "slow_disk", "kill"),
        first_seed=1,
    ),
    "rule 1: no reconciliation": _mutant(
        "a follower is sent data without comparing epochs",
        patched(leader.Leader, "_position_verdict", lambda self, fetch: None),
        first_seed=4,
    ),
    "truncation skipped": _mutant(
        "a follower keeps what its leader does not have",
        patched(hosted.ReplicaLog, "truncate", lambda self, to: None),
        first_seed=4,
    ),
    "rules 2 and 3: epoch not checked": _mutant(
        "a leader answers, and believes, fetches of other epochs",
        patched(leader.Leader, "_epoch_verdict", lambda self, fetch: None),
        rules=GROUP,
        kinds=("late_changes", "expire_session", "drain", "leave", "bad_weather"),
        fault_every_s=0.3,
        first_seed=192,
    ),
    "rule 4: join before the epoch's start": _mutant(
        "a follower joins once it has reached the high watermark",
        patched(leader, "may_join", lambda end, watermark, epoch_start: end >= watermark),
        rules=GROUP,
        kinds=("expire_session", "kill", "cut_one_way", "cut_one_way"),
        fault_every_s=0.3,
        first_seed=51,
    ),
    "shrink counts at once": _mutant(
        "a replica to be removed is not waited for, though the store may still elect it",
        patched(in_sync_set, "maximal", lambda committed, proposed: {m.node_id for m in proposed or committed}),
        first_seed=51,
    ),
    "growth counts when confirmed": _mutant(
        "a replica to be added is not waited for, though the store may already list it",
        _growth_not_waited_for,
        kinds=("cut_one_way", "cut_one_way", "kill", "expire_session"),
        fault_every_s=0.3,
        first_seed=85,
    ),
    "power loss forgotten": _mutant(
        "a node whose page cache is lost still counts as trusted",
        patched(election, "is_log_intact", lambda *_: True),
        rules=OS,
        kinds=("lose_power", "cut_two_ways", "kill", "slow_disk"),
        first_seed=181,
        is_rare=True,
    ),
    "lost disk forgotten": _mutant(
        "a node with a new disk still counts as trusted for the old one",
        patched(election, "is_log_intact", lambda *_: True),
        rules=GROUP,
        kinds=("lose_disk", "kill", "pause", "expire_session"),
        first_seed=5,
    ),
    "start counter ignored": _mutant(
        "a node with an older copy of its disk still counts as trusted",
        patched(StartCounter, "is_older_than", lambda self, stored: False),
        rules=GROUP,
        kinds=("roll_back", "kill", "lose_power", "pause"),
        fault_every_s=0.3,
    ),
    "committed records truncated": _mutant(
        "a follower truncates below its high watermark after a clean election",
        patched(follower, "_must_keep", lambda position, to: False),
        rules=GROUP,
        kinds=("roll_back_at_once", "kill", "pause"),
        fault_every_s=0.3,
        first_seed=59,
    ),
    "a leader that lacks committed records leads on": _mutant(
        "a leader that was rolled back has its followers truncate",
        _truncate_for_a_leader_that_lacks_records,
        rules=GROUP,
        kinds=("roll_back_at_once", "kill", "pause"),
        fault_every_s=0.3,
        first_seed=10,
    ),
    "unclean by mistake": _mutant(
        "without a live in-sync replica any live replica leads",
        _unclean_by_mistake,
        rules=GROUP,
        kinds=("kill", "isolate", "pause", "leave"),
        first_seed=176,
    ),
    "leader epoch does not grow": _mutant(
        "an election keeps the epoch",
        patched(controller, "reconciled", same_epoch),
        first_seed=3,
    ),
    "a restarted leader leads on": _mutant(
        "a leader keeps its epoch over a restart",
        patched(hosted, "role_of", _leads_again),
        first_seed=28,
    ),
    "version not checked": _mutant(
        "the store takes a change of a state that has changed since",
        _skip_version_check,
        first_seed=6,
    ),
    "answers of other positions": _mutant(
        "a follower applies answers to outdated fetches",
        patched(follower, "on_answer", _whatever_was_asked),
        kinds=("bad_weather", "kill", "expire_session", "pause"),
        first_seed=97,
    ),
    "what is on its way counts": _mutant(
        "a fetch ahead acknowledges records that are not written yet",
        patched(follower, "next_fetch", _ahead_counts),
        kinds=("kill", "lose_power", "expire_session"),
        reads_ahead=True,
        first_seed=121,
        is_rare=True,
    ),
    "fsync errors ignored": _mutant(
        "a failed fsync counts as done",
        _ignore_fsync_errors,
        rules=GROUP,
        kinds=("failing_sync", "lose_power_everywhere", "lose_power"),
        first_seed=14,
    ),
    "dedup off": _mutant(
        "a batch that comes again is stored again",
        patched(Producers, "validate", lambda self, header: None),
        rules=GROUP,
        kinds=("bad_weather", "kill", "expire_session"),
    ),
    "sequences not copied": _mutant(
        "a follower takes no note of the sequences in what it copies",
        patched(AppendValidator, "replay", lambda self, header, settings, now_ms: None),
        rules=GROUP,
        kinds=("bad_weather", "kill", "expire_session"),
        first_seed=45,
    ),
    "unknown producers begin anywhere": _mutant(
        "the first batch of a producer may have any sequence, though it never wrote to the log",
        lambda: patch.object(
            Producers, "forgotten_id_max", property(lambda self: ID_MAX, lambda self, _: None), create=True
        ),
        kinds=("bad_weather", "kill", "expire_session"),
        has_pipelining=True,
    ),
    "idle partitions lose their followers": _mutant(
        "a follower that had all of an idle partition counts as behind until the next write",
        patched(progress.Progress, "leader_moves_on", lambda self, leader_end, now: None),
        kinds=("idle",),
        fault_every_s=0.3,
        first_seed=10,
    ),
    "manifest fence off": _mutant(
        "a leader that was replaced goes on shipping",
        _manifest_fence_off,
        kinds=("pause", "bad_bucket", "cut_from_store", "expire_session"),
        fault_every_s=0.3,
        first_seed=5,
    ),
    "local delete before manifest": _mutant(
        "what is sealed may leave the disk before the store has it",
        patched(tier.Tier, "end_that_may_go", lambda self: self._hosted.log.log.sealed_end),
        first_seed=13,
    ),
    "a disk's start taken for the log's": _mutant(
        "a follower that starts at its leader's local log start forgets the records in the store",
        patched(ReplicaLog, "restart", _restart_at_its_own_start),
        kinds=("lose_disk", "kill", "lose_power", "reassign", "isolate"),
        fault_every_s=0.3,
        first_seed=2,
    ),
    "a leader that cannot read leads on": _mutant(
        "a leader whose disk fails reads of records keeps the leadership, though another replica may lead",
        patched(SteppedRepairs, "_leave", lambda self, replica: replica.core is None),
        rules=GROUP,
        kinds=("read_error", "kill", "lose_power"),
        fault_every_s=0.3,
        first_seed=11,
    ),
    "permanent refusals by the clock": _mutant(
        "a leader in contact with the store refuses a position above its high watermark permanently, without a check",
        patched(hosted.Hosted, "_refuse_above", _refuse_by_the_clock),
        kinds=("pause", "expire_session", "drain", "late_changes"),
        fault_every_s=0.3,
        first_seed=286,
    ),
    "end reported too early": _mutant(
        "a new leader reports its high watermark before it knows what was read (KIP-207)",
        lambda: patch.object(leader.Leader, "latest_offset", property(lambda self: self.high_watermark)),
        first_seed=10,
    ),
}
