"""The window of a partition: order as asked for, nothing skipped, nothing committed before it is finished."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.subscriptions.core.window import Batch, Item, Window

KEYS = st.sampled_from([b"a", b"b", b"c", None])


class Deliveries(RuleBasedStateMachine):
    """Reads, sends, fails and finishes in any order; a dumb list says what must be."""

    window_kind: type[Window[int]] = Window

    @initialize(order=st.sampled_from(["key", "partition", "none"]))
    def begin(self, order):
        self.order, self.now, self.end = order, 0, 0
        self.window = self.window_kind(order, 0, 20, 1000)
        self.keys: list[bytes | None] = []
        self.sending: list[Batch[int]] = []
        self.finished: list[int] = []

    @precondition(lambda self: self.window.has_room)
    @rule(keys=st.lists(KEYS, max_size=8), gap=st.integers(0, 2))
    def read(self, keys, gap):
        items = [Item(self.end + at, key, 1, at) for at, key in enumerate(keys)]
        self.keys += [*keys, *[b"filtered"] * gap]
        self.finished += range(self.end + len(keys), self.end + len(keys) + gap)
        self.end += len(keys) + gap
        self.window.add(items, self.end)

    @rule(most=st.integers(1, 5))
    def send(self, most):
        batch = self.window.take(self.now, most)
        if batch is None:
            return
        assert len(batch.items) <= max(most, 5)
        offsets = [item.offset for item in batch.items]
        assert offsets == sorted(offsets)
        for offset in offsets:
            before = [at for at in range(offset) if self.same_lane(at, offset) and at not in self.finished]
            assert set(before) <= set(offsets), "an earlier record of its lane is not finished"
        assert not {item.offset for one in self.sending for item in one.items} & set(offsets)
        self.sending.append(batch)

    @precondition(lambda self: self.sending)
    @rule(data=st.data(), pause=st.integers(0, 3))
    def fail(self, data, pause):
        batch = self.sending.pop(data.draw(st.integers(0, len(self.sending) - 1)))
        self.window.fail(batch, self.now + pause)

    @precondition(lambda self: self.sending)
    @rule(data=st.data())
    def finish(self, data):
        batch = self.sending.pop(data.draw(st.integers(0, len(self.sending) - 1)))
        self.window.finish(batch)
        self.finished += [item.offset for item in batch.items]

    @rule()
    def wait(self):
        self.now += 1

    @invariant()
    def nothing_is_committed_that_is_not_finished(self):
        assert set(range(self.window.committed)) <= set(self.finished)
        missing = set(range(self.end)) - set(self.finished)
        assert self.window.committed == min(missing, default=self.end) or self.window.committed <= min(missing)

    def teardown(self):
        if not hasattr(self, "window"):
            return
        for _ in range(1000):
            self.now += 10
            while (batch := self.window.take(self.now, 3)) is not None:
                self.sending.append(batch)
            if not self.sending:
                break
            self.finish_all()
        assert sorted(self.finished) == list(range(self.end)), "a record was skipped or finished twice"
        assert self.window.committed == self.end

    def finish_all(self):
        for batch in self.sending:
            self.window.finish(batch)
            self.finished += [item.offset for item in batch.items]
        self.sending = []

    def same_lane(self, one: int, other: int) -> bool:
        if self.order == "none":
            return False
        return self.order == "partition" or (self.keys[one] is not None and self.keys[one] == self.keys[other])


QUICK = settings(max_examples=400, database=None, deadline=None, phases=[Phase.generate], derandomize=True)
TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class ForgetsBusyKeys(Window[int]):
    """Frees the keys of a failed batch."""

    def fail(self, batch, due_ms):
        super().fail(batch, due_ms)
        self._busy.clear()


class CommitsWhatIsRead(Window[int]):
    """Commits what was read."""

    @property
    def committed(self):
        return self.next_offset


class DropsWhatFails(Window[int]):
    """Takes a failed batch for finished."""

    def fail(self, batch, due_ms):
        self.finish(batch)


class SkipsOverHeld(Window[int]):
    """Sends a later record of a key while an earlier one is held."""

    def take(self, now_ms, records_max):
        batch = super().take(now_ms, records_max)
        if batch is None and self._fresh and self._unfinished:
            self._busy.clear()
            return super().take(now_ms, records_max)
        return batch


@pytest.mark.parametrize("mutant", [ForgetsBusyKeys, CommitsWhatIsRead, DropsWhatFails, SkipsOverHeld])
def test_a_planted_fault_is_found(mutant):
    class Planted(Deliveries):
        window_kind = mutant

    with pytest.raises(BaseException):  # noqa: B017 - an assertion, or a group of them
        run_state_machine_as_test(Planted, settings=QUICK)
