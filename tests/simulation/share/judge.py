"""Judges a share group: nothing lost, one holder, one end, deliveries that count, order by key. Pure.

Times are those of callers. A finding means that no order of events inside the requests could be right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from gateway.groups.share.values import Outcome
from tests.simulation.share.history import DELAY_MS, Record, Settling, ShareHistory, Taken

ENDS = (Outcome.ACCEPT, Outcome.REJECT)
ROUNDING_S = 0.002  # coordinators count whole milliseconds


def judge_share(history: ShareHistory, keys: Mapping[Record, int]) -> list[str]:
    """Returns findings. `keys`: the key of each committed record; the logs begin at 0."""
    by_record: defaultdict[Record, list[Taken]] = defaultdict(list)
    for one in history.taken:
        for record in one.records:
            by_record[record].append(one)
    settlings: defaultdict[Record, list[Settling]] = defaultdict(list)
    for settling in history.settlings:
        for record in settling.records:
            settlings[record].append(settling)
    found = [*_lost(history, keys, settlings)]
    for record, holders in by_record.items():
        found += _ended(record, holders, settlings[record])
        found += _two_holders(record, holders, settlings[record])
        found += _deliveries(record, holders, settlings[record], history.deliveries_max)
        found += _early(record, holders, settlings[record])
    if history.is_ordered:
        found += _disordered(history, keys, settlings)
    return found


def _lost(
    history: ShareHistory, keys: Mapping[Record, int], settlings: Mapping[Record, list[Settling]]
) -> Iterator[str]:
    for record in keys:
        has_end = any(one.outcome in ENDS and record in one.maybe_settled for one in settlings.get(record, ()))
        if not has_end and len(history.handed.get(record, ())) < history.deliveries_max:
            yield f"S1 lost: {record} has no outcome, and was delivered {len(history.handed.get(record, ()))} times"
    for record in history.handed:
        if record not in keys:
            yield f"S1 beyond: {record} was delivered; the log ends below"


def _ended(record: Record, holders: list[Taken], settlings: list[Settling]) -> Iterator[str]:
    """A record ends once, and is not delivered after that, also by a coordinator that was replaced unknowingly."""
    ends = [one for one in settlings if one.outcome in ENDS and record in one.settled]
    if len({id(one.taken) for one in ends}) > 1:
        yield f"S2 two outcomes: {record} ended for {' and '.join(one.taken.caller for one in ends)}"
    for end in ends:
        for one in holders:
            if one.asked_at > end.answered_at:
                yield f"S3 delivered again: {one.caller} got {record}, which had ended before it asked"


def _two_holders(record: Record, holders: list[Taken], settlings: list[Settling]) -> Iterator[str]:
    """Two locks of one coordinator never hold a record at once; those of a replaced one are over."""
    for one in holders:
        given_up = [mine.asked_at for mine in settlings if mine.taken is one and mine.outcome is not Outcome.EXTEND]
        until = min([one.until - ROUNDING_S, *given_up])
        for other in holders:
            is_while_held = one.answered_at < other.asked_at and other.answered_at < until
            if other is not one and other.hosting == one.hosting and is_while_held:
                yield f"S4 two holders: {one.caller} held {record} until {until:.3f}, {other.caller} got it"


def _deliveries(record: Record, holders: list[Taken], settlings: list[Settling], limit: int) -> Iterator[str]:
    """The number of a delivery is within the limit, and above that of every release which was answered before.

    The last delivery may be under way when a coordinator dies: the next coordinator hands the record out once more.
    """
    released = [one for one in settlings if one.outcome is Outcome.RELEASE and record in one.settled]
    for one in holders:
        number = one.records[record]
        had = [other for other in holders if other.hosting == one.hosting and limit <= other.records[record] < number]
        if had:
            yield f"S5 delivered too often: {one.caller} got {record} as delivery {number} of {limit}"
        for before in released:
            if before.answered_at < one.asked_at and before.taken.records[record] >= number:
                yield f"S5 not counted: {one.caller} got {record} as delivery {number} after a release of that number"


def _early(record: Record, holders: list[Taken], settlings: list[Settling]) -> Iterator[str]:
    """A released record waits for half of its delay at least, which doubles with each delivery."""
    for before in settlings:
        if before.outcome is not Outcome.RELEASE or record not in before.settled:
            continue
        least_s = (DELAY_MS / 2000) * 2 ** (before.taken.records[record] - 1) - ROUNDING_S
        for one in holders:
            is_after = one.asked_at > before.answered_at and one.hosting == before.hosting
            if is_after and one.answered_at < before.asked_at + least_s:
                yield f"S8 too early: {one.caller} got {record} less than {least_s:.3f} s after its release"


def _disordered(
    history: ShareHistory, keys: Mapping[Record, int], settlings: Mapping[Record, list[Settling]]
) -> Iterator[str]:
    """A record is delivered when the one before it with its key has ended, at the earliest."""
    before: dict[Record, Record] = {}
    last: dict[tuple[int, int], Record] = {}
    for record in sorted(keys):
        place = record[0], keys[record]
        if place in last:
            before[record] = last[place]
        last[place] = record
    for one in history.taken:
        for record in one.records:
            earlier = before.get(record)
            if earlier is None:
                continue
            is_ended = any(
                end.outcome in ENDS and earlier in end.maybe_settled and end.asked_at <= one.answered_at
                for end in settlings.get(earlier, ())
            )
            count = sum(at <= one.answered_at for at in history.handed[earlier].values())
            if earlier in one.records or not (is_ended or count >= history.deliveries_max):
                yield f"S6 disordered: {one.caller} got {record} before {earlier} of the same key had ended"
