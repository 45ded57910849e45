"""Keeps the rules and tokens in the coordination store, and follows their changes.

/access/head             JSON: the generation, the generation of each block, and the format of all of it
/access/<kind>/<block>   JSON: some items of a kind (KINDS), and the generation of their last change

An item is in the block that the hash of its id gives, so that 5,000 rules stay below the limit of a value. A change is
one commit of its block and of the head, by compare-and-set. A node follows the head alone, and reads the blocks that
have changed. Invariants: the state is always that of one head; the last one stays while the store does not answer, and
while the store has what this version does not understand: that is Corrupt, and never an empty state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct

from engine.errors import Corrupt, Invalid
from gateway.access.state import KINDS, AccessState, Change, changed
from gateway.http.problems import Problem
from replication.cluster.values import check_format, decode_value
from replication.coordination.interface import Conflict, Create, Operation, Put, Session, Versioned

log = logging.getLogger("penstock.gateway")

HEAD = "/access/head"
FORMAT = 1
REREAD_S = 1.0  # what is not understood may be mended without a new head


class _Head(Struct):
    generation: int
    blocks: dict[str, int] = {}
    format: int = 1


class _Block(NamedTuple):
    """A block as it was read."""

    generation: int
    seen: Versioned
    items: tuple[Any, ...]


class AccessStore:
    """The rules and tokens in one coordination store. A session is given to each call, since sessions end."""

    def __init__(self) -> None:
        self.state = AccessState()
        self._head: Versioned | None = None
        self._blocks: dict[str, _Block] = {}
        self._reading = asyncio.Lock()
        self._not_understood = ""
        self.confirmed_at: float | None = None  # when the last answered reading was asked for, by the loop's clock

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind}={len(getattr(self.state, kind))}" for kind in KINDS)
        return f"AccessStore({self.state.generation}, {counts})"

    async def read(self, session: Session) -> AccessState:
        """Reads what has changed, and returns the state. Raises Corrupt, EngineError of the store."""
        async with self._reading:
            began = asyncio.get_running_loop().time()
            state = await self._read(session, await session.get_latest(HEAD))
            self.confirmed_at = began
            return state

    async def change(self, session: Session, change: Change) -> AccessState:
        """Makes a change, and returns the state after it. Raises Problem, Corrupt, EngineError of the store."""
        async with self._reading:
            while True:
                seen = await session.get_latest(HEAD)
                if seen is None and self._head is not None:
                    raise Corrupt(f"the coordination store's {HEAD} is gone", hint="restore the coordination store")
                after = changed(await self._read(session, seen), change)
                try:
                    await session.commit(*self._commit(after))
                except Conflict:
                    continue  # another node has made a change: decide again
                except Invalid as error:
                    raise Problem("too_many_rules", str(error)) from None
                return await self._read(session, await session.get_latest(HEAD))

    async def follow(self, session: Session, on_state: Callable[[], Awaitable[None]]) -> None:
        """Reads each new state until the session is lost, and calls `on_state` after each reading. Raises SessionLost.

        The first reading is at once: a former session may have missed a state, and other calls read states too.
        """
        head = None
        while True:
            head = await session.wait_for_change(HEAD, head)
            try:
                async with self._reading:
                    await self._read(session, head)
            except Corrupt as error:
                self._note(str(error))
                await asyncio.sleep(REREAD_S)
                head = None
                continue
            self._note("")
            await on_state()

    def _note(self, not_understood: str) -> None:
        """Logs once what is not understood, and once that it is mended."""
        if not_understood and not_understood != self._not_understood:
            log.error("the rules of generation %d hold on: %s", self.state.generation, not_understood)
        elif self._not_understood and not not_understood:
            log.warning("the rules of the coordination store are understood again")
        self._not_understood = not_understood

    async def _read(self, session: Session, seen: Versioned | None) -> AccessState:
        while seen is not None and seen != self._head:  # a store that was emptied changes nothing here
            head = decode_value(HEAD, seen.value, _head_from)
            is_same = self._head is not None and self._head.created == seen.created
            blocks, wrong = {}, ""
            for name, generation in head.blocks.items():
                block = self._blocks.get(name) if is_same else None
                if block is None or block.generation != generation:
                    block = await _read_block(session, name)
                if block is None:
                    wrong = f"the coordination store has no /access/{name}, which {HEAD} names"
                elif block.generation != generation:
                    wrong = f"the coordination store's /access/{name} is not of the generation that {HEAD} names"
                else:
                    blocks[name] = block
            if wrong:  # a block has changed since the head was read, or the store is damaged
                latest = await session.get_latest(HEAD)
                if latest == seen:
                    raise Corrupt(wrong, hint="restore the coordination store")
                seen = latest
                continue
            self._head, self._blocks, self.state = seen, blocks, _state(head.generation, blocks)
        return self.state

    def _commit(self, after: AccessState) -> list[Operation]:
        """Returns the operations that make this state of the present one."""
        blocks: dict[str, list[Any]] = {name: [] for name in self._blocks}
        for kind, of in KINDS.items():
            for item in getattr(after, kind):
                blocks.setdefault(f"{kind}/{crc32(item.id.encode()) % of.blocks}", []).append(item)
        head = _Head(after.generation, {name: block.generation for name, block in self._blocks.items()}, FORMAT)
        operations: list[Operation] = []
        for name, new in blocks.items():
            known = self._blocks.get(name)
            if known is None or tuple(new) != known.items:
                head.blocks[name] = after.generation
                items = [_stored(item) for item in new]
                value = msgspec.json.encode({"generation": after.generation, "items": items})
                operations.append(_write(f"/access/{name}", value, None if known is None else known.seen))
        return [_write(HEAD, msgspec.json.encode(head), self._head), *operations]


def _head_from(plain: Any) -> _Head:
    check_format(HEAD, plain.get("format", 1), FORMAT)
    return msgspec.convert(plain, _Head)


def _state(generation: int, blocks: dict[str, _Block]) -> AccessState:
    items: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for name, block in blocks.items():
        items[_kind_of(name)] += block.items
    return AccessState(generation, **{kind: tuple(sorted(of, key=lambda item: item.id)) for kind, of in items.items()})


def _kind_of(name: str) -> str:
    return name.partition("/")[0]


async def _read_block(session: Session, name: str) -> _Block | None:
    """Returns a block; None: it is gone. Raises Corrupt."""
    key, kind = f"/access/{name}", KINDS.get(_kind_of(name))
    if kind is None:
        text = f"the coordination store has {key}, a kind of rules that this version of penstock does not know"
        raise Corrupt(text, hint="start the version that wrote it")
    seen = await session.get(key)
    return None if seen is None else decode_value(key, seen.value, partial(_block_from, seen, kind.items))


def _block_from(seen: Versioned, items: Any, plain: Any) -> _Block:
    return _Block(plain["generation"], seen, msgspec.convert(plain["items"], items))


def _stored(item: Any) -> dict[str, Any]:
    """Returns an item as it is stored: a version without tenants reads those that are of none."""
    fields: dict[str, Any] = msgspec.to_builtins(item)
    return {name: value for name, value in fields.items() if name != "tenant" or value is not None}


def _write(key: str, value: bytes, seen: Versioned | None) -> Operation:
    return Create(key, value) if seen is None else Put(key, value, seen.version)
