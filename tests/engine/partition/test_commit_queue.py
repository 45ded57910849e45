from types import SimpleNamespace
from typing import cast

from engine.partition.committer import CommitQueue
from engine.partition.partition import Partition


class _Named(SimpleNamespace):
    __hash__ = object.__hash__


def made(topic: str, count: int) -> list[Partition]:
    return [cast(Partition, _Named(topic=topic, number=number)) for number in range(count)]


def taken(due: CommitQueue, count: int) -> list[tuple[str, int, bool]]:
    return [(one.topic, one.number, sync) for one, sync in due.take(count)]


def test_topics_take_turns_and_begin_again_where_they_ended():
    due = CommitQueue()
    for one in made("a", 5) + made("b", 1) + made("c", 2):
        due.add(one, sync=False)
    assert [name for name, _, _ in taken(due, 4)] == ["a", "b", "c", "a"]
    assert [(name, number) for name, number, _ in taken(due, 3)] == [("c", 1), ("a", 2), ("a", 3)]
    assert (len(due), taken(due, 9), len(due)) == (1, [("a", 4, False)], 0)


def test_a_partition_is_due_once_and_a_sync_that_was_asked_for_stays():
    due = CommitQueue()
    one, other = made("a", 2)
    for sync in (False, True, False):
        due.add(one, sync=sync)
    due.add(other, sync=False)
    assert len(due) == 2
    due.discard(other)
    due.discard(other)
    assert (one in due, other in due, len(due)) == (True, False, 1)
    assert taken(due, 9) == [("a", 0, True)]
    assert repr(due) == "CommitQueue(0 of 0 topics)"
