"""Fetch over many partitions of many topics with one long poll: POST /v1/fetch.

Parses the request and renders the answer; gateway/fetch/multi_fetch.py calls the partitions' owners.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from engine.errors import EngineError
from engine.format.paths import INTERNAL_TOPICS
from gateway.access.access import forbidden, unreadable
from gateway.access.names import NAME
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch.context import FetchContext
from gateway.fetch.multi_fetch import MultiFetch
from gateway.fetch.partition_reads import SEARCHED_BYTES_MAX
from gateway.fetch.reader import Limits, PartitionRead
from gateway.fetch.rendered_cache import Part
from gateway.fetch.request import JSON
from gateway.filters.condition import InvalidCondition
from gateway.filters.record_filter import record_filter
from gateway.http.json_body import read_json
from gateway.http.negotiation import choose_media_type
from gateway.http.problems import Problem, from_engine, from_fields
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.response_compression import compress_response
from gateway.http.rights import Caller, Names, Operation

ENTRY_BYTES_MAX = 1024  # of a body: an entry with the longest name takes a third of it
BODY_BYTES_LEAST = 64 * 1024

_Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Entry(Struct, forbid_unknown_fields=True, gc=False):
    """A partition, the first offset to read, and the newest leader epoch that its reader knows.

    With `topic_id` no other topic of that name answers.
    """

    topic: Annotated[str, NAME]
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    leader_epoch: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    topic_id: Annotated[str, Meta(max_length=64)] | None = None


class MultiFetchRequest(Struct, forbid_unknown_fields=True):
    """The body. Defaults are those of a fetch of one partition."""

    partitions: Annotated[list[Entry], Meta(min_length=1)]
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    min_bytes: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1
    max_bytes: _Size | UnsetType = UNSET
    max_records: Annotated[int, Meta(ge=1, le=10_000_000)] | UnsetType = UNSET
    value: Literal["json", "text", "base64", "schema"] | UnsetType = UNSET
    filter: tuple[str, ...] = ()


class _Answered(NamedTuple):
    """An encoded entry of the answer, or the problem in its place."""

    body: bytes
    problem: Problem | None


async def fetch_many(request: Request, context: FetchContext) -> Response:
    """POST /v1/fetch"""
    read_query(request, NoQuery)
    choose_media_type(request.headers.get("Accept", ""), (JSON,))
    partitions_max = context.settings.fetch_partitions_max
    bytes_max = BODY_BYTES_LEAST + partitions_max * ENTRY_BYTES_MAX
    options = await read_json(request, MultiFetchRequest, bytes_max=bytes_max)
    _check(options, partitions_max)
    caller = request.caller
    for entry in options.partitions:
        if context.topics.lacks(entry.topic, entry.partition + 1) and caller.allows(Operation.READ, entry.topic):
            await context.topics.refresh(entry.topic, entry.partition + 1)
        topic = None if entry.topic_id is None else context.topics.get(entry.topic)
        if topic is not None and topic.record.topic_id != entry.topic_id and caller.allows(Operation.READ, entry.topic):
            await context.topics.confirm(entry.topic)
    found = [_find_entry(context, caller, entry) for entry in options.partitions]
    entries = [one for one in found if isinstance(one, PartitionRead)]
    parts = await _read(request, context, entries, options, must_wait=len(entries) == len(found)) if entries else []
    response = _answer(options.partitions, _merge_answers(found, parts), request.space)
    return await compress_response(request, response)


def _check(options: MultiFetchRequest, partitions_max: int) -> None:
    try:
        record_filter(options.filter)
    except InvalidCondition as error:
        raise Problem("invalid_body", f"filter: {error}") from None
    if len(options.partitions) > partitions_max:
        text = f"the request names {len(options.partitions)} partitions, {partitions_max} are allowed"
        raise Problem("body_too_large", text, limit=partitions_max)
    seen = set()
    for entry in options.partitions:
        which = (entry.topic, entry.partition)
        if which in seen:
            raise Problem("invalid_body", f"partition {entry.partition} of topic {entry.topic!r} is named twice")
        seen.add(which)


def _find_entry(context: FetchContext, caller: Caller, entry: Entry) -> PartitionRead | Problem:
    if entry.topic in INTERNAL_TOPICS:
        return unreadable(entry.topic)
    if not caller.allows(Operation.READ, entry.topic):
        return forbidden(caller, Operation.READ, entry.topic)
    try:
        if entry.topic_id is not None:
            context.partitions.check_topic_id(entry.topic, entry.topic_id)
        topic_id = context.partitions.topic_id(entry.topic, entry.partition)
        return PartitionRead(entry.topic, topic_id, entry.partition, entry.offset, entry.leader_epoch)
    except EngineError as error:
        return from_engine(error)


async def _read(
    request: Request,
    context: FetchContext,
    entries: Sequence[PartitionRead],
    options: MultiFetchRequest,
    *,
    must_wait: bool,
) -> list[Part]:
    """Reads; waits before if there is not enough and no entry has a problem."""
    max_bytes = context.settings.fetch_bytes_default if options.max_bytes is UNSET else options.max_bytes
    max_bytes = min(max_bytes, context.settings.fetch_bytes_max)
    min_bytes = min(options.min_bytes, max_bytes)
    max_records = None if options.max_records is UNSET else options.max_records
    value = None if options.value is UNSET else options.value
    limits = Limits(max_bytes, max_records, value, next(context.rotation), as_lines=False)
    many = MultiFetch(context, entries, options.filter)
    request.topics_read = {entry.topic for entry in entries}
    meter = request.topic_meter
    if meter is not None:
        await meter.wait_readable(request.topics_read)
    loop = asyncio.get_running_loop()
    deadline, searched_bytes = loop.time() + options.wait_ms / 1000, 0
    while True:
        found = await many.check_available()
        wait_s = deadline - loop.time()
        if must_wait and wait_s > 0 and min_bytes > found.size_bytes and not found.has_problem:
            with context.long_polls.waiting(len(entries)):
                await many.wait(min_bytes, wait_s)
        parts = await many.read_with_retries(limits._replace(max_bytes=sendable_bytes(request, max_bytes)))
        searched_bytes += max_bytes
        if searched_bytes >= SEARCHED_BYTES_MAX or not many.advance_over(parts):
            if meter is not None:
                for entry, part in zip(entries, parts, strict=True):
                    meter.take_read(entry.topic, len(part.body))
            return parts


def _merge_answers(found: Sequence[PartitionRead | Problem], parts: Sequence[Part]) -> list[_Answered]:
    answered, given = [], iter(parts)
    for one in found:
        if isinstance(one, Problem):
            answered.append(_Answered(b"", one))
            continue
        part = next(given)
        if part.problem is None:
            answered.append(_Answered(part.body, None))
        else:
            answered.append(_Answered(b"", from_fields(part.problem)))
    return answered


def _answer(entries: Sequence[Entry], answered: Sequence[_Answered], space: Names | None) -> Response:
    """Returns 200; 207 with a problem each if some entries failed; the first problem, with all in it, if all failed."""
    failed = [one.problem for one in answered if one.problem is not None]
    if len(failed) == len(answered):
        documents = [_problem_of(entry, problem) for entry, problem in zip(entries, failed, strict=True)]
        problem = failed[0]
        problem.members = {**problem.members, "partitions": documents}
        raise problem
    bodies: list[bytes | bytearray] = [
        one.body if one.problem is None else shown_problem(_problem_of(entry, one.problem), space)
        for entry, one in zip(entries, answered, strict=True)
    ]
    if space is not None:
        bodies = [space.shown_records(body) for body in bodies]
    body = b'{"partitions":[' + b",".join(bodies) + b"]}"
    return Response(body, {"Content-Type": JSON}, 207 if failed else 200)


def shown_problem(document: dict[str, object], space: Names | None) -> bytes:
    """Returns the problem of one partition among the records of others."""
    return orjson.dumps(document if space is None else space.shown(document))


def _problem_of(entry: Entry, problem: Problem) -> dict[str, object]:
    return {"topic": entry.topic, "partition": entry.partition, "problem": problem.document()}
