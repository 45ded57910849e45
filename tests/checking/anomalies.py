"""Anomalies planted into what a run leaves of its logs and its object store, each with the findings that it must cause.

A plant changes sound evidence. `group_anomalies.py` and `consumer_anomalies.py` have those of groups and consumers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from crc32c import crc32c

from engine.format import batch as record_batch
from engine.tiering.manifest.manifest import ManifestEntry, append, first_manifest, successor
from replication.cores.partition_state import Member, PartitionState, VersionedState
from tests.checking.checkers import FinalLog, Guarantee, StateChange, check_all, check_values, thrown_out
from tests.checking.history import History, Latest, Polled, Produced, Refused
from tests.checking.tier_checkers import FinalTier, check_tier, left_behind


class Subject(NamedTuple):
    """Sound evidence, its checker, and the plants: each with what its findings begin with. All must be there, and no
    others.
    """

    sound: Callable[[], Any]
    check: Callable[[Any], list[str]]
    planted: dict[Callable[[Any], object], set[str]]


@dataclass
class Logs:
    history: History
    states: list[StateChange]
    logs: list[FinalLog]


VALUES = ("a", "b", "c")
ALL = tuple(enumerate(VALUES))


def batches(values: tuple[str, ...] = VALUES) -> list[bytes]:
    batches_made = []
    for offset, value in enumerate(values):
        batch = record_batch.encode_values([value.encode()], 1)
        record_batch.stamp(batch, offset, 1)
        batches_made.append(bytes(batch))
    return batches_made


def log(node_id: int, values: tuple[str, ...] = VALUES) -> FinalLog:
    return FinalLog("t", node_id, 0, len(values), 0, batches(values), dict(enumerate(values)))


def produced(value: str, offset: int, at: float = 0.0) -> Produced:
    return Produced("p", "t", (value,), "all", at, "ok", "", offset, at + 0.5)


def state(version: int, epoch: int = 1, leader: int = 1, in_sync: int = 2) -> StateChange:
    members = (Member(1, 1), Member(2, 2))
    return 0.0, "t", VersionedState(PartitionState((1, 2), members[leader - 1], epoch, members[:in_sync]), version)


def sound_logs() -> Logs:
    history = History(
        produced=[produced(value, offset, at=offset) for offset, value in ALL],
        polled=[
            Polled("c", "t", 1, 0, ALL, 0, 3, 9.0),
            Polled("full read", "t", 1, 0, ALL, 0, 3, 9.0, is_full_read=True),
        ],
        latest=[Latest("c", "t", 3, 3, 9.0)],
        watermarks=[("t", 1, 1, 1), ("t", 1, 1, 3)],
    )
    return Logs(history, [state(0), state(1)], [log(1), log(2)])


def check_logs(run: Logs) -> list[str]:
    return check_all(run.history, run.states, run.logs, Guarantee()) + thrown_out(run.states)


def lost(run: Logs) -> None:
    run.history.produced.append(produced("d", 3, at=3))


def lost_at_an_unknown_offset(run: Logs) -> None:
    run.history.produced.append(produced("d", -1, at=3))


def unseen(run: Logs) -> None:
    run.history.polled[1] = replace(run.history.polled[1], records=ALL[:2])


def unexplained_deletion(run: Logs) -> None:
    run.logs[1].log_start = 1


def aborted_read(run: Logs) -> None:
    run.history.produced.append(Produced("p", "t", ("b",), "all", 0.0, "fail", "not_leader", -1, 0.1))


def duplicate(run: Logs) -> None:
    run.logs[:] = [log(node_id, ("a", "b", "c", "b")) for node_id in (1, 2)]


def duplicate_in_another_partition(run: Logs) -> None:
    run.logs.append(FinalLog("u", 1, 0, 1, records={0: "b"}))


def invented(run: Logs) -> None:
    run.logs[:] = [log(node_id, ("a", "b", "c", "ab")) for node_id in (1, 2)]


def inconsistent(run: Logs) -> None:
    run.history.polled.append(Polled("d", "t", 2, 1, ((1, "a"),), 0, 3, 9.0))


def skip(run: Logs) -> None:
    run.history.polled.append(Polled("d", "t", 2, 0, (ALL[0], ALL[2]), 0, 3, 9.0))


def given_twice(run: Logs) -> None:
    run.history.polled.append(Polled("d", "t", 2, 0, (ALL[0], ALL[1], ALL[1], ALL[2]), 0, 3, 9.0))


def given_in_disorder(run: Logs) -> None:
    run.history.polled.append(Polled("d", "t", 2, 0, (ALL[1], ALL[0], ALL[2]), 0, 3, 9.0))


def uncommitted(run: Logs) -> None:
    run.history.polled.append(Polled("d", "t", 2, 2, (ALL[2],), 0, 2, 9.0))


def end_went_back(run: Logs) -> None:
    run.history.latest.append(Latest("c", "t", 2, 3, 9.0))


def stored_late(run: Logs) -> None:
    run.history.produced[0] = replace(run.history.produced[0], invoked_at=50.0, done_at=50.5)


def out_of_sequence(run: Logs) -> None:
    run.history.produced.reverse()


def dirty_read(run: Logs) -> None:
    run.history.produced.append(Produced("q", "t", ("z",)))
    run.history.polled.append(Polled("d", "t", 2, 3, ((3, "z"),), 0, 4, 9.0))


def replicas_differ(run: Logs) -> None:
    record_batch.stamp(changed := bytearray(run.logs[1].batches[1]), 1, 7)
    run.logs[1].batches[1] = bytes(changed)


def watermark_back(run: Logs) -> None:
    run.history.watermarks.append(("t", 1, 1, 2))


def epoch_same(run: Logs) -> None:
    run.states.append(state(2, epoch=1, leader=2))


def version_back(run: Logs) -> None:
    run.states.append(state(1))


def thrown_out_for_nothing(run: Logs) -> None:
    run.states.append(state(2, in_sync=1))


def wrong_refusal(run: Logs) -> None:
    run.history.refused.append(Refused("c", "t", 2, 3, 9.5))


def refusal_of_what_was_acknowledged(run: Logs) -> None:
    del run.history.polled[0]
    run.history.refused.append(Refused("c", "t", 2, 3, 2.6))


def cut_below_watermark(run: Logs) -> None:
    run.history.cuts_below_watermark.append("node 2 cut below its high watermark")


def gap_of_oldest(run: Logs) -> None:
    run.history.gaps_of_oldest.append("q0-1.0 of producer 1001")


LOGS = Subject(
    sound_logs,
    check_logs,
    {
        lost: {"C1 lost", "C2 unseen"},
        lost_at_an_unknown_offset: {"C1 lost"},
        unseen: {"C2 unseen"},
        unexplained_deletion: {"C1 unexplained deletion"},
        aborted_read: {"C3 aborted read"},
        duplicate: {"C4 duplicate"},
        duplicate_in_another_partition: {"C4 duplicate"},
        inconsistent: {"C5 inconsistent", "C8 dirty read"},
        skip: {"C6 skip"},
        given_twice: {"C6 skip"},
        given_in_disorder: {"C6 skip"},
        uncommitted: {"C6 uncommitted"},
        end_went_back: {"C6 end went back"},
        stored_late: {"C7 order"},
        dirty_read: {"C8 dirty read"},
        replicas_differ: {"C9 replicas differ"},
        watermark_back: {"C10 high watermark of t on node 1 went back"},
        epoch_same: {"C10 leader epoch of t did not grow"},
        version_back: {"C10 partition epoch of t went back"},
        out_of_sequence: {"C11 order"},
        invented: {"C12 invented"},
        wrong_refusal: {"C15 wrong refusal"},
        refusal_of_what_was_acknowledged: {"C15 wrong refusal"},
        cut_below_watermark: {"node 2 cut below its high watermark"},
        gap_of_oldest: {"C17 a gap before the oldest"},
        thrown_out_for_nothing: {"thrown out: [Member(node_id=2"},
    },
)


@dataclass
class Values:
    history: History
    values: dict[str, list[str]]


def sound_values() -> Values:
    """Two producers, one of them with an append in flight while the other's was sent, and appends of every outcome."""
    history = History(
        [
            Produced("a", "0", ["a1", "a2"], "all", 10, "ok", "", 0, 20),
            Produced("b", "0", ["b1"], "all", 15, "ok", "", 3, 40),
            Produced("a", "0", ["a3"], "all", 25, "ok", "", 2, 30),
            Produced("b", "0", ["b2"], "all", 41, "info", "", -1, 50),
            Produced("b", "0", ["b3"], "all", 51, "fail", "", -1, 60),
            Produced("a", "1", ["a4"], "all", 41, "ok", "", -1, 60),
        ]
    )
    return Values(history, {"0": ["a1", "a2", "a3", "b1"], "1": ["a4"]})


