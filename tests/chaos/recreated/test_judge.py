"""Each finding about topics that are created again is planted into a sound history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.recreated.history import Consumed, Delivered, Noticed, Recreations, Written, value_of
from tests.chaos.recreated.judge import judge_recreations

OLD, NEW = "0ld", "new"
COUNTS = {OLD: 4, NEW: 6}


def record(topic_id: str, offset: int, label: str | None = None) -> Delivered:
    return Delivered(topic_id if label is None else label, 0, offset, value_of(topic_id, 0, offset))


def sound() -> Recreations:
    """Three consumers: a fetch, a member whose records come again, and a push without labels.

    The last record of the old topic was acknowledged while it was deleted: only the member got it.
    """
    written = [
        Written(topic_id, 0, n, value_of(topic_id, 0, n), is_settled=(topic_id, n) != (OLD, 3))
        for topic_id, count in COUNTS.items()
        for n in range(count)
    ]
    old, new = [record(OLD, n) for n in range(3)], [record(NEW, n) for n in range(6)]
    fetch = Consumed("fetch", is_notified=True, events=[*old, Noticed(NEW), *new])
    member = Consumed("member", events=[*old, *old[1:], record(OLD, 3), *new[:3], *new])
    push = Consumed("push", is_ordered=False, events=[one._replace(topic_id="") for one in (*old, *new[::-1])])
    return Recreations("t", [OLD, NEW], written, [fetch, member, push], [*old, *new])


def test_a_sound_history_has_no_findings():
    assert judge_recreations(sound()) == []


def goes_on_from_the_old_position(history: Recreations) -> None:
    """With the position 3 of the old topic, in a new one that is longer by then."""
    del history.consumers[0].events[3:7]


def member_skips(history: Recreations) -> None:
    history.consumers[1].events[6:] = [record(NEW, n) for n in range(3, 6)]


def push_misses(history: Recreations) -> None:
    history.consumers[2].events.pop()


def old_as_new(history: Recreations) -> None:
    history.consumers[0].events.append(record(OLD, 2, NEW))


def new_as_old(history: Recreations) -> None:
    """The position of the old topic is answered with a record of the new one."""
    history.consumers[0].events.insert(3, record(NEW, 3, OLD))


def old_after_new(history: Recreations) -> None:
    history.consumers[2].events.append(record(OLD, 2, ""))


def no_notice(history: Recreations) -> None:
    history.consumers[0].events.remove(Noticed(NEW))


def notice_of_another(history: Recreations) -> None:
    history.consumers[0].events[3] = Noticed(OLD)


def another_value(history: Recreations) -> None:
    history.consumers[2].events.append(Delivered("", 0, 4, value_of(NEW, 0, 2)))


def lost(history: Recreations) -> None:
    history.read.remove(record(NEW, 5))


def moved(history: Recreations) -> None:
    history.read[-1] = history.read[-1]._replace(offset=9)


def doubled(history: Recreations) -> None:
    history.read.append(Delivered(NEW, 0, 6, value_of(NEW, 0, 2)))


def foreign(history: Recreations) -> None:
    history.read.append(Delivered(NEW, 0, 6, value_of(OLD, 0, 3)))


def stays_refused(history: Recreations) -> None:
    history.consumers[0].refused.append("416 offset_above_high_watermark at 3")


def never_created_again(history: Recreations) -> None:
    history.topic_ids.pop()


def nothing_written(history: Recreations) -> None:
    history.written = [one for one in history.written if one.topic_id == OLD]


def no_consumer(history: Recreations) -> None:
    history.consumers.clear()


PLANTED: dict[str, list[Callable[[Recreations], None]]] = {
    "T0 not created again": [never_created_again],
    "T0 nothing written": [nothing_written],
    "T0 no consumer": [no_consumer],
    "T1 lost": [lost, moved],
    "T1 doubled": [doubled],
    "T2 foreign": [foreign],
    "T3 mixed": [old_as_new, new_as_old],
    "T3 other value": [another_value],
    "T4 old record": [old_after_new, old_as_new],
    "T5 not notified": [no_notice, notice_of_another, new_as_old],
    "T5 skipped": [goes_on_from_the_old_position, member_skips, new_as_old],
    "T6 missed": [goes_on_from_the_old_position, member_skips, push_misses],
    "T7 refused": [stays_refused],
}
CASES = [(kind, plant) for kind, plants in PLANTED.items() for plant in plants]


@pytest.mark.parametrize(("kind", "plant"), CASES, ids=[f"{kind}-{plant.__name__}" for kind, plant in CASES])
def test_a_planted_anomaly_is_found(kind, plant):
    history = sound()
    plant(history)
    found = judge_recreations(history)
    assert any(text.startswith(kind) for text in found), found
