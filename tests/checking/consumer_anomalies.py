"""Anomalies planted into what consumers got: of topics that were created again, and of workers that were disturbed."""

from __future__ import annotations

from tests.checking.anomalies import Subject
from tests.checking.history import History, Polled, Produced
from tests.checking.recreation_checkers import check_recreations, in_two_topics, not_from_the_start
from tests.checking.recreation_history import Consumed, Delivered, Noticed, Recreations, Written, value_of
from tests.checking.worker_checkers import Life, check_workers

OLD, NEW = "0ld", "new"
COUNTS = {OLD: 4, NEW: 6}


def record(topic_id: str, offset: int, label: str | None = None) -> Delivered:
    return Delivered(topic_id if label is None else label, 0, offset, value_of(topic_id, 0, offset))


def sound_recreations() -> Recreations:
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
    push = Consumed("push", is_ordered=False, events=[event._replace(topic_id="") for event in (*old, *new[::-1])])
    return Recreations("t", [OLD, NEW], written, [fetch, member, push], [*old, *new])


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
    history.written = [write for write in history.written if write.topic_id == OLD]


def no_consumer(history: Recreations) -> None:
    history.consumers.clear()


RECREATIONS = Subject(
    sound_recreations,
    check_recreations,
    {
        never_created_again: {"N0 not created again", "N4 old record"},
        nothing_written: {"N0 nothing written"},
        no_consumer: {"N0 no consumer"},
        lost: {"C1 lost"},
        moved: {"C1 lost"},
        doubled: {"C4 duplicate"},
        foreign: {"N2 foreign"},
        old_as_new: {"N3 mixed", "N4 old record", "N5 not notified"},
        new_as_old: {"N3 mixed", "N5 not notified", "N5 skipped"},
        another_value: {"N3 other value"},
        old_after_new: {"N4 old record"},
        no_notice: {"N5 not notified"},
        notice_of_another: {"N5 not notified"},
        goes_on_from_the_old_position: {"N5 not notified", "N5 skipped", "N6 missed"},
        member_skips: {"N5 skipped", "N6 missed"},
        push_misses: {"N6 missed"},
        stays_refused: {"N7 refused"},
    },
)


def sound_ids() -> History:
    """A producer and a reader of two topics of one name; the reader goes on in the first before it learns of it."""
    produced = [
        Produced("p", f"{topic_id}-0", (f"{topic_id}.0",), outcome="ok", base_offset=0) for topic_id in (OLD, NEW)
    ]
    polled = [
        Polled("r", f"{topic_id}-0", 1, 0, ((0, f"{topic_id}.0"),), 0, 1, at) for at, topic_id in enumerate((OLD, NEW))
    ]
    return History(produced, [polled[0], Polled("r", f"{OLD}-0", 1, 1, (), 0, 1, 0.5), polled[1]])


def stored_in_the_other(history: History) -> None:
    history.polled.append(Polled("r", f"{NEW}-0", 1, 1, ((1, f"{OLD}.0"),), 0, 2, 3.0))


def read_in_both(history: History) -> None:
    """The producer got no answer."""
    stored_in_the_other(history)
    history.produced[0].outcome = "info"


def begun_at_the_old_position(history: History) -> None:
    history.polled.insert(2, Polled("r", f"{NEW}-0", 1, 1, (), 0, 1, 0.7))


TOPIC_IDS = Subject(
    sound_ids,
    lambda history: in_two_topics(history.produced, history.polled) + not_from_the_start(history.polled),
    {
        stored_in_the_other: {"N3 mixed"},
        read_in_both: {"N3 mixed"},
        begun_at_the_old_position: {"N5 skipped"},
    },
)

VALUES = ("0", "1", "2", "3")


def sound_lives() -> list[Life]:
    """The first worker was killed after it had printed 1; a third one hung between two prints of 2.

    The last one had 3 when it began to hang, and printed it after another had.
    """
    return [
        Life("go", "a", [(1, "0"), (50, "1")], [(51, float("inf"))]),
        Life("java", "b", [(55, "1")]),
        Life("rust", "c", [(60, "2"), (70, "2")], [(61, 69)]),
        Life("perl", "d", [(66, "3")]),
        Life("node", "e", [(69.5, "3")], [(61, 69)]),
    ]


def never_printed(lives: list[Life]) -> None:
    del lives[2].printed[:]


def invented(lives: list[Life]) -> None:
    lives[1].printed.append((56, "4"))


def repeated_by_another(lives: list[Life]) -> None:
    """The kill came long after 0 was committed."""
    lives[1].printed.append((56, "0"))


def repeated_by_itself(lives: list[Life]) -> None:
    del lives[2].disturbed[:]


def repeated_long_after_it_hung(lives: list[Life]) -> None:
    lives[4].disturbed[:] = [(40, 50)]


def repeated_before_it_was_killed(lives: list[Life]) -> None:
    lives[4].disturbed[:] = [(70, float("inf"))]


WORKERS = Subject(
    sound_lives,
    lambda lives: check_workers(VALUES, lives),
    {
        never_printed: {"W1 missed: 2"},
        invented: {"W2 of no record: 4"},
        repeated_by_another: {"W3 repeated: 0"},
        repeated_by_itself: {"W3 repeated: 2"},
        repeated_long_after_it_hung: {"W3 repeated: 3"},
        repeated_before_it_was_killed: {"W3 repeated: 3"},
    },
)
