"""One reader's partitions, brought to the shards that own them: one wait and one read an owner, however many it owns.

Both ends: what a handler asks, and what is done for a handler in another shard. It knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gateway import many_reads
from gateway.link import Busy, Handler, LinkLost
from gateway.many_reads import Found, Limits, Part, ProblemFields, Wanted
from gateway.node import Node

CALL_S = 30.0  # what an owner may take beyond the wait that was asked for
BUSY: ProblemFields = ("overloaded", "the process that owns the partition is restarting", {})


class ManyPartitions:
    """Entries of one reader. They may be moved on between two reads; which shard owns them stays."""

    def __init__(self, node: Node, wanted: Sequence[Wanted]) -> None:
        assert wanted, "nobody waits for nothing"
        self.wanted = list(wanted)
        self._node = node
        self._by_owner: dict[int, list[int]] = {}
        self._found: dict[int, Found] = {}
        for index, one in enumerate(wanted):
            self._by_owner.setdefault(node.peers.owner(one.topic_id, one.partition), []).append(index)

    async def look(self) -> Found:
        """What there is now; not exact: enough to tell something from nothing."""
        founds = await asyncio.gather(*(self._found_at(owner, 0) for owner in self._by_owner))
        self._found = dict(zip(self._by_owner, founds, strict=True))
        return _together(self._found)

    async def wait(self, min_bytes: int, wait_s: float) -> None:
        """Return when the owners together have so much, an entry has a problem, a shard drains or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._node.is_draining:
                    total = _together(self._found)
                    missing = min_bytes - total.size_bytes
                    if missing <= 0 or total.has_problem:
                        return
                    # If all together get what is missing, then one of them gets an even part of it.
                    part = -(-missing // len(self._by_owner))
                    enough = {owner: self._found[owner].size_bytes + part for owner in self._by_owner}
                    found = await self._first_to_have(enough, wait_s)
                    self._found |= found
                    if any(one.size_bytes < enough[owner] for owner, one in found.items()):
                        return

    async def wait_for_any(self, wait_s: float) -> None:
        """As wait, for whatever comes first, when nothing was there at the last look."""
        self._found = dict.fromkeys(self._by_owner, Found(0, has_problem=False))
        await self.wait(1, wait_s)

    async def read(self, limits: Limits) -> list[Part]:
        """What there is for each entry, in their order."""
        owners = list(self._by_owner)
        if limits.max_records is None:
            full = sum(self._found[owner].size_bytes > 0 for owner in owners if owner in self._found) or len(owners)
            share = limits._replace(max_bytes=max(1, limits.max_bytes // full))
            reads = await asyncio.gather(*(self._read_at(owner, share) for owner in owners))
            return self._in_order(dict(zip(owners, reads, strict=True)))
        parts: dict[int, list[Part]] = {}
        for step in range(len(owners)):  # one after the other: how many records are left is known only then
            owner = owners[(limits.turn + step) % len(owners)]
            parts[owner] = await self._read_at(owner, limits)
            records_left = max(0, (limits.max_records or 0) - sum(part.record_count for part in parts[owner]))
            limits = limits._replace(max_records=records_left)
        return self._in_order(parts)

    def move_on(self, index: int, next_offset: int) -> None:
        """The entry has been read up to here."""
        self.wanted[index] = self.wanted[index]._replace(offset=next_offset)

    def _in_order(self, by_owner: dict[int, list[Part]]) -> list[Part]:
        parts: dict[int, Part] = {}
        for owner, indexes in self._by_owner.items():
            parts |= zip(indexes, by_owner[owner], strict=True)
        return [parts[index] for index in range(len(self.wanted))]

    async def _first_to_have(self, enough: dict[int, int], wait_s: float) -> dict[int, Found]:
        """Ask every owner to say when it has so much, and stop asking as soon as one does, or drains."""
        waits = {owner: asyncio.ensure_future(self._found_at(owner, size, wait_s)) for owner, size in enough.items()}
        draining = asyncio.ensure_future(self._node.draining.wait())
        try:
            await asyncio.wait([*waits.values(), draining], return_when=asyncio.FIRST_COMPLETED)
            return {owner: wait.result() for owner, wait in waits.items() if wait.done()}
        finally:
            for task in (*waits.values(), draining):
                task.cancel()

    async def _found_at(self, owner: int, enough_bytes: int, wait_s: float = 0.0) -> Found:
        wanted = [self.wanted[index] for index in self._by_owner[owner]]
        if owner == self._node.peers.index:
            return await many_reads.wait(self._node, wanted, enough_bytes)
        try:
            link = self._node.peers.link(owner)
            found, _ = await link.call("wait_many", (wanted, enough_bytes), timeout_s=wait_s + CALL_S)
        except (Busy, LinkLost):
            return Found(0, has_problem=True)
        return Found(*found)

    async def _read_at(self, owner: int, limits: Limits) -> list[Part]:
        wanted = [self.wanted[index] for index in self._by_owner[owner]]
        if owner == self._node.peers.index:
            return await many_reads.read(self._node, wanted, limits)
        try:
            link = self._node.peers.link(owner)
            heads, bodies = await link.call("read_many", (wanted, limits), timeout_s=CALL_S)
        except (Busy, LinkLost):
            return [Part(one.offset, 0, [], BUSY, b"") for one in wanted]
        return _unpacked(heads, bodies)


def handlers_of_many(node: Node) -> Mapping[str, Handler]:
    """What this shard does when another one asks for its partitions."""

    async def wait_many(arguments: Any, _: bytes) -> tuple[Any, bytes]:
        wanted, enough_bytes = arguments
        return await many_reads.wait(node, [Wanted(*one) for one in wanted], enough_bytes), b""

    async def read_many(arguments: Any, _: bytes) -> tuple[Any, bytes]:
        wanted, limits = arguments
        parts = await many_reads.read(node, [Wanted(*one) for one in wanted], Limits(*limits))
        heads = [(part.next_offset, part.record_count, part.line_ends, part.problem, len(part.body)) for part in parts]
        return heads, b"".join(part.body for part in parts)

    return {"wait_many": wait_many, "read_many": read_many}


def _together(found: Mapping[int, Found]) -> Found:
    return Found(sum(one.size_bytes for one in found.values()), any(one.has_problem for one in found.values()))


def _unpacked(heads: Any, bodies: bytes) -> list[Part]:
    parts, position = [], 0
    for next_offset, record_count, line_ends, problem, size in heads:
        body = bodies[position : position + size]
        parts.append(Part(next_offset, record_count, line_ends, None if problem is None else tuple(problem), body))
        position += size
    return parts