def nowhere(run: Values) -> None:
    run.values["1"].clear()


def stored_again(run: Values) -> None:
    run.values["0"].append("a1")


def stored_again_elsewhere(run: Values) -> None:
    run.values["1"].append("a1")


def at_unknown_offsets(run: Values, *values: str) -> None:
    """Store these values in partition 0; the acknowledgements name no offsets."""
    for write in run.history.produced:
        write.partition, write.base_offset = "0", -1
    run.values.update({"0": list(values), "1": []})


def before_its_turn(run: Values) -> None:
    at_unknown_offsets(run, "a4", "a1", "a2", "a3", "b1")


def unknown_before_its_turn(run: Values) -> None:
    at_unknown_offsets(run, "a1", "a2", "a3", "b2", "b1", "a4")


def reversed_within_a_batch(run: Values) -> None:
    at_unknown_offsets(run, "a2", "a1", "a3", "b1", "a4")


def refused_and_stored(run: Values) -> None:
    run.values["0"].append("b3")


def misplaced(run: Values) -> None:
    run.history.produced[1].base_offset = 4


def of_nobody(run: Values) -> None:
    run.values["0"].append("a1a2")


ANY_VALUES = Subject(
    sound_values,
    lambda run: check_values(run.history, run.values),
    {
        nowhere: {"C1 lost"},
        misplaced: {"C1 lost"},
        refused_and_stored: {"C3 aborted read"},
        stored_again: {"C4 duplicate"},
        stored_again_elsewhere: {"C4 duplicate", "C11 order"},
        before_its_turn: {"C11 order"},
        unknown_before_its_turn: {"C11 order"},
        reversed_within_a_batch: {"C11 order"},
        of_nobody: {"C12 invented"},
    },
)

