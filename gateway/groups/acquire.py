"""Records of a share group over HTTP: POST /v1/groups/{group}/acquire.

Steps: (1) the leaders of the partitions report where their logs begin and end; (2) the coordinator locks records; (3)
the leaders read them; (4) what turned out to have no record, or did not fit, is settled at the coordinator. Without
records the call waits for new ones, and for locks and delays that end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Literal

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from engine.errors import EngineError, UnknownTopic
from gateway.connections.response_buffers import sendable_bytes
from gateway.connections.single_waiter import SingleWaiter
from gateway.fetch.request import JSON, SCHEMA
from gateway.fetch.schema_values import decode_values
from gateway.groups.acquiring import Acquiring
from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import DESCRIBE, SHARE_TOPICS
from gateway.groups.hosting.coordinators import has_moved
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.values import GroupView
from gateway.groups.names import (
    TopicNames,
    check_readable,
    check_topics,
    find_topics,
    group_name,
    member_name,
)
from gateway.groups.share.values import (
    Acquired,
    Granted,
    Outcome,
    Settlement,
)
from gateway.groups.share_reads import (
    SHARE_READ,
    RangesFound,
    RangesRead,
)
from gateway.http.json_body import read_json
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.response_compression import compress_response
from gateway.http.rights import Names
from gateway.quotas.topic_meter import TopicMeter
from gateway.routing.leader_failover import is_transient

_Milliseconds = Annotated[int, Meta(ge=100, le=43_200_000)]
_Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]

_BEFORE, _BEHIND = b'{"records":[', b"]}"  # the records of one partition


class AcquireRequest(Struct, forbid_unknown_fields=True):
    """The body of an acquire."""

    topics: TopicNames | UnsetType = UNSET
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    max_records: Annotated[int, Meta(ge=1, le=10_000)] = 100
    max_bytes: _Size | UnsetType = UNSET
    lock_ms: _Milliseconds | None = None
    member_id: str | UnsetType = UNSET
    value: Literal["json", "text", "base64", "schema"] | UnsetType = UNSET


async def acquire_records(request: Request, context: GroupContext) -> Response:
    """POST /v1/groups/{group}/acquire. Raises Problem, EngineError."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    body = await read_json(request, AcquireRequest, AcquireRequest())
    member_id = "" if body.member_id is UNSET else member_name(body.member_id)
    if body.topics is UNSET:
        missing: list[str] = []
        names: list[str] = await context.coordinators.call(SHARE_TOPICS, None, group, group)
        topics = tuple(names)
        for topic in topics:
            check_readable(request, topic)
            await context.topics.refresh(topic)
    else:
        topics, missing = await _split_missing(request, context, group, body.topics)
    request.topics_read = topics
    meter = request.topic_meter
    if meter is not None:
        await meter.wait_readable(topics)
    with context.single_waiters.caller((group, topics)) as waiter:
        sendable = partial(sendable_bytes, request)
        acquiring = Acquiring(
            context,
            group,
            member_id,
            topics,
            waiter,
            max_records=body.max_records,
            lock_ms=body.lock_ms,
            wait_ms=body.wait_ms,
        )
        response = await _Acquire(
            context, group, acquiring, body, waiter, sendable, missing, request.space, meter
        ).answer()
    return await compress_response(request, response)


