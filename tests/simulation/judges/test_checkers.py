"""Every checker finds its anomaly in an otherwise good history, and nothing in the good one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.format import batch as record_batch
from replication.cores.partition_state import Member, PartitionState, VersionedState
from tests.simulation.judges.checkers import FinalLog, Guarantee, check_all, thrown_out
from tests.simulation.judges.history import History, Latest, Polled, Produced, Refused

VALUES = ("a", "b", "c")


def batches(values: tuple[str, ...] = VALUES) -> list[bytes]:
    found = []
    for offset, value in enumerate(values):
        batch = record_batch.encode_values([value.encode()], 1)
        record_batch.stamp(batch, offset, 1)
        found.append(bytes(batch))
    return found


def log(node_id: int, values: tuple[str, ...] = VALUES) -> FinalLog:
    return FinalLog("t", node_id, 0, len(values), 0, batches(values), dict(enumerate(values)))


def produced(value: str, offset: int, outcome: str = "ok", at: float = 0.0) -> Produced:
    return Produced("p", "t", (value,), "all", at, outcome, "", offset, at + 0.5)


def state(version: int, epoch: int = 1, leader: int = 1) -> tuple[float, str, VersionedState]:
    members = (Member(1, 1), Member(2, 2))
    return 0.0, "t", VersionedState(PartitionState((1, 2), members[leader - 1], epoch, members), version)


def good() -> tuple[History, list, list[FinalLog]]:
    history = History(
        produced=[produced(value, offset, at=offset) for offset, value in enumerate(VALUES)],
        polled=[
            Polled("c", "t", 1, 0, tuple(enumerate(VALUES)), 0, 3, 9.0),
            Polled("full read", "t", 1, 0, tuple(enumerate(VALUES)), 0, 3, 9.0, is_full_read=True),
        ],
        latest=[Latest("c", "t", 3, 3, 9.0)],
        watermarks=[("t", 1, 1, 1), ("t", 1, 1, 3)],
    )
    return history, [state(0), state(1)], [log(1), log(2)]


def problems(history: History, states: list, logs: list[FinalLog]) -> list[str]:
    return check_all(history, states, logs, Guarantee())


def test_a_good_history_is_good():
    assert problems(*good()) == []


def plant_lost(history, states, logs):
    history.produced.append(produced("d", 3, at=3))


def plant_unseen(history, states, logs):
    history.polled[1] = replace(history.polled[1], records=tuple(enumerate(VALUES))[:2])


def plant_unexplained_deletion(history, states, logs):
    logs[1].log_start = 1


def plant_aborted_read(history, states, logs):
    history.produced.append(Produced("p", "t", ("b",), "all", 0.0, "fail", "not_leader", -1, 0.1))


def plant_duplicate(history, states, logs):
    logs[:] = [log(1, ("a", "b", "c", "b"))]


def plant_inconsistent(history, states, logs):
    history.polled.append(Polled("d", "t", 2, 1, ((1, "x"),), 0, 3, 9.0))


def plant_skip(history, states, logs):
    history.polled.append(Polled("d", "t", 2, 0, ((0, "a"), (2, "c")), 0, 3, 9.0))


def plant_uncommitted(history, states, logs):
    history.polled.append(Polled("d", "t", 2, 2, ((2, "c"),), 0, 2, 9.0))


def plant_end_went_back(history, states, logs):
    history.latest.append(Latest("c", "t", 2, 3, 9.0))


def plant_order(history, states, logs):
    history.produced[0] = replace(history.produced[0], invoked_at=50.0, done_at=50.5)


def plant_out_of_sequence(history, states, logs):
    history.produced.reverse()


def plant_dirty_read(history, states, logs):
    history.polled.append(Polled("d", "t", 2, 3, ((3, "z"),), 0, 4, 9.0))


def plant_replicas_differ(history, states, logs):
    record_batch.stamp(changed := bytearray(logs[1].batches[1]), 1, 7)
    logs[1].batches[1] = bytes(changed)


def plant_watermark_back(history, states, logs):
    history.watermarks.append(("t", 1, 1, 2))


def plant_epoch_same(history, states, logs):
    states.append(state(2, epoch=1, leader=2))


def plant_version_back(history, states, logs):
    states.append(state(1))


def plant_wrong_refusal(history, states, logs):
    history.refused.append(Refused("c", "t", 2, 3, 9.5))


def plant_refusal_of_what_was_acknowledged(history, states, logs):
    history.polled.clear()
    history.refused.append(Refused("c", "t", 2, 3, 2.6))


def plant_cut_below_watermark(history, states, logs):
    history.cuts_below_watermark.append("node 2 cut below its high watermark")


def plant_gap_of_oldest(history, states, logs):
    history.gaps_of_oldest.append("q0-1.0 of producer 1001")


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (plant_lost, "C1"),
        (plant_unseen, "C2"),
        (plant_unexplained_deletion, "C1 unexplained deletion"),
        (plant_aborted_read, "C3"),
        (plant_duplicate, "C4"),
        (plant_inconsistent, "C5"),
        (plant_skip, "C6 skip"),
        (plant_uncommitted, "C6 uncommitted"),
        (plant_end_went_back, "C6 end"),
        (plant_order, "C7"),
        (plant_out_of_sequence, "C11"),
        (plant_dirty_read, "C8"),
        (plant_replicas_differ, "C9"),
        (plant_watermark_back, "C10 high watermark"),
        (plant_epoch_same, "C10 leader epoch"),
        (plant_version_back, "C10 partition epoch"),
        (plant_wrong_refusal, "C15 wrong refusal"),
        (plant_refusal_of_what_was_acknowledged, "C15 wrong refusal"),
        (plant_cut_below_watermark, "below its high watermark"),
        (plant_gap_of_oldest, "C17"),
    ],
    ids=lambda value: value.__name__.removeprefix("plant_") if callable(value) else "",
)
def test_a_planted_anomaly_is_found(plant, says):
    history, states, logs = good()
    plant(history, states, logs)
    assert any(says in problem for problem in problems(history, states, logs))


def test_a_refusal_is_right_above_what_was_committed_when_it_was_asked_for():
    history, states, logs = good()
    history.polled = history.polled[1:]
    history.refused += [Refused("c", "t", 2, 4, 9.5), Refused("c", "t", 2, 3, 2.4)]
    assert problems(history, states, logs) == []


def test_who_leaves_an_in_sync_set_for_nothing_is_found():
    members = (Member(1, 1), Member(2, 2))
    smaller = VersionedState(PartitionState((1, 2), members[0], 1, members[:1]), 1)
    assert thrown_out([state(0), state(1)]) == []
    assert thrown_out([state(0), (1.0, "t", smaller)])[0].startswith("thrown out: [Member(node_id=2")
