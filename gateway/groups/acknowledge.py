"""Outcomes of records of a share group over HTTP: POST /v1/groups/{group}/acknowledge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import SETTLE
from gateway.groups.names import group_name
from gateway.groups.share.values import Outcome, Refused, SettleCall, Settled, Settlement
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response

ENTRIES_MAX = 10_000
TIME_MS_MAX = 43_200_000

_Outcome = Literal["accept", "release", "reject", "extend"]
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 2)]
_Delay = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
_LockTime = Annotated[int, Meta(ge=100, le=TIME_MS_MAX)]
_Error = Annotated[str, Meta(max_length=1000)]


class RecordOutcome(Struct, forbid_unknown_fields=True):
    """Records `offset` to `last_offset`, and their outcome, if it is another one than that of the request."""

    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: _Offset
    last_offset: _Offset | UnsetType = UNSET
    outcome: _Outcome | UnsetType = UNSET
    delay_ms: _Delay | UnsetType = UNSET
    lock_ms: _LockTime | UnsetType = UNSET
    error: _Error | UnsetType = UNSET


class AcknowledgeRequest(Struct, forbid_unknown_fields=True):
    """The body of an acknowledge. Without `records` it is for all that the lock has."""

    lock: Annotated[str, Meta(min_length=1, max_length=64)]
    outcome: _Outcome = "accept"
    records: Annotated[list[RecordOutcome], Meta(min_length=1, max_length=ENTRIES_MAX)] | UnsetType = UNSET
    delay_ms: _Delay | UnsetType = UNSET
    lock_ms: _LockTime | UnsetType = UNSET
    error: _Error = ""


async def acknowledge_records(request: Request, context: GroupContext) -> Response:
    """POST /v1/groups/{group}/acknowledge. Raises Problem, EngineError."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    wish = await read_json(request, AcknowledgeRequest)
    if wish.records is UNSET:
        outcome = _OUTCOMES[wish.outcome]
        call = SettleCall(group, wish.lock, (), outcome, _time_ms(outcome, wish, wish), wish.error)
    else:
        call = SettleCall(group, wish.lock, tuple(_joined(_settlement(one, wish) for one in wish.records)))
    found = await context.coordinators.call(SETTLE, Settled, group, call)
    refused = [_refusal(Refused(*one)) for one in found.refused]
    document = {"group": group, "lock": wish.lock, "acknowledged": found.settled, "refused": refused}
    if refused and not found.settled:
        text = (
            "the lock does not hold any of these records; acquire again: those without an outcome are delivered again"
        )
        raise Problem("lock_expired", text, **document)
    return json_response(document, 207 if refused else 200)


def _settlement(one: RecordOutcome, wish: AcknowledgeRequest) -> Settlement:
    """Returns the outcome of an entry. Raises Problem invalid_body."""
    last = one.offset if one.last_offset is UNSET else one.last_offset
    if last < one.offset:
        raise Problem("invalid_body", f"last_offset {last} is below offset {one.offset}")
    outcome = _OUTCOMES[wish.outcome if one.outcome is UNSET else one.outcome]
    error = wish.error if one.error is UNSET else one.error
    return Settlement(one.topic, one.partition, one.offset, last, outcome, _time_ms(outcome, one, wish), error)


def _time_ms(outcome: Outcome, one: RecordOutcome | AcknowledgeRequest, wish: AcknowledgeRequest) -> int | None:
    if outcome is Outcome.RELEASE:
        delay_ms = wish.delay_ms if one.delay_ms is UNSET else one.delay_ms
        return None if delay_ms is UNSET else delay_ms
    if outcome is Outcome.EXTEND:
        lock_ms = wish.lock_ms if one.lock_ms is UNSET else one.lock_ms
        return None if lock_ms is UNSET else lock_ms
    return None


def _joined(settlements: Iterable[Settlement]) -> Iterable[Settlement]:
    """Yields neighbours with the same outcome as one."""
    before: Settlement | None = None
    for one in settlements:
        if before is not None and one.first == before.last + 1 and one[4:] == before[4:] and one[:2] == before[:2]:
            before = before._replace(last=one.last)
            continue
        if before is not None:
            yield before
        before = one
    if before is not None:
        yield before


def _refusal(one: Refused) -> dict[str, object]:
    code = "already_acknowledged" if one.is_settled else "lock_expired"
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.first,
        "last_offset": one.last,
        "code": code,
    }


_OUTCOMES = {
    "accept": Outcome.ACCEPT,
    "release": Outcome.RELEASE,
    "reject": Outcome.REJECT,
    "extend": Outcome.EXTEND,
}