async def _split_missing(
    request: Request, context: GroupContext, group: str, names: Sequence[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Returns the topics of a call that exist, and those that the group has read and that were deleted since.

    A topic that the group has never read may be a mistake in its name. Raises Problem, UnknownTopic.
    """
    await find_topics(request, context, names, must_exist=False)
    topics = check_topics(request, context, names, must_exist=False)
    for name in topics:
        await context.topics.refresh(name)
    missing = [name for name in topics if context.topics.get(name) is None]
    if missing:
        read_before: set[str] = set()
        with suppress(UnknownGroup):
            view = await context.coordinators.call(DESCRIBE, GroupView, group, group)
            read_before = {position.topic for position in view.offsets}
        if unknown := [name for name in missing if name not in read_before]:
            context.topics.topic(unknown[0])
        if len(missing) == len(topics):
            raise UnknownTopic(f"all topics of the call were deleted: {', '.join(missing)}")
    return tuple(name for name in topics if name not in missing), missing


class _Acquire:
    """One request."""

    def __init__(
        self,
        context: GroupContext,
        group: str,
        acquiring: Acquiring,
        request: AcquireRequest,
        waiter: SingleWaiter,
        sendable: Callable[[int], int],
        missing: Sequence[str],
        space: Names | None,
        meter: TopicMeter | None,
    ) -> None:
        self._context = context
        self._meter = meter
        self._locked_ms = 0
        self._missing = missing
        self._space = space
        self._group = group
        self._acquiring = acquiring
        self._request = request
        self._waiter = waiter
        self._sendable = sendable

    async def answer(self) -> Response:
        """Returns the answer. Raises Problem, EngineError."""
        while True:
            try:
                bounds = await self._acquiring.collect_bounds()
                lock = self._context.new_id()
                self._locked_ms = self._context.clock.now_ms()
                acquired = await self._acquiring.acquire(lock, bounds)
                if not acquired.granted:
                    if await self._acquiring.wait(acquired):
                        continue
                    return self._response(None, acquired, [])
                self._waiter.end()
                texts = await self._read(lock, acquired)
            except EngineError as error:
                self._waiter.end()
                if not has_moved(error) and not is_transient(error):
                    raise
                await self._acquiring.budget.pause(error)
                continue
            if texts:
                return self._response(lock, acquired, texts)

    async def _read(self, lock: str, acquired: Acquired) -> list[bytes]:
        """Returns the records, one text for each partition. Gives back what cannot be read."""
        by_partition: defaultdict[tuple[str, int], list[Granted]] = defaultdict(list)
        for granted in acquired.granted:
            by_partition[granted.topic, granted.partition].append(granted)
        settings, request = self._context.settings, self._request
        max_bytes = settings.fetch_bytes_default if request.max_bytes is UNSET else request.max_bytes
        max_bytes = self._sendable(min(max_bytes, settings.fetch_bytes_max))
        share_bytes = max(1, max_bytes // len(by_partition))
        value = None if request.value is UNSET else request.value
        reads = [self._read_partition(slot, ranges, share_bytes, value) for slot, ranges in by_partition.items()]
        topics: list[str] = []
        texts: list[bytes] = []
        settlements: list[Settlement] = []
        problems: list[EngineError] = []
        for slot, part in zip(by_partition, await asyncio.gather(*reads), strict=True):
            if isinstance(part, EngineError):
                problems.append(part)
                settlements += [
                    Settlement(*slot, granted.first, granted.last, Outcome.RETURN) for granted in by_partition[slot]
                ]
                continue
            ranges, text = part
            settlements += [Settlement(*slot, first, last, Outcome.ABSENT) for first, last in ranges.absent]
            settlements += [Settlement(*slot, first, last, Outcome.RETURN) for first, last in ranges.unread]
            if ranges.record_count:
                topics.append(slot[0])
                texts.append(text if self._space is None else _visible(text, slot, self._space))
        if value == SCHEMA and texts:
            fetch, bodies = self._context.fetch, [b"".join((_BEFORE, text, _BEHIND)) for text in texts]
            bodies = await decode_values(bodies, JSON, fetch.schemas, fetch.offload)
            texts = [body[len(_BEFORE) : -len(_BEHIND)] for body in bodies]
        if self._meter is not None:
            for topic, text in zip(topics, texts, strict=True):
                self._meter.take_read(topic, len(text))
        if settlements:
            await self._acquiring.settle(lock, settlements)
        # the next look is without a deleted topic
        lasting = [problem for problem in problems if problem.code != UnknownTopic.code]
        if lasting and not texts:
            raise lasting[0]
        return texts

    async def _read_partition(
        self, slot: tuple[str, int], ranges: Sequence[Granted], max_bytes: int, value: str | None
    ) -> tuple[RangesFound, bytes] | EngineError:
        spans = sorted((granted.first, granted.last, granted.deliveries) for granted in ranges)
        call = RangesRead(spans, max_bytes, "base64" if value == SCHEMA else value)
        try:
            fields, text = await self._context.router.call(SHARE_READ, *slot, call)
        except EngineError as error:
            return error
        return RangesFound(*fields), bytes(text)

    def _response(self, lock: str | None, acquired: Acquired, texts: Sequence[bytes]) -> Response:
        head = {
            "group": self._group,
            "lock": lock,
            "lock_ms": acquired.lock_ms,
            "lock_until": self._locked_ms + acquired.lock_ms,
        } | ({"missing_topics": self._missing} if self._missing else {})
        if self._space is not None:
            head = self._space.shown(head)
        body = b"".join((orjson.dumps(head)[:-1], b',"records":[', b",".join(texts), b"]}"))
        return Response(body, {"Content-Type": "application/json"})


def _visible(text: bytes, slot: tuple[str, int], space: Names) -> bytes:
    """Returns the records of a partition with the visible name of its topic, which its owner has put into each."""
    topic, partition = slot
    stored, visible = (
        orjson.dumps({"topic": name, "partition": partition})[:-1] + b',"delivery_count":'
        for name in (topic, space.visible(topic))
    )
    return text.replace(stored, visible)
