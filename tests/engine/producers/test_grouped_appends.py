"""Appends get the same answers and places whether they share a group or come one after another."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.format import batch
from engine.format.control_batch import encode_fence
from engine.format.keyed_batch import KeyEntry, stored_entry
from engine.producers.append_validator import Append, AppendConditions, AppendValidator
from engine.settings import TopicSettings

NOW_MS = 1_700_000_000_000
ROWS = [(NOW_MS, None, b"1", []), (NOW_MS, None, b"2", [])]


def keyed(key: int, request: int, records: int) -> Append:
    entry = KeyEntry(bytes([key]) * 16, bytes([request]) * 16, 1, NOW_MS)
    data = batch.encode(ROWS[:records], entry=stored_entry(entry))
    return Append(data, None, False, AppendConditions(key=entry))


def sequenced(producer: int, epoch: int, sequence: int, records: int) -> Append:
    return Append(batch.encode(ROWS[:records], sequenced=(producer, epoch, sequence)), None, False)


def fence(token: str) -> Append:
    return Append(encode_fence(token, NOW_MS), None, False, AppendConditions())


def conditional(token: str | None, end: int | None) -> Append:
    return Append(batch.encode(ROWS[:1]), None, False, AppendConditions(end, token))


def made(call: tuple) -> Append:
    make, *arguments = call
    return make(*arguments)


def answers(calls: list[tuple], ends: list[int]) -> list[object]:
    """Return the answer to each call, and in the end the state; `ends` are where groups end."""
    validator, log_end, found = AppendValidator("t/0"), 0, []
    for begin, end in pairwise([0, *ends, len(calls)]):
        group = [made(call) for call in calls[begin:end]]
        if not group:
            continue
        validator.admit(group, log_end, NOW_MS)
        for append in group:
            if append.verdict is None:
                count = batch.read_header(append.batch).last_offset_delta + 1
                found.append((log_end, count, append.key_kept_ms))
                log_end += count
            elif isinstance(append.verdict, EngineError):
                found.append((type(append.verdict), str(append.verdict), append.verdict.members))
            else:
                found.append(append.verdict)
        validator.written(TopicSettings(), [])
    producers = [(one, tuple(state.batches)) for one, state in sorted(validator.producers.items())]
    keys = dict(validator.keys.window.items())
    return [*found, log_end, producers, keys, validator.fencing.present.token, validator.counts]


CALLS = st.one_of(
    st.tuples(st.just(keyed), st.integers(0, 2), st.integers(0, 1), st.integers(1, 2)),
    st.tuples(st.just(sequenced), st.integers(0, 1), st.integers(0, 2), st.integers(0, 3), st.integers(1, 2)),
    st.tuples(st.just(fence), st.sampled_from(["", "a"])),
    st.tuples(st.just(conditional), st.sampled_from([None, "", "a", "b"]), st.one_of(st.none(), st.integers(0, 4))),
)
REPEATS = [
    (keyed, 0, 0, 1), (keyed, 1, 0, 2), (keyed, 0, 0, 1), (keyed, 1, 1, 1),  # the same key; with another request
    (sequenced, 0, 0, 0, 1), (sequenced, 0, 0, 1, 2), (sequenced, 0, 0, 1, 2), (sequenced, 0, 0, 5, 1),  # repeat, gap
    (sequenced, 0, 1, 0, 1), (sequenced, 0, 0, 3, 1), (sequenced, 0, 1, 1, 1),  # a fenced producer in between
    (fence, "a"), (keyed, 2, 0, 1), (keyed, 0, 0, 1), (conditional, "a", 9), (conditional, "a", 9), (fence, ""),
]  # fmt: skip


@given(st.lists(CALLS, max_size=14), st.lists(st.integers(0, 14), max_size=5))
@example(REPEATS, [])
@example(REPEATS, [3, 7])
def test_a_group_answers_as_its_appends_one_by_one(calls, ends):
    ends = sorted(min(end, len(calls)) for end in ends)
    assert answers(calls, ends) == answers(calls, list(range(len(calls))))


def test_the_repeats_of_the_example_are_recognised():
    found = answers(REPEATS, [])
    assert [type(one) is tuple and type(one[0]) is int for one in found[: len(REPEATS)]] == [
        True, True, False, False, True, True, False, False, True, False, True, True, False, False, True, False, True,
    ]  # fmt: skip
