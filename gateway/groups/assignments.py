"""Asks the coordinator for the partitions of a member and their positions, for polls and event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from msgspec import structs

from engine.errors import EngineError, UnknownTopic
from gateway.fetch.positions import Positions
from gateway.groups.context import GroupContext
from gateway.groups.group_lag import find_bounds
from gateway.groups.hosting.calls import POLL, STORED, StoredCall
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.values import START_POLICY, Grant, PollCall, Position
from gateway.groups.names import check_commit, check_own
from gateway.groups.share.values import DeadLetter
from gateway.http.problems import Problem
from gateway.http.request import Request

ERROR_CHARACTERS = 300
COPIES_AT_ONCE = 32  # of dead letters: each reads some batches


class Assignments:
    """The calls of one request of a member. Each may be repeated."""

    def __init__(self, request: Request, context: GroupContext, group: str) -> None:
        self._request = request
        self._context = context
        self._group = group

    async def grant(self, call: PollCall, starts: Sequence[Position] = ()) -> Grant:
        """Commits the delivery of the call's token, and returns what the member may read. Raises Problem."""
        call = structs.replace(call, starts=tuple(starts)) if starts else call
        check_commit(self._request, self._context, call)
        return await self.check(await self._context.coordinators.call(POLL, Grant, call.group, call, creates=True))

    async def check(self, grant: Grant) -> Grant:
        """Returns a grant of topics that the client may read, without those that are gone. Raises Problem.

        The coordinator takes the partitions of a deleted topic away within a second.
        """
        gone: set[tuple[str, str]] = set()
        self.check_rights(grant)
        for topic, topic_id in {(position.topic, position.topic_id) for position in grant.assignment}:
            if not self._has(topic, topic_id):  # the coordinator may have learnt of it sooner
                await self._context.topics.confirm(topic)
                if not self._has(topic, topic_id):
                    gone.add((topic, topic_id))
        if not gone:
            return grant
        left = tuple(position for position in grant.assignment if (position.topic, position.topic_id) not in gone)
        return structs.replace(grant, assignment=left)

    def _has(self, topic: str, topic_id: str) -> bool:
        found = self._context.topics.get(topic)
        return found is not None and found.record.topic_id == topic_id

    def check_rights(self, grant: Grant) -> Collection[str]:
        """Returns the topics of a grant, which the client may read. Raises Problem."""
        topics = {position.topic for position in grant.assignment}
        check_own(self._request, topics)
        return topics

    async def copy_dead_letters(self, call: PollCall, grant: Grant) -> Grant:
        """Copies the dead letters of a grant, and asks again for positions behind them.

        One that cannot be copied is delivered again: its group's history says why.
        """
        if not grant.dead:
            return grant
        errors: list[str] = []
        for begin in range(0, len(grant.dead), COPIES_AT_ONCE):
            errors += await asyncio.gather(*map(self._copy, grant.dead[begin : begin + COPIES_AT_ONCE]))
        letters = [letter for letter, error in zip(grant.dead, errors, strict=True) if not error]
        copied = tuple(Position(letter.topic, letter.topic_id, letter.partition, letter.last + 1) for letter in letters)
        return await self.grant(structs.replace(call, copied=copied, copy_error=max(errors)))

    async def wait_stored(self, grant: Grant) -> None:
        """Waits until what the grant shows is durable."""
        if grant.sequence:
            call = StoredCall(grant.hosting, grant.sequence)
            await self._context.coordinators.call(STORED, None, self._group, call)

    async def _copy(self, letter: DeadLetter) -> str:
        """Copies a dead letter, and returns why it is not copied; nothing if it is."""
        try:
            await self._context.copy_dead_letter(letter)
        except (EngineError, Problem) as error:
            return f"{letter.dead_letter_topic}: {error}"[:ERROR_CHARACTERS]
        return ""

    async def find_starts(self, call: PollCall, grant: Grant) -> Grant:
        """Gives partitions without a position their first one, also those that another member gives up meanwhile.

        Raises Problem no_committed_offset, CoordinatorMoved.
        """
        while without := [position for position in grant.assignment if position.offset < 0]:
            if grant.start == "error" and any(position.offset == START_POLICY for position in without):
                raise Problem(
                    "no_committed_offset",
                    f"group {self._group!r} has no position of partition {without[0].partition} of topic "
                    f"{without[0].topic!r}, and its setting start is error; commit or reset its positions",
                )
            timestamp = grant.start_time_ms if grant.start == "time" else None
            try:
                all_bounds = await find_bounds(self._context.router, [position.slot for position in without], timestamp)
            except UnknownTopic as error:  # deleted since the grant: the next one is without it
                raise CoordinatorMoved(f"group {self._group!r}: {error}") from error
            starts = [
                structs.replace(position, offset=_start(position.offset, grant.start, partition_bounds))
                for position, partition_bounds in zip(without, all_bounds, strict=True)
            ]
            grant = await self.grant(call, starts)
        return grant


def _start(offset: int, start: str, partition_bounds: Positions) -> int:
    if offset != START_POLICY or start == "earliest":
        return partition_bounds["log_start"]
    at_time = partition_bounds["offset"] if start == "time" else None
    return partition_bounds["high_watermark"] if at_time is None else at_time
