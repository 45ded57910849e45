"""Checkers of a share group: nothing lost, one holder, one end, deliveries that count, order by key. Pure.

Times are those of callers. A finding means that no order of events inside the requests could be right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.groups.share.values import Outcome
from tests.checking.group_history import Acquisition, Record, Settlement, ShareHistory

ENDS = (Outcome.ACCEPT, Outcome.REJECT)
ROUNDING_S = 0.002  # coordinators count whole milliseconds
Settlements = Mapping[Record, list[Settlement]]


def check_share(history: ShareHistory, keys: Mapping[Record, int]) -> list[str]:
    """Return findings. `keys`: the key of each committed record; the logs begin at 0."""
    holders: defaultdict[Record, list[Acquisition]] = defaultdict(list)
    for acquisition in sorted(history.acquisitions, key=lambda acquisition: acquisition.answered_at):
        for record in acquisition.records:
            holders[record].append(acquisition)
    settlements: defaultdict[Record, list[Settlement]] = defaultdict(list)
    for settlement in history.settlements:
        for record in settlement.records:
            settlements[record].append(settlement)
    findings = [*lost(history, keys, settlements), *taken_back(history)]
    for record in sorted(settlements.keys() | holders.keys()):
        findings += two_outcomes(record, settlements[record])
        findings += delivered_again(record, holders[record], settlements[record])
        findings += two_holders(history, record, holders[record], settlements[record])
        findings += delivered_too_often(history, record, holders[record])
        findings += not_counted(history, record, holders[record], settlements[record])
        findings += too_early(history, record, holders[record], settlements[record])
    if history.is_ordered:
        findings += disordered(history, keys, settlements)
    return findings


def lost(history: ShareHistory, records: Iterable[Record], settlements: Settlements) -> Iterator[str]:
    """S1: every record has an end, or was delivered as often as it may be."""
    there = set(records)
    for record in sorted(there):
        has_end = any(
            settlement.outcome in ENDS and record in history.maybe_settled(settlement)
            for settlement in settlements.get(record, ())
        )
        if not has_end and len(history.handed.get(record, ())) < history.deliveries_max:
            yield f"S1 lost: {record} has no outcome, and was delivered {len(history.handed.get(record, ()))} times"
    delivered = history.handed.keys() | {
        record for acquisition in history.acquisitions for record in acquisition.records
    }
    for record in sorted(delivered - there):
        yield f"S1 beyond: {record} was delivered; the log ends below"


def two_outcomes(record: Record, settlements: Sequence[Settlement]) -> Iterator[str]:
    """S2: a record ends once, also if a coordinator was replaced unknowingly."""
    callers = {id(end.acquisition): end.acquisition.caller for end in _ends(record, settlements)}
    if len(callers) > 1:
        yield f"S2 two outcomes: {record} ended for {' and '.join(callers.values())}"


def delivered_again(record: Record, holders: Sequence[Acquisition], settlements: Sequence[Settlement]) -> Iterator[str]:
    """S3: a record is not delivered after its end."""
    ended_at = min((end.answered_at for end in _ends(record, settlements)), default=None)
    for holder in holders:
        if ended_at is not None and holder.asked_at > ended_at:
            yield f"S3 delivered again: {holder.caller} got {record}, which had ended before it asked"


def two_holders(
    history: ShareHistory, record: Record, holders: Sequence[Acquisition], settlements: Sequence[Settlement]
) -> Iterator[str]:
    """S4: two locks of one coordinator never hold a record at once; those of a replaced one are over."""
    for number, holder in enumerate(holders):
        given_up = [
            mine.asked_at for mine in settlements if mine.acquisition is holder and mine.outcome is not Outcome.EXTEND
        ]
        until = min([holder.until - ROUNDING_S, holder.held_until, *given_up])
        for other in holders[number + 1 :]:
            is_while_held = other.answered_at < until and holder.answered_at < other.until
            if is_while_held and history.have_one_coordinator(holder, other):
                yield (
                    f"S4 two holders: {holder.caller} held {record} from {holder.answered_at:.3f} to {until:.3f}, "
                    f"{other.caller} got it at {other.answered_at:.3f}"
                )


def delivered_too_often(history: ShareHistory, record: Record, holders: Sequence[Acquisition]) -> Iterator[str]:
    """S5: the number of a delivery is within the limit.

    The last delivery may be under way when a coordinator dies: the next coordinator hands the record out once more.
    """
    limit = history.deliveries_max
    for holder in holders:
        number = holder.records[record]
        if any(other.hosting == holder.hosting and limit <= other.records[record] < number for other in holders):
            yield f"S5 delivered too often: {holder.caller} got {record} as delivery {number} of {limit}"


def not_counted(
    history: ShareHistory, record: Record, holders: Sequence[Acquisition], settlements: Sequence[Settlement]
) -> Iterator[str]:
    """S5: a delivery has a higher number than each release that was answered before it was asked for.

    It also has a higher number than each earlier delivery of the same coordinator, unless that was given back.
    """
    released = {
        id(settlement.acquisition)
        for settlement in settlements
        if settlement.outcome is Outcome.RELEASE and record in settlement.settled
    }
    returned = {id(settlement.acquisition) for settlement in settlements if settlement.outcome is Outcome.RETURN}
    answered = {
        id(settlement.acquisition): settlement.answered_at
        for settlement in settlements
        if id(settlement.acquisition) in released
    }
    for number, other in enumerate(holders):
        for holder in holders[:number]:
            if holder.records[record] < other.records[record] or id(holder) in returned:
                continue
            is_after_release = id(holder) in released and answered[id(holder)] < other.asked_at
            is_later = holder.answered_at < other.asked_at and history.have_one_coordinator(holder, other)
            if is_after_release or is_later:
                numbers = f"{holder.records[record]} to {holder.caller}, then {other.records[record]} to {other.caller}"
                yield f"S5 not counted: {record} was delivery {numbers}"


def too_early(
    history: ShareHistory, record: Record, holders: Sequence[Acquisition], settlements: Sequence[Settlement]
) -> Iterator[str]:
    """S8: a released record waits for half of its delay at least, which doubles with each delivery."""
    for before in settlements:
        if before.outcome is not Outcome.RELEASE or record not in before.settled:
            continue
        least_s = (history.delay_s / 2) * 2 ** (before.acquisition.records[record] - 1) - ROUNDING_S
        for holder in holders:
            is_after = holder.asked_at > before.answered_at and holder.hosting == before.acquisition.hosting
            if is_after and holder.answered_at < before.asked_at + least_s:
                yield f"S8 too early: {holder.caller} got {record} less than {least_s:.3f} s after its release"


def taken_back(history: ShareHistory) -> Iterator[str]:
    """S9: an outcome that was answered is never refused later because its lock is over, also by another coordinator."""
    answered: defaultdict[int, list[Settlement]] = defaultdict(list)
    for settlement in sorted(history.settlements, key=lambda settlement: settlement.asked_at):
        for first in answered[id(settlement.acquisition)]:
            is_repeat = first.outcome is settlement.outcome and first.answered_at < settlement.asked_at
            if is_repeat and (again := first.settled & settlement.expired):
                yield f"S9 taken back: {settlement.acquisition.caller} settled {min(again)}, then its lock was over"
        answered[id(settlement.acquisition)].append(settlement)


def _ends(record: Record, settlements: Iterable[Settlement]) -> list[Settlement]:
    return [settlement for settlement in settlements if settlement.outcome in ENDS and record in settlement.settled]


def disordered(history: ShareHistory, keys: Mapping[Record, int], settlements: Settlements) -> Iterator[str]:
    """S6: a record is delivered when the one before it with its key has ended, at the earliest."""
    before: dict[Record, Record] = {}
    last: dict[tuple[int, int], Record] = {}
    for record in sorted(keys):
        key_of_partition = record[0], keys[record]
        if key_of_partition in last:
            before[record] = last[key_of_partition]
        last[key_of_partition] = record
    for acquisition in history.acquisitions:
        for record in acquisition.records:
            earlier = before.get(record)
            if earlier is None:
                continue
            is_ended = any(
                end.outcome in ENDS
                and earlier in history.maybe_settled(end)
                and end.asked_at <= acquisition.answered_at
                for end in settlements.get(earlier, ())
            )
            count = sum(at <= acquisition.answered_at for at in history.handed[earlier].values())
            if earlier in acquisition.records or not (is_ended or count >= history.deliveries_max):
                yield f"S6 disordered: {acquisition.caller} got {record} before {earlier} of the same key had ended"
