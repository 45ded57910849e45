"""Outcomes of records of a share group over HTTP: POST /v1/groups/{group}/acknowledge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from gateway.access.names import NAME
from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import SETTLE
from gateway.groups.names import check_own, group_name
from gateway.groups.share.values import Outcome, Refused, SettleCall, Settled, Settlement
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import ANONYMOUS

ENTRIES_MAX = 10_000
TIME_MS_MAX = 43_200_000

_Outcome = Literal["accept", "release", "reject", "extend"]
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 2)]
_Delay = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
_LockTime = Annotated[int, Meta(ge=100, le=TIME_MS_MAX)]
_Error = Annotated[str, Meta(max_length=1000)]


class RecordOutcome(Struct, forbid_unknown_fields=True):
    """Records `offset` to `last_offset`, and their outcome, if it is another one than that of the request."""

    topic: Annotated[str, NAME]
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
    body = await read_json(request, AcknowledgeRequest)
    if body.records is UNSET:
        outcome = _OUTCOMES[body.outcome]
        call = SettleCall(group, body.lock, (), outcome, _time_ms(outcome, body, body), body.error)
    else:
        settlements = _merge_neighbours(_settlement(record, body) for record in body.records)
        call = SettleCall(group, body.lock, tuple(settlements))
    if request.caller is not ANONYMOUS:
        call = await _check_topics(request, context, call)
    settled = await context.coordinators.call(SETTLE, Settled, group, call)
    refused = [_refusal(Refused(*fields)) for fields in settled.refused]
    document = {"group": group, "lock": body.lock, "acknowledged": settled.settled, "refused": refused}
    if refused and not settled.settled:
        text = (
            "the lock does not hold any of these records; acquire again: those without an outcome are delivered again"
        )
        raise Problem("lock_expired", text, **document)
    return json_response(document, 207 if refused else 200)


async def _check_topics(request: Request, context: GroupContext, call: SettleCall) -> SettleCall:
    """Returns a call about topics that the client may read, and no others. Raises Problem forbidden, EngineError."""
    named = {settlement.topic for settlement in call.settlements}
    check_own(request, named, named)
    if call.outcome is None:
        return call
    call = structs.replace(call, checked=())
    settled = await context.coordinators.call(SETTLE, Settled, call.group, call)
    check_own(request, settled.unchecked)
    return structs.replace(call, checked=tuple(settled.unchecked))


def _settlement(record: RecordOutcome, body: AcknowledgeRequest) -> Settlement:
    """Returns the outcome of an entry. Raises Problem invalid_body."""
    last = record.offset if record.last_offset is UNSET else record.last_offset
    if last < record.offset:
        raise Problem("invalid_body", f"last_offset {last} is below offset {record.offset}")
    outcome = _OUTCOMES[body.outcome if record.outcome is UNSET else record.outcome]
    error = body.error if record.error is UNSET else record.error
    return Settlement(
        record.topic, record.partition, record.offset, last, outcome, _time_ms(outcome, record, body), error
    )


def _time_ms(outcome: Outcome, given: RecordOutcome | AcknowledgeRequest, body: AcknowledgeRequest) -> int | None:
    if outcome is Outcome.RELEASE:
        delay_ms = body.delay_ms if given.delay_ms is UNSET else given.delay_ms
        return None if delay_ms is UNSET else delay_ms
    if outcome is Outcome.EXTEND:
        lock_ms = body.lock_ms if given.lock_ms is UNSET else given.lock_ms
        return None if lock_ms is UNSET else lock_ms
    return None


def _merge_neighbours(settlements: Iterable[Settlement]) -> Iterable[Settlement]:
    """Yields neighbours with the same outcome as one."""
    before: Settlement | None = None
    for settlement in settlements:
        if (
            before is not None
            and settlement.first == before.last + 1
            and settlement[4:] == before[4:]
            and settlement[:2] == before[:2]
        ):
            before = before._replace(last=settlement.last)
            continue
        if before is not None:
            yield before
        before = settlement
    if before is not None:
        yield before


def _refusal(refused: Refused) -> dict[str, object]:
    code = "already_acknowledged" if refused.is_settled else "lock_expired"
    return {
        "topic": refused.topic,
        "partition": refused.partition,
        "offset": refused.first,
        "last_offset": refused.last,
        "code": code,
    }


_OUTCOMES = {
    "accept": Outcome.ACCEPT,
    "release": Outcome.RELEASE,
    "reject": Outcome.REJECT,
    "extend": Outcome.EXTEND,
}