PREFIX = "sim/t/id/0/"


@dataclass
class Stored:
    tier: FinalTier
    leader: FinalLog


def entry(offset: int, data: bytes) -> ManifestEntry:
    key, aux_key = f"{PREFIX}{offset}.log", f"{PREFIX}{offset}.aux"
    return ManifestEntry(offset, offset + 1, ((1, offset),), 1, 1, len(data), crc32c(data), 1, key, aux_key)


def sound_store() -> Stored:
    stored = batches()[:2]
    roots = [first_manifest(PREFIX, 1, "w", 0)]
    objects = {}
    for offset, data in enumerate(stored):
        roots.append(append(successor(roots[-1], 1, "w"), entry(offset, data)))
        objects |= {f"{PREFIX}{offset}.log": data, f"{PREFIX}{offset}.aux": b"aux"}
    leader = FinalLog("t", 1, 0, 3, 2, batches()[2:], {})
    return Stored(FinalTier("t", roots, roots[-1], objects, list(stored)), leader)


def check_store(run: Stored) -> list[str]:
    return check_tier(run.tier, run.leader, 0, is_one_history=True) + left_behind(run.tier)


def missing(run: Stored) -> None:
    del run.tier.objects[f"{PREFIX}1.log"]


def no_aux(run: Stored) -> None:
    del run.tier.objects[f"{PREFIX}1.aux"]


def changed(run: Stored) -> None:
    run.tier.objects[f"{PREFIX}1.log"] = run.tier.objects[f"{PREFIX}1.log"][:-1] + b"?"


def other_offsets(run: Stored) -> None:
    data = run.tier.objects[f"{PREFIX}0.log"]
    run.tier.objects[f"{PREFIX}1.log"] = data
    changed = replace(run.tier.newest.entries[1], size_bytes=len(data), crc32c=crc32c(data))
    run.tier.newest = replace(run.tier.newest, entries=(run.tier.newest.entries[0], changed))


def zombie(run: Stored) -> None:
    roots = run.tier.roots
    roots[1:1] = [replace(roots[0], generation=2, leader_epoch=5)]
    roots[2:] = [replace(root, generation=root.generation + 1) for root in roots[2:]]


def second_of_a_generation(run: Stored) -> None:
    run.tier.roots.append(run.tier.roots[-1])


def end_of_the_store_went_back(run: Stored) -> None:
    run.tier.roots.append(replace(run.tier.roots[-1], generation=4, entries=run.tier.roots[-1].entries[:1]))


def gap(run: Stored) -> None:
    run.leader.local_log_start = 3


def other_record(run: Stored) -> None:
    run.tier.batches[1] = run.tier.batches[1][:-1] + b"?"
    run.leader.batches.insert(0, batches()[1])


def orphan(run: Stored) -> None:
    run.tier.objects[f"{PREFIX}7.log"] = b"nobody's"


TIER = Subject(
    sound_store,
    check_store,
    {
        missing: {"C13 missing"},
        no_aux: {"C13 missing"},
        changed: {"C13 changed"},
        other_offsets: {"C13 offsets"},
        zombie: {"C13 not fenced"},
        second_of_a_generation: {"C13 chain"},
        end_of_the_store_went_back: {"C13 end"},
        gap: {"C13 gap"},
        other_record: {"C13 differs"},
        orphan: {"C13 orphan"},
    },
)
