"""Appends get the same answers and places whether they share a group or come one after another."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.format import batch
from engine.format.control_batch import encode_fence
from engine.format.keyed_batch import KeyEntry, RequestEntry, SequenceEntry, stored_entry, stored_rows
from engine.producers.append_validator import AppendValidator
from engine.producers.appends import Append, AppendConditions, SharedRequests
from engine.producers.key_window import ROW
from engine.topic_settings import TopicSettings

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


def entry_of(append: Append) -> KeyEntry | SequenceEntry | None:
    """Return the entry of an append that may share a batch."""
    header = batch.read_header(append.batch)
    if header.producer_id >= 0:
        return SequenceEntry(header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp)
    return None if append.conditions is None else append.conditions.key


def shared(appends: list[Append]) -> Append:
    """Return the append of a batch that these share."""
    entries, rows = [], []
    for one in appends:
        count = batch.read_header(one.batch).record_count
        entries.append(RequestEntry(entry_of(one), len(rows), count))
        rows += ROWS[:count]
    data = batch.encode(rows, entry=stored_rows(entries), sequenced=(-1, -1, len(entries)))
    requests = SharedRequests(entries, lambda: [(one.batch, one.conditions) for one in appends])
    return Append(data, None, False, requests=requests)


def grouped(appends: list[Append], joins: list[bool]) -> list[list[Append]]:
    """Return the appends in runs that share a batch: each with the one before it if `joins` is true and both may."""
    runs: list[list[Append]] = []
    for append, is_joined in zip(appends, joins, strict=True):
        if is_joined and runs and entry_of(append) and entry_of(runs[-1][0]):
            runs[-1].append(append)
        else:
            runs.append([append])
    return runs


def hashes_of(run: list[Append]) -> list[bytes]:
    return [one.conditions.key.key_hash for one in run if one.conditions is not None and one.conditions.key is not None]


def answer(one: Append, offset: int, count: int, key_kept_ms: int | None) -> object:
    if isinstance(one.verdict, EngineError):
        return type(one.verdict), str(one.verdict), one.verdict.members
    return one.verdict or (offset, count, key_kept_ms if one.conditions and one.conditions.key else None)


def answers(calls: list[tuple], ends: list[int], joins: list[bool]) -> list[object]:
    """Return the answer to each call, and in the end the state; `ends` are where groups end."""
    validator, log_end, found, log = AppendValidator("t/0"), 0, [], []
    for begin, end in pairwise([0, *ends, len(calls)]):
        group = [made(call) for call in calls[begin:end]]
        if not group:
            continue
        runs = grouped(group, joins[begin:end])
        appends = [run[0] if len(run) == 1 else shared(run) for run in runs]
        for append in appends:
            validator.expect(append)
        assert all(validator.keys.knows(key_hash) for run in runs for key_hash in hashes_of(run))
        admitted = validator.admit(appends, log_end, NOW_MS)
        offset = log_end
        for one in admitted:
            batch.stamp(one.batch, offset, 1)
            log.append((header := batch.read_header(one.batch), one.batch))
            offset = header.next_offset
        for append, run in zip(appends, runs, strict=True):
            for one in append.parts or (run if append.requests is not None else [append]):
                count = batch.read_header(one.batch).last_offset_delta + 1
                key_kept_ms = one.key_kept_ms if one.key_kept_ms is not None else append.key_kept_ms
                found.append(answer(one, log_end, count, key_kept_ms))
                log_end += 0 if one.verdict is not None else count
        assert log_end == offset
        validator.commit_staged(TopicSettings(), [])
        assert "noted=0, expected=0" in repr(validator.keys)
    state = state_of(validator)
    follower = AppendValidator("t/0")
    follower.apply_copied(log, TopicSettings(), NOW_MS, [])
    assert [*map(without_age, state_of(follower))] == [*map(without_age, state)], "followers know what the leader knows"
    return [*found, log_end, *state, validator.counts]


def state_of(validator: AppendValidator) -> list[object]:
    producers = [(one, tuple(state.batches)) for one, state in sorted(validator.producers.items())]
    return [producers, dict(validator.keys.window.items()), validator.fencing.present.token]


def without_age(part: object) -> object:
    return {key: one._replace(since_ms=None) for key, one in part.items()} if isinstance(part, dict) else part


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


ALONE, SHARED = [False] * len(REPEATS), [True] * len(REPEATS)


@given(
    st.lists(CALLS, max_size=14),
    st.lists(st.integers(0, 14), max_size=5),
    st.lists(st.booleans(), min_size=len(REPEATS), max_size=len(REPEATS)),
)
@example(REPEATS, [], ALONE)
@example(REPEATS, [3, 7], ALONE)
@example(REPEATS, [], SHARED)
@example([(keyed, 0, 0, 1), (keyed, 1, 0, 2), (sequenced, 0, 0, 0, 1), (sequenced, 0, 0, 1, 2)], [], SHARED)
@example([(keyed, 0, 0, 1), (keyed, 1, 0, 2), (keyed, 2, 0, 2), (keyed, 1, 0, 2)], [2], SHARED)
def test_a_group_answers_as_its_appends_one_by_one_also_where_they_share_batches(calls, ends, joins):
    ends = sorted(min(end, len(calls)) for end in ends)
    assert answers(calls, ends, joins) == answers(calls, list(range(len(calls))), ALONE)


def test_new_requests_share_a_batch_and_a_repeat_parts_it():
    validator = AppendValidator("t/0")
    for calls, parts in (([(0, 0, 1), (1, 0, 2)], 0), ([(2, 0, 1), (1, 0, 2)], 2)):
        [append] = [shared([keyed(*call) for call in calls])]
        validator.admit([append], 10, NOW_MS)
        assert len(append.parts or []) == parts
        validator.commit_staged(TopicSettings(), [])


def test_keys_of_a_batch_are_known_while_it_waits_and_not_after_its_write_has_failed():
    validator = AppendValidator("t/0")
    first, second, alone = shared([keyed(0, 0, 1), keyed(1, 0, 1)]), shared([keyed(2, 0, 1)]), keyed(3, 0, 1)
    for append in (first, second, alone):
        validator.expect(append)
    validator.admit([first], 0, NOW_MS)
    validator.commit_staged(TopicSettings(), [])
    assert [validator.keys.knows(bytes([key]) * 16) for key in range(5)] == [True, True, True, True, False]
    assert "expected=2" in repr(validator.keys)
    found = validator.keys.find(bytes([2]) * 16, NOW_MS)
    assert found.request_hash == bytes(16)
    validator.admit([second, alone], 2, NOW_MS)
    validator.discard_staged()
    assert [validator.keys.knows(bytes([key]) * 16) for key in range(5)] == [True, True, False, False, False]


def test_keys_of_a_queue_that_is_dropped_are_forgotten_and_those_of_the_plan_and_of_later_ones_are_not():
    """A replica that leads no more fails its queue while a group is being written."""
    validator = AppendValidator("t/0")
    batches = [shared([keyed(key, 1, 1), keyed(key + 1, 1, 1)]) for key in (1, 3, 5)]
    validator.expect(batches[0])
    validator.admit([batches[0]], 0, NOW_MS)
    queue = [batches[1], keyed(7, 1, 1)]
    for one in queue:
        validator.expect(one)
    assert validator.drop(queue) == sum(len(one.batch) for one in queue)
    known = [validator.keys.knows(bytes([key]) * 16) for key in range(1, 9)]
    assert known == [True, True, *[False] * 6]
    validator.commit_staged(TopicSettings(), [])
    validator.expect(batches[2])
    assert validator.keys.knows(bytes([5]) * 16), "until it is judged"
    validator.admit([batches[2]], 2, NOW_MS)
    validator.commit_staged(TopicSettings(), [])
    assert repr(validator.keys).endswith("noted=0, expected=0)")


def test_a_batch_with_one_key_twice_is_judged_apart():
    validator = AppendValidator("t/0")
    append = shared([keyed(0, 0, 1), keyed(0, 0, 1), keyed(1, 0, 1)])
    validator.expect(append)
    admitted = validator.admit([append], 0, NOW_MS)
    assert (len(admitted), len(append.parts or [])) == (2, 3)
    validator.commit_staged(TopicSettings(), [])
    assert "KeyWindow(2 in" in repr(validator.keys)
    assert "expected=0" in repr(validator.keys)


def test_a_roll_between_batches_keeps_their_keys_in_the_states_of_their_segments():
    validator = AppendValidator("t/0")
    appends = [
        shared([keyed(0, 0, 2), keyed(1, 0, 1)]),
        keyed(2, 0, 1),
        shared([keyed(3, 0, 1), sequenced(7, 0, 0, 1)]),
    ]
    for append in appends:
        validator.expect(append)
    validator.admit(appends, 0, NOW_MS)
    validator.commit_staged(TopicSettings(), [3, 4])
    states = [len(state.keys) // ROW.size for state in validator.take_states()]
    assert states == [2, 1]
    assert [one.base_offset for _, one in validator.keys.window.items()] == [0, 2, 3, 4]


def test_the_repeats_of_the_example_are_recognised():
    found = answers(REPEATS, [], ALONE)
    assert [type(one) is tuple and type(one[0]) is int for one in found[: len(REPEATS)]] == [
        True, True, False, False, True, True, False, False, True, False, True, True, False, False, True, False, True,
    ]  # fmt: skip
