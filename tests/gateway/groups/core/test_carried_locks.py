"""A refused append ends no lock: the next coordinator of the process takes them over, and undoes what was refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.groups.core import sharing
from gateway.groups.core.carried_locks import carry_locks
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import LockUnknown
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.values import ConfigCall, Now, Row, TopicSize
from gateway.groups.share.values import AcquireCall, Bound, Outcome, SettleCall, Settlement
from tests.gateway.groups.core.coordinators import Topics

TOPICS = Topics({"t": TopicSize("id-t", 1)})
NOW = Now(1000, 1_000_000)


class Life:
    """A coordinator and what its log has. `append` stores the records so far, `refuse` begins the next coordinator."""

    def __init__(self) -> None:
        self.log: dict[bytes, bytes | None] = {}
        self.core = Coordinator(CoordinatorLimits())
        self.unstored: list[object] = []

    def call(self, function: Any, call: Any) -> Any:
        found = function(self.core, call, NOW, TOPICS)
        self.unstored.append(call)
        return found

    def acquire(self, lock: str, count: int = 3) -> list[tuple[int, int]]:
        """Return offset and delivery of each record."""
        call = AcquireCall("q", lock, ("t",), (Bound("t", "id-t", 0, 0, 10),), count, 60_000, lock)
        granted = sharing.acquire(self.core, call, NOW, TOPICS).granted
        return [(offset, one.deliveries) for one in granted for offset in range(one.first, one.last + 1)]

    def settle(self, lock: str, outcome: Outcome, first: int, last: int | None = None) -> int:
        last = first if last is None else last
        wish = Settlement("t", 0, first, last, outcome, 0 if outcome is Outcome.RELEASE else None)
        return int(self.call(sharing.settle, SettleCall("q", lock, (wish,))).settled)

    def append(self) -> None:
        self.log |= {row.key: row.value for row in self.core.take_rows()}
        self.unstored = []

    def refuse(self) -> None:
        before, calls = self.core, self.unstored
        before.take_rows()
        self.core, self.unstored = Coordinator(CoordinatorLimits()), []
        for key, value in self.log.items():
            self.core.replay(Row(key, value))
        self.core.begin(NOW, TOPICS)
        carry_locks(before.groups, calls, self.core)


def begun() -> Life:
    life = Life()
    life.call(Coordinator.configure, ConfigCall("q", {"kind": "share"}))
    life.append()
    return life


def test_a_refused_append_gives_a_locked_record_to_no_other_caller():
    life = begun()
    assert life.acquire("a") == [(0, 1), (1, 1), (2, 1)]
    for _ in range(3):
        life.refuse()
    assert life.acquire("b") == [(3, 1), (4, 1), (5, 1)]
    assert life.acquire("a") == [(0, 1), (1, 1), (2, 1)], "a repeat has what its lock holds"


def test_a_group_that_its_first_acquire_made_goes_on_too():
    life = Life()
    life.acquire("a")
    life.refuse()
    assert life.acquire("b") == [(3, 1), (4, 1), (5, 1)]


@pytest.mark.parametrize("outcome", [Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT])
def test_a_refused_outcome_is_undone_and_its_lock_holds_the_record(outcome):
    life = begun()
    life.acquire("a")
    life.settle("a", Outcome.ACCEPT, 0)
    life.append()
    assert life.settle("a", outcome, 1) == 1
    life.refuse()
    assert life.acquire("b") == [(3, 1), (4, 1), (5, 1)]
    assert life.settle("a", Outcome.ACCEPT, 0, 2) == 3, "once there is room: the stored one again, the others now"


def test_a_record_that_was_given_to_another_stays_with_that_one():
    life = begun()
    life.acquire("a")
    life.settle("a", Outcome.RELEASE, 1)
    assert life.acquire("b", 1) == [(1, 2)]
    life.refuse()
    assert life.settle("b", Outcome.ACCEPT, 1) == 1
    assert life.settle("a", Outcome.ACCEPT, 0) == 1


def test_a_record_that_another_has_finished_since_goes_back_to_that_one():
    life = begun()
    life.acquire("a")
    life.settle("a", Outcome.RELEASE, 1)
    assert life.acquire("b", 1) == [(1, 2)]
    life.settle("b", Outcome.ACCEPT, 1)
    life.refuse()
    assert life.settle("b", Outcome.ACCEPT, 1) == 1


def test_what_was_delivered_before_a_refusal_counts():
    life = begun()
    life.acquire("a")
    life.settle("a", Outcome.RELEASE, 0)
    life.append()
    assert life.acquire("b", 1) == [(0, 2)]
    life.refuse()
    life.settle("b", Outcome.RELEASE, 0)
    assert life.acquire("c", 1) == [(0, 3)]


def test_the_log_has_all_of_it_once_there_is_room():
    life = begun()
    life.acquire("a")
    life.settle("a", Outcome.ACCEPT, 1)
    life.refuse()
    life.settle("a", Outcome.ACCEPT, 0, 1)
    life.append()
    after = Life()
    after.log = life.log
    after.refuse()  # of another process: nothing is carried
    assert after.acquire("z") == [(2, 2), (3, 1), (4, 1)]
    with pytest.raises(LockUnknown):
        after.settle("a", Outcome.ACCEPT, 1)


STEPS = st.tuples(st.sampled_from(["acquire", "accept", "release", "refuse", "append"]), st.integers(0, 9))


@given(st.lists(STEPS))
def test_no_record_has_two_holders_and_no_stored_outcome_comes_back(steps):
    life = begun()
    held: dict[int, str] = {}
    stored: set[int] = set()
    finished: set[int] = set()
    for number, (step, offset) in enumerate(steps):
        if step == "acquire":
            for found, _ in life.acquire(f"{number}", 2):
                assert found not in held, "one holder"
                assert found not in finished
                held[found] = f"{number}"
        elif step == "refuse":
            undone = {one.settlements[0].first: one.lock for one in life.unstored if isinstance(one, SettleCall)}
            life.refuse()
            finished = set(stored)
            held |= {found: by for found, by in undone.items() if found not in held}
        elif step == "append":
            life.append()
            stored = set(finished)
        elif offset in held:
            outcome = Outcome.ACCEPT if step == "accept" else Outcome.RELEASE
            assert life.settle(held[offset], outcome, offset) == 1
            del held[offset]
            if step == "accept":
                finished.add(offset)


def test_an_outcome_by_member_is_undone_in_the_lock_that_had_the_record() -> None:
    life = Life()
    life.call(Coordinator.configure, ConfigCall("q", {"kind": "share"}))
    life.append()
    assert (life.acquire("m", 2), life.acquire("other", 1)) == ([(0, 1), (1, 1)], [(2, 1)])
    wishes = (Settlement("t", 0, 0, 2, Outcome.ACCEPT),)
    settled = life.call(sharing.settle, SettleCall("q", "", wishes, member_id="m"))
    assert (settled.settled, [(one.first, one.last) for one in settled.refused]) == (2, [(2, 2)])
    life.refuse()
    assert life.acquire("third", 3) == [(3, 1), (4, 1), (5, 1)], "the locks hold their records again"
    assert life.call(sharing.settle, SettleCall("q", "", wishes, member_id="m")).settled == 2
