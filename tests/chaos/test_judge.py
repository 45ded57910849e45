"""What a verdict adds to the checkers of tests/checking: counts, pauses, streams and kept files."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.format import batch as record_batch
from tests.chaos.clients.final import read_files
from tests.chaos.clients.streams import Streamed
from tests.chaos.judge import Verdict, judge, kept_findings, pauses
from tests.chaos.machines.cluster import NotHealthy
from tests.chaos.run import errors_in
from tests.checking.checkers import FinalLog
from tests.checking.history import History, Polled, Produced

VALUES = ("a", "b", "c")


def batch(value: str, offset: int) -> bytes:
    made = record_batch.encode_values([f'"{value}"'.encode()], 1)
    record_batch.stamp(made, offset, 1)
    return bytes(made)


def log(node_id: int, values: tuple[str, ...] = VALUES) -> FinalLog:
    batches = [batch(value, offset) for offset, value in enumerate(values)]
    return FinalLog("t/0", node_id, 0, len(values), batches=batches, records=dict(enumerate(values)))


def produced(value: str, offset: int, outcome: str = "ok", acks: str = "all", at: float = 0.0) -> Produced:
    return Produced("p", "t/0", (value,), acks, at, outcome, "", offset, at + 0.1)


def sound() -> tuple[History, list[FinalLog]]:
    history = History(
        produced=[produced(value, offset, at=offset / 5) for offset, value in enumerate(VALUES)],
        polled=[Polled("c", "t/0", 1, 0, tuple(enumerate(VALUES)), 0, 3, 9.0, is_full_read=True)],
    )
    return history, [log(1), log(2), log(3)]


def verdict_over(history: History, logs: list[FinalLog], *streams: Streamed) -> Verdict:
    verdict = Verdict("kill", 1, 60.0, "abc")
    judge(verdict, history, logs, [0.3], streams)
    return verdict


def test_a_sound_run_has_no_findings():
    verdict = verdict_over(*sound())
    assert verdict.findings == []
    assert (verdict.acknowledged, verdict.lost, verdict.duplicates, verdict.others) == (3, 0, 0, 0)
    assert verdict.pauses_s == [0.0]


def plant_loss(history: History, logs: list[FinalLog]) -> None:
    history.produced.append(produced("d", 3, at=2))


def plant_duplicate(history: History, logs: list[FinalLog]) -> None:
    logs[:] = [log(node, (*VALUES, "a")) for node in (1, 2, 3)]


def streamed(history: History, *given: tuple[int, str], position: int = 3) -> Streamed:
    """Return a stream with these events, in the form of tests/chaos/clients/streams.py; it continues at `position`."""
    expected = 0
    for offset, value in given:
        history.polled.append(Polled("stream", "t/0", 1, expected, ((offset, value),), 0, offset + 1, 5.0))
        expected = offset + 1
    return Streamed("stream", "t", {0: position}, len(given))


def test_a_stream_that_was_given_everything_has_no_findings():
    history, logs = sound()
    verdict = verdict_over(history, logs, streamed(history, *enumerate(VALUES)))
    assert (verdict.findings, verdict.streamed) == ([], 3)


def test_a_stream_that_ended_or_never_resumed_or_sent_a_wrong_id_is_found():
    history, logs = sound()
    ended, stalled, wrong = (streamed(history, position=position) for position in (3, 2, 3))
    ended.ended = "416 offset_above_high_watermark at 3 by node 2"
    wrong.wrong_ids.append("got 2 instead of 3")
    assert verdict_over(history, logs, ended, stalled, wrong).findings == [
        "C16 stream ended permanently: stream: 416 offset_above_high_watermark at 3 by node 2",
        "C16 stream never resumed: stream is at 2 of 3 in partition 0",
        "C16 wrong id: stream: got 2 instead of 3",
    ]


def test_old_reads_are_counted_and_are_no_findings():
    """At 12.0 a node knew of 2 records; a reader had seen 3 at 9.0."""
    history, logs = sound()
    history.polled.append(Polled("simple", "t/0", 2, 2, (), 0, 2, 12.5, asked_at=12.0))
    history.polled.append(Polled("simple", "t/0", 2, 2, (), 0, 2, 9.5, asked_at=8.9))
    history.polled.append(Polled("simple", "t/0", 1, 3, (), 0, 3, 13.5, asked_at=13.0))
    verdict = verdict_over(history, logs)
    assert (verdict.reads, verdict.old_reads, verdict.oldest_read_s) == (3, 1, pytest.approx(3.0))
    assert verdict.findings == []


def test_a_loss_and_a_duplicate_are_counted_as_such():
    history, logs = sound()
    plant_loss(history, logs)
    assert (verdict_over(history, logs).lost, verdict_over(history, logs).others) == (1, 0)
    history, logs = sound()
    plant_duplicate(history, logs)
    assert verdict_over(history, logs).duplicates == 1, "one value, though on every replica"


def test_losses_of_acks_1_are_reported_and_are_not_findings():
    history, logs = sound()
    history.produced += [produced("x", 7, acks="1"), produced("a2", 8, "info", acks="1")]
    verdict = verdict_over(history, logs)
    assert (verdict.acknowledged_acks_1, verdict.lost_acks_1, verdict.unknown, verdict.findings) == (1, 1, 1, [])


def test_a_partition_in_which_nothing_was_acknowledged_is_a_finding():
    history, logs = sound()
    logs.append(FinalLog("t/1", 1, 0, 0))
    assert verdict_over(history, logs).findings == ["C14 no record was acknowledged in t/1"]


def acknowledged_at(*times: float, partition: str = "t/0") -> list[Produced]:
    return [Produced("p", partition, (str(at),), "all", at - 0.1, "ok", "", 0, at) for at in times]


def test_the_pause_of_an_injection_is_the_longest_of_any_partition():
    even = acknowledged_at(*(n / 4 for n in range(100)), partition="t/1")
    assert pauses(acknowledged_at(1, 1.2, 5, 5.2) + even, [1.1]) == [pytest.approx(3.8)], (
        "which client continued does not matter"
    )
    assert pauses(even, [1.1]) == [0.0]


def test_a_pause_belongs_to_the_first_injection_in_it_else_to_the_last_before_it():
    assert pauses(acknowledged_at(1, 5), [2, 4]) == [4, 0]
    assert pauses(acknowledged_at(3, 3.4, 8), [2, 9]) == [pytest.approx(4.6), 0]
    assert pauses(acknowledged_at(1, 5), [6]) == [0.0], "before anything was done"


def test_what_was_refused_or_unknown_ends_no_pause():
    history = acknowledged_at(1, 5)
    history += [Produced("p", "t/0", ("x",), "all", 3, outcome, "", -1, 3.1) for outcome in ("fail", "info")]
    history.append(Produced("p", "t/0", ("y",), "1", 3, "ok", "", 0, 3.1))
    assert pauses(history, [2]) == [4]


def test_a_log_file_that_vanishes_or_shrinks_without_a_store_is_found():
    first, second = Path("n1/0.log"), Path("n2/0.log")
    before = {first: 10, second: 20}
    assert kept_findings(before, {first: 10, second: 25, Path("n2/9.log"): 1}) == []
    assert kept_findings(before, {second: 20}) == ["K1 data is gone: n1/0.log had 10 bytes"]
    assert kept_findings(before, {first: 9, second: 20}) == ["K1 data is gone: n1/0.log has 9 of 10 bytes"]


def test_errors_of_the_load_are_findings_however_deep_their_groups_are():
    first, two = AssertionError("one"), NotHealthy("two")
    assert errors_in(ExceptionGroup("", [first, ExceptionGroup("", [two])])) == [first, two]


def test_files_are_read_up_to_the_watermark_across_segments(tmp_path):
    (tmp_path / "00000000000000000000.log").write_bytes(batch("a", 0) + batch("b", 1))
    (tmp_path / "00000000000000000002.log").write_bytes(batch("c", 2) + batch("d", 3) + b"torn" * 20)
    read = read_files(tmp_path, "t/0", 2, 3)
    assert read.records == dict(enumerate(VALUES))
    assert read.batches == log(2).batches
