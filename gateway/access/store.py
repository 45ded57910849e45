"""Keeps the rules and tokens in the coordination store, and follows their changes.

/access/head             JSON: the generation, and the generation of each block
/access/rules/<block>    JSON: some of the rules, and the generation of their last change
/access/tokens/<block>   JSON: some of the tokens: hashes, and never a text

An item is in the block that the hash of its id gives, so that 5,000 rules stay below the limit of a value. A change is
one commit of its block and of the head, by compare-and-set. A node follows the head alone, and reads the blocks that
have changed. Invariant: the state is always that of one head; the last one stays while the store does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from engine.errors import Invalid
from gateway.access.rules import Rule
from gateway.access.state import AccessState, Change, StoredToken, changed
from gateway.http.problems import Problem
from replication.coordination.interface import Conflict, Create, Operation, Put, Session, Versioned

HEAD = "/access/head"
BLOCKS = 16  # of the rules, and of the tokens: 300 rules a block at most, some 100 KiB
_KINDS: dict[str, Any] = {"rules": tuple[Rule, ...], "tokens": tuple[StoredToken, ...]}


class _Head(Struct):
    generation: int = 0
    blocks: dict[str, int] = {}


class _Stored(Struct):
    generation: int
    items: msgspec.Raw


class _Block(Struct, frozen=True):
    """A block as it was read."""

    generation: int
    seen: Versioned
    items: tuple[Rule, ...] | tuple[StoredToken, ...]


class AccessStore:
    """The rules and tokens in one coordination store. A session is given to each call, since sessions end."""

    def __init__(self) -> None:
        self.state = AccessState()
        self._head: Versioned | None = None
        self._blocks: dict[str, _Block] = {}
        self._reading = asyncio.Lock()

    def __repr__(self) -> str:
        return f"AccessStore({self.state.generation}, rules={len(self.state.rules)}, tokens={len(self.state.tokens)})"

    async def read(self, session: Session) -> AccessState:
        """Reads what has changed, and returns the state. Raises EngineError of the store."""
        async with self._reading:
            return await self._read(session, await session.get_latest(HEAD))

    async def change(self, session: Session, change: Change) -> AccessState:
        """Makes a change, and returns the state after it. Raises Problem, EngineError of the store."""
        async with self._reading:
            while True:
                before = await self._read(session, await session.get_latest(HEAD))
                after = changed(before, change)
                try:
                    await session.commit(*self._commit(after))
                except Conflict:
                    continue  # another node has made a change: decide again
                except Invalid as error:
                    raise Problem("too_many_rules", str(error)) from None
                return await self._read(session, await session.get_latest(HEAD))

    async def follow(self, session: Session, on_state: Callable[[AccessState], Awaitable[None]]) -> None:
        """Gives each new state until the session is lost. Raises SessionLost."""
        head = self._head
        while True:
            head = await session.wait_for_change(HEAD, head)
            async with self._reading:
                await self._read(session, head)
            await on_state(self.state)

    async def _read(self, session: Session, seen: Versioned | None) -> AccessState:
        while seen is not None and seen != self._head:  # a store that was emptied changes nothing here
            head = msgspec.json.decode(seen.value, type=_Head)
            newer = False
            for name, generation in head.blocks.items():
                known = self._blocks.get(name)
                if known is None or known.generation != generation:
                    self._blocks[name] = block = await _read_block(session, name)
                    newer = newer or block.generation != generation
            if newer:  # it was changed between the reads
                seen = await session.get_latest(HEAD)
                continue
            self._head, self.state = seen, self._state(head.generation)
        return self.state

    def _state(self, generation: int) -> AccessState:
        items: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
        for name, block in self._blocks.items():
            items[name.partition("/")[0]] += block.items
        rules, tokens = (tuple(sorted(items[kind], key=lambda item: item.id)) for kind in _KINDS)
        return AccessState(generation, rules, tokens)

    def _commit(self, after: AccessState) -> list[Operation]:
        """Returns the operations that make this state of the present one."""
        blocks: dict[str, list[Rule | StoredToken]] = {name: [] for name in self._blocks}
        for kind, items in (("rules", after.rules), ("tokens", after.tokens)):
            for item in items:
                blocks.setdefault(f"{kind}/{crc32(item.id.encode()) % BLOCKS}", []).append(item)
        head = _Head(after.generation, {name: block.generation for name, block in self._blocks.items()})
        operations: list[Operation] = []
        for name, new in blocks.items():
            known = self._blocks.get(name)
            if known is None or tuple(new) != known.items:
                head.blocks[name] = after.generation
                value = msgspec.json.encode({"generation": after.generation, "items": new})
                operations.append(_write(f"/access/{name}", value, None if known is None else known.seen))
        return [_write(HEAD, msgspec.json.encode(head), self._head), *operations]


async def _read_block(session: Session, name: str) -> _Block:
    seen = await session.get(f"/access/{name}")
    assert seen is not None, f"/access/{name} is in the head"
    stored = msgspec.json.decode(seen.value, type=_Stored)
    items = msgspec.json.decode(stored.items, type=_KINDS[name.partition("/")[0]])
    return _Block(stored.generation, seen, items)


def _write(key: str, value: bytes, seen: Versioned | None) -> Operation:
    return Create(key, value) if seen is None else Put(key, value, seen.version)
