"""Calls the owners of one reader's partitions: one wait and one read for each owner, however many partitions it owns.

Both ends: the calls of a handler, and their execution in another process. It does not know HTTP. In a cluster the owner
of a partition is its leader, which is looked up before each call; a partition without a leader has nothing to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from engine.errors import UnknownTopic
from engine.partition.high_watermark import PositionWaiters
from engine.runtime.loop_waits import loop_waits
from engine.runtime.tasks import start_task
from gateway.fetch import partition_reads
from gateway.fetch.context import FetchContext, ReadContext
from gateway.fetch.reader import (
    Available,
    Limits,
    PartitionRead,
    find_source,
    quiet_waits,
    wait_readable,
)
from gateway.fetch.rendered_cache import Part
from gateway.fetch.request import JSON, NDJSON, SCHEMA
from gateway.fetch.schema_values import decode_values
from gateway.http.lifecycle import DRAINING
from gateway.http.problems import ProblemFields
from gateway.links.link import Answer, Busy, Handler, LinkDown, LinkLost, handler
from gateway.routing.peers import Owner
from replication.errors import NoLeader, NotLeader, OffsetNotAvailable

T = TypeVar("T")

CALL_S = 30.0  # the owner's time limit beyond the requested wait
MOVED_PAUSE_S = 0.1  # before another look-up of a leader; a change of leaders ends it early
BUSY = ProblemFields("overloaded", "the process that owns the partition is restarting", {})
NOBODY = ProblemFields(NoLeader.code, "the partition has no leader", {})
MOVING = (NoLeader.code, NotLeader.code, OffsetNotAvailable.code)  # while leadership moves, which is short

# One call with two names: a node of an earlier version would ignore the filters of the first.
READ, READ_FILTERED = "read_many", "read_many_filtered"

_NOTHING = Available(0, has_problem=False)
_UNREACHABLE = LinkDown(BUSY.detail)


class WaitArguments(Struct, frozen=True, array_like=True):
    """A wait at one owner, until its entries have `enough_bytes` together."""

    entries: list[PartitionRead]
    enough_bytes: int


class ReadArguments(Struct, frozen=True, array_like=True):
    """A read at one owner, of the records that pass the filters. `partition_bytes_max`: of one partition."""

    entries: list[PartitionRead]
    limits: Limits
    filters: tuple[str, ...] = ()
    partition_bytes_max: int | None = None


class MultiFetch:
    """Entries of one reader, grouped by their owners. Their offsets may be advanced between two reads."""

    def __init__(
        self,
        context: FetchContext,
        entries: Sequence[PartitionRead],
        filters: tuple[str, ...] = (),
        partition_bytes_max: int | None = None,
    ) -> None:
        assert entries, "a wait needs at least one partition"
        self.entries = list(entries)
        self._filters = filters
        self._partition_bytes_max = partition_bytes_max
        self._context = context
        self._by_owner: dict[Owner | None, list[int]] = {}
        self._available: dict[Owner | None, Available] = {}
        self._group()

    def _group(self) -> None:
        """Groups the entries by their present owner; None: the partition has no leader."""
        peers = self._context.peers
        self._grouped_at = peers.leader_changes
        if not peers.has_others:
            self._by_owner = {Owner(None, peers.index): list(range(len(self.entries)))}
            self._available = dict.fromkeys(self._by_owner, _NOTHING)
            return
        by_owner: dict[Owner | None, list[int]] = {}
        for index, one in enumerate(self.entries):
            try:
                owner = peers.owner(one.topic_id, one.partition)
            except NoLeader:
                by_owner.setdefault(None, []).append(index)
                continue
            by_owner.setdefault(owner, []).append(index)
            if (epoch := peers.known_epoch(one.topic_id, one.partition)) > one.leader_epoch:
                self.entries[index] = one._replace(leader_epoch=epoch)
        if by_owner != self._by_owner:
            self._by_owner = by_owner
            self._available = dict.fromkeys(by_owner, _NOTHING)

    def _regroup(self) -> None:
        if self._grouped_at != self._context.peers.leader_changes:
            self._group()

    async def check_available(self) -> Available:
        """Return the readable bytes now; not exact: enough to distinguish something from nothing."""
        self._regroup()
        results = await _all_of([self._available_at(owner, 0) for owner in self._by_owner])
        self._available = dict(zip(self._by_owner, results, strict=True))
        return _merged(self._available)

    def quiet_waits(self) -> list[tuple[PositionWaiters, int]] | None:
        """Returns the waits for all entries, if they are of this process, readable, and have no records yet."""
        return quiet_waits(self._context.reads, self.entries) if self._is_here() else None

    def _is_here(self) -> bool:
        self._regroup()
        return all(owner is not None and self._context.peers.is_local(owner) for owner in self._by_owner)

    @property
    def is_quiet(self) -> bool:
        """True if the last look found every entry readable, and no records."""
        return not any(one.size_bytes or one.has_problem or one.has_moved for one in self._available.values())

    async def wait(
        self, min_bytes: int, wait_s: float, until: asyncio.Future[Any] | None = None, looked: Available | None = None
    ) -> None:
        """Return when the owners have `min_bytes`, an entry has a problem, a shard drains or the time is over.

        Return also once `until` is done. `looked`: what `check_available` has returned, if nothing ran in between.
        """
        draining = self._context.lifecycle.draining
        over = draining.wait_for(DRAINING)
        if until is not None:
            until.add_done_callback(lambda _: _end(over))
        bucket = loop_waits().deadlines.put(asyncio.get_running_loop().time() + wait_s, over, _end)
        try:
            while not over.done():
                self._regroup()
                total = _merged(self._available)
                missing = min_bytes - total.size_bytes
                if missing <= 0 or total.has_problem:
                    return
                # If all together reach the missing bytes, then one of them reaches an even part of them.
                part = -(-missing // len(self._by_owner))
                enough = {owner: self._available[owner].size_bytes + part for owner in self._by_owner}
                found = await self._wait_first_available(enough, wait_s, over, looked)
                looked = None
                self._available |= found
                if any(one.size_bytes < enough[owner] and not one.has_moved for owner, one in found.items()):
                    return
        finally:
            bucket.pop(over, None)
            draining.give_up(DRAINING, over)

    async def wait_for_any(self, wait_s: float) -> None:
        """Wait as `wait` does for the first byte, after a look that found nothing."""
        self._regroup()
        self._available = dict.fromkeys(self._by_owner, _NOTHING)
        await self.wait(1, wait_s)

    async def read_with_retries(self, limits: Limits) -> list[Part]:
        """Read as `read` does; if nothing is readable and the problem is transient, wait for its end."""
        parts = await self.read(limits)
        if not _is_retriable(parts) or not self._context.router.may_retry(_UNREACHABLE):
            return parts
        budget = self._context.budgets.begin()
        while _is_retriable(parts):
            try:
                await budget.pause(_UNREACHABLE)
            except LinkDown:
                return parts
            parts = await self.read(limits)
        return parts

    async def read(self, limits: Limits, *, with_keys: bool = False) -> list[Part]:
        """Return what is readable of each entry, in their order. `with_keys`: as `decode_values` has it."""
        if limits.value != SCHEMA:
            return await self._read(limits)
        parts = await self._read(limits._replace(value="base64"))
        bodies = [part.body if part.record_count else b"" for part in parts]
        media_type, context = NDJSON if limits.as_lines else JSON, self._context
        decoding = decode_values(
            list(filter(None, bodies)), media_type, context.schemas, context.offload, with_keys=with_keys
        )
        decoded = iter(await decoding)
        return [part._replace(body=next(decoded)) if body else part for part, body in zip(parts, bodies, strict=True)]

    async def _read(self, limits: Limits) -> list[Part]:
        self._regroup()
        owners = list(self._by_owner)
        if limits.max_records is None:
            full = sum(self._available[owner].size_bytes > 0 for owner in owners if owner in self._available) or len(
                owners
            )
            share = limits._replace(max_bytes=max(1, limits.max_bytes // full))
            reads = await _all_of([self._read_at(owner, share) for owner in owners])
            return self._in_order(dict(zip(owners, reads, strict=True)))
        parts: dict[Owner | None, list[Part]] = {}
        rotation = limits.rotation
        limits = limits._replace(rotation=rotation // max(1, len(owners)))  # else an owner begins at every n-th only
        for step in range(len(owners)):  # one after the other: only then is the number of records left known
            owner = owners[(rotation + step) % len(owners)]
            parts[owner] = await self._read_at(owner, limits)
            records_left = max(0, (limits.max_records or 0) - sum(part.record_count for part in parts[owner]))
            limits = limits._replace(max_records=records_left)
        return self._in_order(parts)

    def read_now(self, limits: Limits) -> list[Part] | None:
        """Returns what `read` returns; None if that has to wait, filter or decode, or if an entry has a problem."""
        if self._filters or limits.value == SCHEMA or not self._is_here():
            return None
        return partition_reads.read_many_now(self._context.reads, self.entries, limits, self._partition_bytes_max)

    def advance(self, index: int, next_offset: int) -> None:
        """Advance the entry: it has been read up to `next_offset`."""
        self.entries[index] = self.entries[index]._replace(offset=next_offset)

    def advance_over(self, parts: Sequence[Part]) -> bool:
        """Advance over records that did not pass the filters. False: there is an answer, or nothing more to look at."""
        is_empty = not any(part.record_count or part.problem is not None for part in parts)
        if not self._filters or not is_empty:
            return False
        has_advanced = any(part.next_offset > one.offset for part, one in zip(parts, self.entries, strict=True))
        for index, part in enumerate(parts):
            self.advance(index, part.next_offset)
        return has_advanced

    def _in_order(self, by_owner: dict[Owner | None, list[Part]]) -> list[Part]:
        parts: dict[int, Part] = {}
        for owner, indexes in self._by_owner.items():
            parts |= zip(indexes, by_owner[owner], strict=True)
        return [parts[index] for index in range(len(self.entries))]

    async def _wait_first_available(
        self, enough: dict[Owner | None, int], wait_s: float, over: asyncio.Future[int], looked: Available | None
    ) -> dict[Owner | None, Available]:
        """Ask every owner to report when it has enough, and stop asking as soon as one does, or once `over` is done."""
        if len(enough) == 1:
            [(owner, size)] = enough.items()
            if owner is not None and self._context.peers.is_local(owner):  # the usual case, without a task
                sources = [find_source(self._context.reads, one) for one in self.entries]
                found = await wait_readable(self._context.reads, sources, size, over=over, looked=looked)
                await self._pause_if_moved(found)
                return {owner: found}
        waits = {owner: start_task(self._available_at(owner, size, wait_s)) for owner, size in enough.items()}
        try:
            futures: list[asyncio.Future[Any]] = [*waits.values(), over]
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            return {owner: wait.result() for owner, wait in waits.items() if wait.done()}
        finally:
            for task in waits.values():
                task.cancel()

    async def _available_at(self, owner: Owner | None, enough_bytes: int, wait_s: float = 0.0) -> Available:
        entries, reads = [self.entries[index] for index in self._by_owner[owner]], self._context.reads
        if owner is None:
            found = Available(0, has_problem=any(map(self._is_deleted, entries)), has_moved=True)
        elif self._context.peers.is_local(owner):
            found = await wait_readable(reads, [find_source(reads, one) for one in entries], enough_bytes)
        else:
            try:
                link = self._context.peers.link(owner)
                fields, _ = await link.call(
                    "wait_many", WaitArguments(entries, enough_bytes), timeout_s=wait_s + CALL_S
                )
                found = Available(*fields)
            except (Busy, LinkLost):
                is_moving = self._context.router.may_retry(_UNREACHABLE)
                found = Available(0, has_problem=not is_moving, has_moved=is_moving)
        if enough_bytes:  # meanwhile wait for the others
            await self._pause_if_moved(found)
        return found

    async def _pause_if_moved(self, found: Available) -> None:
        if found.has_moved:
            await self._context.peers.wait_leader_change(self._context.budgets.jitter(MOVED_PAUSE_S))

    async def _read_at(self, owner: Owner | None, limits: Limits) -> list[Part]:
        entries = [self.entries[index] for index in self._by_owner[owner]]
        filters, bytes_max = self._filters, self._partition_bytes_max
        if owner is None:
            return [Part(one.offset, 0, [], self._why_nobody(one), b"") for one in entries]
        if self._context.peers.is_local(owner):
            return await partition_reads.read_many(self._context.reads, entries, limits, filters, bytes_max)
        try:
            link = self._context.peers.link(owner)
            arguments = ReadArguments(entries, limits, filters, bytes_max)
            call = READ_FILTERED if filters or bytes_max is not None else READ
            heads, bodies = await link.call(call, arguments, timeout_s=CALL_S)
        except (Busy, LinkLost):
            return [Part(one.offset, 0, [], BUSY, b"") for one in entries]
        return _unpacked(heads, bodies)

    def _is_deleted(self, one: PartitionRead) -> bool:
        """Returns whether the topic is gone; another one may have its name."""
        found = self._context.topics.get(one.topic)
        return found is None or found.record.topic_id != one.topic_id

    def _why_nobody(self, one: PartitionRead) -> ProblemFields:
        """Returns why a partition has no leader: its topic may have been deleted."""
        if self._is_deleted(one):
            return ProblemFields(UnknownTopic.code, f"topic {one.topic!r} has been deleted", {})
        return NOBODY


def multi_fetch_handlers(context: ReadContext) -> Mapping[str, Handler]:
    """Return the handlers of calls for partitions of this shard."""

    async def wait_many(arguments: WaitArguments, _: bytes) -> tuple[Available, bytes]:
        sources = [find_source(context, one) for one in arguments.entries]
        return await wait_readable(context, sources, arguments.enough_bytes), b""

    async def read_many(one: ReadArguments, _: bytes) -> Answer:
        bytes_max = one.partition_bytes_max
        return _packed(await partition_reads.read_many(context, one.entries, one.limits, one.filters, bytes_max))

    return {
        "wait_many": handler(WaitArguments, wait_many),
        READ: handler(ReadArguments, read_many),
        READ_FILTERED: handler(ReadArguments, read_many),
    }


def _packed(parts: Sequence[Part]) -> Answer:
    heads = [(part.next_offset, part.record_count, part.line_ends, part.problem, len(part.body)) for part in parts]
    return heads, b"".join(part.body for part in parts)


async def _all_of(calls: list[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of these calls. A single one, which is usual, needs no task."""
    return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)


def _end(over: asyncio.Future[int]) -> None:
    if not over.done():
        over.set_result(DRAINING)


def _merged(found: Mapping[Owner | None, Available]) -> Available:
    return Available(sum(one.size_bytes for one in found.values()), any(one.has_problem for one in found.values()))


def _is_retriable(parts: Sequence[Part]) -> bool:
    """Return whether the parts have no record and no lasting problem, but a transient one."""
    codes = {part.problem.code for part in parts if part.problem is not None}
    return bool(codes) and codes <= {*MOVING, BUSY.code} and not any(part.record_count for part in parts)


def _unpacked(heads: Any, bodies: bytes) -> list[Part]:
    parts, position = [], 0
    for next_offset, record_count, line_ends, problem, size in heads:
        body = bodies[position : position + size]
        refused = None if problem is None else ProblemFields(*problem)
        parts.append(Part(next_offset, record_count, line_ends, refused, body))
        position += size
    return parts
