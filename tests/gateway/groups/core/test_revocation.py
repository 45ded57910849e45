"""When a member gives up partitions, and what late repeats of its calls give up: nothing."""

from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.values import (
    PollCall,
)
from tests.gateway.groups.core.coordinators import GROUP, Stage, delivery, numbers


def test_a_partition_has_a_new_owner_only_after_the_old_one_gave_it_up():
    stage = Stage(t=4)
    first = stage.heartbeat("a", owned=set())
    assert numbers(first) == {0, 1, 2, 3}
    second = stage.heartbeat("b")
    assert numbers(second) == set()
    kept = stage.heartbeat("a", first.member_epoch, owned={0, 1, 2, 3})
    assert len(numbers(kept)) == 2
    assert numbers(stage.heartbeat("b", second.member_epoch)) == set()
    stage.heartbeat("a", kept.member_epoch, owned=numbers(kept))
    assert numbers(stage.heartbeat("b", second.member_epoch)) == {0, 1, 2, 3} - numbers(kept)


def test_partitions_that_stay_never_leave_their_member():
    stage = Stage(t=6)
    grant = stage.poll("a")
    stage.poll("b")
    kept = stage.poll("a", delivery("a", grant))
    stage.poll("c")
    assert numbers(stage.poll("a")) <= numbers(kept)
    assert len(numbers(stage.poll("a"))) == 2


def test_a_member_that_polls_gives_up_partitions_with_its_next_poll_and_commits_them():
    stage = Stage(t=2)
    grant = stage.poll("a")
    assert numbers(stage.poll("b")) == set()
    left = stage.poll("a", delivery("a", grant, 5))
    taken = stage.poll("b")
    assert (len(numbers(left)), len(numbers(taken))) == (1, 1)
    assert [one.offset for one in taken.assignment] == [5]


def test_a_late_heartbeat_from_before_an_assignment_does_not_give_it_up():
    stage = Stage(t=2)
    old = stage.heartbeat("a")
    stage.heartbeat("b")
    one = stage.heartbeat("a", old.member_epoch, owned=set())
    number = min(numbers(one))
    stage.leave("b")
    both = stage.heartbeat("a", one.member_epoch, owned={number})
    assert numbers(both) == {0, 1}
    stage.heartbeat("c")
    stage.heartbeat("a", one.member_epoch, owned=set())  # sent before it learnt of the second partition
    assert numbers(stage.heartbeat("c", topics=None, epoch=stage.core.groups[GROUP].epoch)) <= {number}


def test_a_late_repeat_of_a_heartbeat_from_before_a_revocation_gives_up_nothing():
    """A member that had not begun to read a partition said so, and reads it by now."""
    stage = Stage(t=2)
    first = stage.heartbeat("a")
    stage.heartbeat("a", first.member_epoch, owned=set())
    stage.heartbeat("a", first.member_epoch, owned={0, 1})
    stage.heartbeat("b")
    stage.heartbeat("a", first.member_epoch, owned=set())
    stage.heartbeat("a", owned=set())
    assert stage.owned("b") == set()
    known = stage.heartbeat("a", first.member_epoch, topics=None)
    stage.heartbeat("a", known.member_epoch, owned=numbers(known))
    assert len(stage.owned("b")) == 1


def test_a_late_repeat_of_a_poll_gives_up_nothing_that_its_successor_delivered():
    stage = Stage(t=2)
    first = delivery("a", stage.poll("a"))
    second = delivery("a", stage.poll("a", first))
    stage.poll("b")
    stage.poll("a", first)
    assert stage.owned("b") == set()
    stage.poll("a", delivery("a", stage.poll("a", second)))
    assert len(stage.owned("b")) == 1
    assert {stage.committed(0), stage.committed(1)} == {2, 3}


def test_a_late_first_poll_gives_up_nothing_that_its_member_works_on():
    """A member gave its first poll up, repeated it, and works on the answer: the first one comes late."""
    stage = Stage(t=2)
    delivered = delivery("a", stage.poll("a"))
    stage.poll("b")
    stage.poll("a")
    assert stage.owned("b") == set()
    stage.poll("a", delivered)
    stage.poll("a", delivery("a", stage.poll("a")))
    assert len(stage.owned("b")) == 1
    assert {stage.committed(0), stage.committed(1)} == {1, 2}


def test_a_member_that_restarts_gives_up_partitions_with_its_second_poll():
    stage = Stage(t=2)
    stage.poll("a")
    stage.poll("b")
    grant = stage.poll("a")
    assert (stage.owned("b"), len(numbers(grant))) == (set(), 1)
    stage.poll("a", delivery("a", grant, 0))
    assert len(stage.owned("b")) == 1


def test_a_first_poll_that_waits_gives_up_partitions_at_once():
    """It holds no records: nothing was delivered since it began."""
    stage = Stage(t=2)
    waiting = stage.poll("a")
    stage.poll("b")
    again = stage.call(Coordinator.poll, PollCall(GROUP, "a", delivery=waiting.delivery))
    assert (len(stage.owned("b")), again.delivery) == (1, waiting.delivery + 1)


def test_a_first_poll_that_waits_gives_up_nothing_after_a_later_delivery():
    stage = Stage(t=2)
    waiting = stage.poll("a")
    stage.poll("a")
    stage.poll("b")
    stage.call(Coordinator.poll, PollCall(GROUP, "a", delivery=waiting.delivery))
    assert stage.owned("b") == set()


def test_a_member_that_commits_by_position_gives_up_partitions_with_the_poll_after_its_commit():
    """Its commit has the epoch of an answer without these partitions: it has begun with the records after them."""
    stage = Stage(t=2)
    first = stage.poll("a")
    stage.poll("b")
    stage.commit(0, 5, "a", first.member_epoch)
    second = stage.poll("a")
    assert stage.owned("b") == set()
    stage.commit(min(numbers(second)), 6, "a", second.member_epoch)
    stage.poll("a")
    assert len(stage.owned("b")) == 1


def test_a_revocation_is_taken_up_by_a_new_coordinator():
    stage = Stage(t=2)
    first = stage.heartbeat("a")
    stage.heartbeat("b")
    stage.fail_over()
    stage.heartbeat("a", first.member_epoch, owned=set())
    assert stage.owned("b") == set()
    known = stage.heartbeat("a", first.member_epoch, topics=None)
    stage.heartbeat("a", known.member_epoch, owned=numbers(known))
    assert len(stage.owned("b")) == 1
