"""The judge of topics that are created again finds each planted anomaly."""

from __future__ import annotations

from collections import Counter

from tests.chaos.recreation import NEW, OLD, Reader, judged


def sound() -> Reader:
    return Reader("member", before=Counter(OLD), after=Counter(NEW) + Counter([100, 100]))


def test_a_reader_with_every_new_record_is_sound_whatever_came_twice():
    assert judged(sound()) == []


def test_skipped_records_of_the_new_topic_are_found():
    """As of a position of the deleted topic: the beginning of the new one is missing."""
    reader = sound()
    for value in range(100, 105):
        del reader.after[value]
    assert judged(reader) == ["member: 5 of 30 records of the new topic did not come"]


def test_a_record_of_the_deleted_topic_is_found():
    """As of a replica that kept the directory of the deleted topic."""
    reader = sound()
    reader.after[3] += 1
    assert judged(reader) == ["member: 1 records of the deleted topic came after the creation of the new one"]


def test_a_value_counts_by_when_it_came():
    reader = Reader("member")
    reader.take(1)
    reader.is_after = True
    reader.take(100)
    assert (reader.before, reader.after) == (Counter([1]), Counter([100]))
