"""Planted bugs of a server: each removes one rule, and the simulator must find it.

A mutant that no run finds means that the simulator misses bugs, or that the rule is not needed. `options` narrows a run
to where the bug can show, as `TopicRules` or kinds of faults; None leaves everything to the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
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
from tests.simulation.run import Options, options_for, run
from tests.simulation.world import hosted, store, tier
from tests.simulation.world.repairs import SteppedRepairs
from tests.simulation.world.replica_log import ReplicaLog

Planted = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Mutant:
    what: str
    plant: Planted
    rules: TopicRules | None = None
    kinds: tuple[str, ...] | None = None
    fault_every_s: float | None = None
    reads_ahead: bool = False
    has_pipelining: bool = False

    def options(self, seed: int) -> Options:
        found = replace(options_for(seed), reads_ahead=self.reads_ahead, has_pipelining=self.has_pipelining)
        if self.rules is not None:
            found = replace(found, rules=self.rules)
        if self.kinds is not None:
            found = replace(found, kinds=self.kinds)
        if self.fault_every_s is not None:
            found = replace(found, fault_every_s=self.fault_every_s)
        return found


def _patched(target: object, name: str, value: object) -> Planted:
    return lambda: patch.object(target, name, value)


def _ack_at_log_end(self: leader.Leader, end: int) -> progress.AckVerdict:
    return progress.AckVerdict.COMMITTED


def _own_end_only(current: int, own_end: int, other_ends: object, in_sync: int, min_in_sync: int) -> int:
    return max(current, own_end) if in_sync >= min_in_sync else current


def _without_minimum(current: int, own_end: int, other_ends: list[int], in_sync: int, min_in_sync: int) -> int:
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


def _same_epoch(*args: object) -> PartitionState:
    before: PartitionState = args[1]  # type: ignore[assignment]
    after = _reconciled(*args)  # type: ignore[arg-type]
    return replace(after, leader_epoch=before.leader_epoch)


@contextmanager
def _fsync_errors_ignored() -> Iterator[None]:
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


def _leads_again(own: object, state: PartitionState) -> role.Role:
    found = _role_of(own, state)  # type: ignore[arg-type]
    is_named = state.leader is not None and state.leader.node_id == own.node_id  # type: ignore[attr-defined]
    return role.Lead(state.leader_epoch) if is_named else found


_role_of = role.role_of


@contextmanager
def _minimum_ignored() -> Iterator[None]:
    """Usually too few in-sync replicas make others eligible, and that alone holds the high watermark."""
    nobody_eligible = patch.object(leader.Leader, "_may_others_lead", False)
    with patch.object(leader, "high_watermark", _without_minimum), nobody_eligible:
        yield


@contextmanager
def _version_not_checked() -> Iterator[None]:
    """Neither the writer nor the store checks which state a change follows."""

    def demanded(self: store.Store, operations: list[Operation]) -> list[Operation]:
        there = self.snapshot.keys
        return [
            one._replace(version=there[one.key].version) if isinstance(one, Put) and one.key in there else one
            for one in operations
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
    off = _nothing_demanded
    with patch.object(manifest, "check_leadership", off), patch.object(manifest_chain, "check_leadership", off):
        yield


def _nothing_demanded(found: manifest.Manifest, leader_epoch: int) -> None:
    """Every write request is accepted."""


OS = TopicRules(is_fsync_demanded=False)
GROUP = TopicRules()

MUTANTS = {
    "ack before replication": Mutant(
        "acks=all is answered once the leader has written", _patched(leader.Leader, "ack_verdict", _ack_at_log_end)
    ),
    "watermark ignores the in-sync set": Mutant(
        "the high watermark is the leader's own end", _patched(leader, "high_watermark", _own_end_only)
    ),
    "watermark ignores the minimum": Mutant("the high watermark moves while too few are in sync", _minimum_ignored),
    "watermark over log_end": Mutant(
        "durability=group counts what is not fsynced",
        lambda: patch.object(leader.Leader, "_end_of", lambda self, log_end, durable_end: log_end),
        rules=GROUP,
        kinds=("lose_power_everywhere", "lose_power", "slow_disk", "kill"),
    ),
    "rule 1: no reconciliation": Mutant(
        "a follower is sent data without comparing epochs",
        _patched(leader.Leader, "_position_verdict", lambda self, fetch: None),
    ),
    "truncation skipped": Mutant(
        "a follower keeps what its leader does not have", _patched(hosted.ReplicaLog, "truncate", lambda self, to: None)
    ),
    "rules 2 and 3: epoch not checked": Mutant(
        "a leader answers, and believes, fetches of other epochs",
        _patched(leader.Leader, "_epoch_verdict", lambda self, fetch: None),
        rules=GROUP,
        kinds=("late_changes", "expire_session", "drain", "leave", "bad_weather"),
        fault_every_s=0.3,
    ),
    "rule 4: join before the epoch's start": Mutant(
        "a follower joins once it has reached the high watermark",
        _patched(leader, "may_join", lambda end, watermark, epoch_start: end >= watermark),
        rules=GROUP,
        kinds=("expire_session", "kill", "cut_one_way", "cut_one_way"),
        fault_every_s=0.3,
    ),
    "shrink counts at once": Mutant(
        "a replica to be removed is not waited for, though the store may still elect it",
        _patched(in_sync_set, "maximal", lambda committed, proposed: {m.node_id for m in proposed or committed}),
    ),
    "growth counts when confirmed": Mutant(
        "a replica to be added is not waited for, though the store may already list it",
        _growth_not_waited_for,
        kinds=("cut_one_way", "cut_one_way", "kill", "expire_session"),
        fault_every_s=0.3,
    ),
    "power loss forgotten": Mutant(
        "a node whose page cache is lost still counts as trusted",
        _patched(election, "is_log_intact", lambda *_: True),
        rules=OS,
        kinds=("lose_power", "cut_two_ways", "kill", "slow_disk"),
    ),
    "lost disk forgotten": Mutant(
        "a node with a new disk still counts as trusted for the old one",
        _patched(election, "is_log_intact", lambda *_: True),
        rules=GROUP,
        kinds=("lose_disk", "kill", "pause", "expire_session"),
    ),
    "start counter ignored": Mutant(
        "a node with an older copy of its disk still counts as trusted",
        _patched(StartCounter, "is_older_than", lambda self, stored: False),
        rules=GROUP,
        kinds=("roll_back", "kill", "lose_power", "pause"),
        fault_every_s=0.3,
    ),
    "committed records truncated": Mutant(
        "a follower truncates below its high watermark after a clean election",
        _patched(follower, "_must_keep", lambda position, to: False),
        rules=GROUP,
        kinds=("roll_back_at_once", "kill", "pause"),
        fault_every_s=0.3,
    ),
    "a leader that lacks committed records leads on": Mutant(
        "a leader that was rolled back has its followers truncate",
        _truncate_for_a_leader_that_lacks_records,
        rules=GROUP,
        kinds=("roll_back_at_once", "kill", "pause"),
        fault_every_s=0.3,
    ),
    "unclean by mistake": Mutant(
        "without a live in-sync replica any live replica leads",
        _unclean_by_mistake,
        rules=GROUP,
        kinds=("kill", "isolate", "pause", "leave"),
    ),
    "leader epoch does not grow": Mutant(
        "an election keeps the epoch", _patched(controller, "reconciled", _same_epoch)
    ),
    "a restarted leader leads on": Mutant(
        "a leader keeps its epoch over a restart", _patched(hosted, "role_of", _leads_again)
    ),
    "version not checked": Mutant(
        "the store takes a change of a state that has changed since",
        _version_not_checked,
    ),
    "answers of other positions": Mutant(
        "a follower applies answers to outdated fetches",
        _patched(follower, "on_answer", _whatever_was_asked),
        kinds=("bad_weather", "kill", "expire_session", "pause"),
    ),
    "what is on its way counts": Mutant(
        "a fetch ahead acknowledges records that are not written yet",
        _patched(follower, "next_fetch", _ahead_counts),
        kinds=("kill", "lose_power", "expire_session"),
        reads_ahead=True,
    ),
    "fsync errors ignored": Mutant(
        "a failed fsync counts as done",
        _fsync_errors_ignored,
        rules=GROUP,
        kinds=("failing_sync", "lose_power_everywhere", "lose_power"),
    ),
    "dedup off": Mutant(
        "a batch that comes again is stored again",
        _patched(Producers, "validate", lambda self, header: None),
        rules=GROUP,
        kinds=("bad_weather", "kill", "expire_session"),
    ),
    "sequences not copied": Mutant(
        "a follower takes no note of the sequences in what it copies",
        _patched(AppendValidator, "replay", lambda self, header, settings, now_ms: None),
        rules=GROUP,
        kinds=("bad_weather", "kill", "expire_session"),
    ),
    "unknown producers begin anywhere": Mutant(
        "the first batch of a producer may have any sequence, though it never wrote to the log",
        lambda: patch.object(
            Producers, "forgotten_id_max", property(lambda self: ID_MAX, lambda self, _: None), create=True
        ),
        kinds=("bad_weather", "kill", "expire_session"),
        has_pipelining=True,
    ),
    "idle partitions lose their followers": Mutant(
        "a follower that had all of an idle partition counts as behind until the next write",
        _patched(progress.Progress, "leader_moves_on", lambda self, leader_end, now: None),
        kinds=("idle",),
        fault_every_s=0.3,
    ),
    "manifest fence off": Mutant(
        "a leader that was replaced goes on shipping",
        _manifest_fence_off,
        kinds=("pause", "bad_bucket", "cut_from_store", "expire_session"),
        fault_every_s=0.3,
    ),
    "local delete before manifest": Mutant(
        "what is sealed may leave the disk before the store has it",
        _patched(tier.Tier, "end_that_may_go", lambda self: self._hosted.log.log.sealed_end),
    ),
    "a disk's start taken for the log's": Mutant(
        "a follower that starts at its leader's local log start forgets the records in the store",
        _patched(ReplicaLog, "restart", _restart_at_its_own_start),
        kinds=("lose_disk", "kill", "lose_power", "reassign", "isolate"),
        fault_every_s=0.3,
    ),
    "a leader that cannot read leads on": Mutant(
        "a leader whose disk fails reads of records keeps the leadership, though another replica may lead",
        _patched(SteppedRepairs, "_leave", lambda self, replica: replica.core is None),
        rules=GROUP,
        kinds=("read_error", "kill", "lose_power"),
        fault_every_s=0.3,
    ),
    "permanent refusals by the clock": Mutant(
        "a leader in contact with the store refuses a position above its high watermark permanently, without a check",
        _patched(hosted.Hosted, "_refuse_above", _refuse_by_the_clock),
        kinds=("pause", "expire_session", "drain", "late_changes"),
        fault_every_s=0.3,
    ),
    "end reported too early": Mutant(
        "a new leader reports its high watermark before it knows what was read (KIP-207)",
        lambda: patch.object(leader.Leader, "latest_offset", property(lambda self: self.high_watermark)),
    ),
}


def found_by_seed(name: str, seeds: range) -> tuple[int, str] | None:
    """Return the first seed whose run finds the planted bug, and the finding; None if no run finds it."""
    mutant = MUTANTS[name]
    with mutant.plant():
        for seed in seeds:
            outcome = run(seed, mutant.options(seed))
            if outcome.problems:
                return seed, outcome.problems[0]
    return None
