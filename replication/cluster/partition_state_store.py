"""The blocks of partition states, as this process has last seen them, and changes of them by compare-and-set.

A change names the partition_epoch that it follows; the block's own version only guards against writers of its other
partitions, and is tried again when one was faster. Many blocks go into one commit, so that a node that dies with 3,000
partitions costs a few. Not who may change what: a controller's writes carry the fence of its latch.
Invariants: one commit under way at a time; what is known of a block is never replaced by an older reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.runtime.tasks import in_background
from replication.cluster.keys import block_key, block_of, topic_id_of
from replication.cluster.values import (
    Confirmed,
    NotKnown,
    Outcome,
    Proposal,
    Refused,
    block_from_bytes,
    block_to_bytes,
)
from replication.cluster.view import StateChange
from replication.coordination.interface import Check, Conflict, Put, Session, SessionLost, Unsure, Versioned
from replication.cores.partition_state import VersionedState

COMMIT_BYTES_MAX = 512 * 1024  # ZooKeeper takes 1 MiB in one request
CHECKS_MAX = 1000  # in one commit: a check takes about 100 bytes of a request
CONFIRM_AGAIN_S = (0.0, 0.01, 0.05, 0.1, 0.2)  # after a change that came first; a server may know of it a little late
GATHER_S = 0.002  # proposals of many partitions come in one burst: a node that dies is missed by all its leaders


class Deposed(Exception):
    """The fence of a write is broken: another controller has taken over. Nothing of the write was done."""


@dataclass(slots=True)
class _Block:
    seen: Versioned
    states: dict[int, VersionedState]


@dataclass(slots=True)
class _Wanted:
    """A change that waits for its turn."""

    proposal: Proposal
    fence: Check | None
    outcome: asyncio.Future[Outcome]

    @property
    def block(self) -> str:
        return block_of(self.proposal.topic_id, self.proposal.number)

    def settle(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class StateBlocks:
    """Of one session; `when_changed` hears of every state that is news, whoever wrote it."""

    def __init__(self, session: Session, when_changed: Callable[[list[StateChange]], None]) -> None:
        self.commits = 0
        self._session = session
        self._when_changed = when_changed
        self._blocks: dict[str, _Block] = {}
        self._waiting: list[_Wanted] = []
        self._writing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"StateBlocks(blocks={len(self._blocks)}, waiting={len(self._waiting)}, commits={self.commits})"

    def has(self, topic_id: str, number: int) -> bool:
        return block_of(topic_id, number) in self._blocks

    def versions_of(self, topic_id: str) -> dict[str, int]:
        """The blocks of a topic, each with its version."""
        return {name: block.seen.version for name, block in self._blocks.items() if topic_id_of(name) == topic_id}

    def topic_ids(self) -> set[str]:
        return {topic_id_of(name) for name in self._blocks}

    def adopt(self, read: Iterable[tuple[str, Versioned | None]]) -> None:
        """Blocks as they were read. Raises Corrupt."""
        news: list[StateChange] = []
        for name, seen in read:
            news += self._adopt(name, seen)
        if news:
            self._when_changed(news)

    async def write(self, proposals: Sequence[Proposal], fence: Check | None = None) -> list[Outcome]:
        """An outcome for each, in order; never raises for what a store does. Raises Deposed if the fence is broken."""
        loop = asyncio.get_running_loop()
        wanted = [_Wanted(proposal, fence, loop.create_future()) for proposal in proposals]
        self._waiting += wanted
        if self._writing is None or self._writing.done():
            self._writing = in_background(self._write_all(), "writing partition states", self._give_up)
        outcomes = await asyncio.gather(*(one.outcome for one in wanted), return_exceptions=True)
        failed = next((one for one in outcomes if isinstance(one, BaseException)), None)
        if failed is not None:
            raise failed
        return [one for one in outcomes if not isinstance(one, BaseException)]

    async def read(self, name: str) -> None:
        """Again, from the store. Raises SessionLost."""
        self.adopt([(name, await self._session.get(block_key(name)))])

    async def confirm(self, names: Sequence[str]) -> dict[str, Mapping[int, VersionedState]]:
        """The states of each block, as the store has them at some time after this call; without blocks that are gone.

        A read would not do: a server of ZooKeeper may answer it with what was true some time ago. A commit that only
        checks versions is ordered among all other commits. Raises SessionLost, Unsure, and Conflict if it goes on.
        """
        confirmed: dict[str, Mapping[int, VersionedState]] = {}
        for start in range(0, len(names), CHECKS_MAX):
            confirmed |= await self._confirm(names[start : start + CHECKS_MAX])
        return confirmed

    async def _confirm(self, names: Sequence[str]) -> dict[str, Mapping[int, VersionedState]]:
        for pause_s in CONFIRM_AGAIN_S:
            for name in names:
                if name not in self._blocks:
                    await self.read(name)
            known = {name: self._blocks[name] for name in names if name in self._blocks}
            try:
                if known:
                    await self._session.commit(*(Check(block_key(n), one.seen.version) for n, one in known.items()))
                return {name: block.states for name, block in known.items()}
            except Conflict:
                await asyncio.sleep(pause_s)
                for name in names:
                    await self.read(name)
        raise Conflict("the states of partitions change too often to be confirmed", hint="try again")

    def _adopt(self, name: str, seen: Versioned | None) -> list[StateChange]:
        known = self._blocks.get(name)
        if seen is None:
            self._blocks.pop(name, None)
            return []
        if known is not None and (known.seen.created, known.seen.version) >= (seen.created, seen.version):
            return []
        states = block_from_bytes(block_key(name), seen.value)
        return self._keep(name, _Block(seen, states))

    def _keep(self, name: str, block: _Block) -> list[StateChange]:
        known = self._blocks.get(name)
        before = {} if known is None else known.states
        self._blocks[name] = block
        topic_id = topic_id_of(name)
        return [(topic_id, n, found) for n, found in sorted(block.states.items()) if before.get(n) != found]

    async def _write_all(self) -> None:
        await asyncio.sleep(GATHER_S)
        is_first_try = True
        while self._waiting:
            batch, self._waiting = self._next_batch(is_first_try)
            try:
                is_first_try = await self._write(batch)
            except SessionLost:
                for one in batch:
                    one.settle(NotKnown())
                self._give_up()
            except Deposed as error:
                for one in batch:
                    one.fail(error)
            except Exception as error:  # the writers are told, each of them, and say it
                for one in batch:
                    one.fail(error)

    def _give_up(self) -> None:
        """Answers everyone who waits; what the store has will be read."""
        for one in self._waiting:
            one.settle(NotKnown())
        self._waiting = []

    def _next_batch(self, is_first_try: bool) -> tuple[list[_Wanted], list[_Wanted]]:
        """What goes into one commit: of one fence, of blocks that fit. After a conflict one block goes alone."""
        fence = self._waiting[0].fence
        batch: list[_Wanted] = []
        rest: list[_Wanted] = []
        taken: set[str] = set()
        changed: set[tuple[str, int]] = set()
        size = 0
        for one in self._waiting:
            name, key = one.block, (one.proposal.topic_id, one.proposal.number)
            known = self._blocks.get(name)
            cost = 0 if name in taken or known is None else len(known.seen.value) + 1000
            fits = name in taken or not taken or (is_first_try and size + cost <= COMMIT_BYTES_MAX)
            if one.fence == fence and fits and key not in changed:
                batch.append(one)
                taken.add(name)
                changed.add(key)
                size += cost
            else:
                rest.append(one)
        return batch, rest

    async def _write(self, batch: list[_Wanted]) -> bool:
        """One commit. What it did not do goes to the front of what waits. Returns whether it was a good guess."""
        fence = batch[0].fence
        due = await self._due(batch)
        if not due:
            return True
        blocks = {name: self._blocks[name] for name in due}
        after = {name: {**blocks[name].states, **self._states(wanted)} for name, wanted in due.items()}
        values = {name: block_to_bytes(states) for name, states in after.items()}
        puts = [Put(block_key(name), values[name], block.seen.version) for name, block in blocks.items()]
        try:
            self.commits += 1
            await self._session.commit(*([fence] if fence is not None else []), *puts)
        except (Conflict, Unsure):
            await self._reread(due, fence)
            return False
        news: list[StateChange] = []
        for name, block in blocks.items():
            seen = Versioned(values[name], block.seen.version + 1, block.seen.created)
            if self._blocks.get(name) is block:  # else the watch was faster
                news += self._keep(name, _Block(seen, after[name]))
        if news:
            self._when_changed(news)
        for wanted in due.values():
            for one in wanted:
                one.settle(Confirmed(one.proposal.partition_epoch + 1))
        return True

    async def _due(self, batch: list[_Wanted]) -> dict[str, list[_Wanted]]:
        """What can be tried, by block; the rest is settled."""
        due: dict[str, list[_Wanted]] = {}
        for name in {one.block for one in batch if self._is_behind(one)}:
            await self.read(name)
        for one in batch:
            outcome = self._judge(one)
            if outcome is None:
                due.setdefault(one.block, []).append(one)
            else:
                one.settle(outcome)
        return due

    def _is_behind(self, one: _Wanted) -> bool:
        found = self._found(one)
        return found is None or found.partition_epoch < one.proposal.partition_epoch

    def _judge(self, one: _Wanted) -> Outcome | None:
        """1. The epoch that it follows. 2. It is there already: a commit of ours whose answer was lost. 3. Refused."""
        found = self._found(one)
        if found is not None and found.partition_epoch == one.proposal.partition_epoch:
            return None
        if found == VersionedState(one.proposal.state, one.proposal.partition_epoch + 1):
            return Confirmed(one.proposal.partition_epoch + 1)
        return Refused(found)

    def _found(self, one: _Wanted) -> VersionedState | None:
        block = self._blocks.get(one.block)
        return None if block is None else block.states.get(one.proposal.number)

    def _states(self, wanted: Iterable[_Wanted]) -> dict[int, VersionedState]:
        return {
            one.proposal.number: VersionedState(one.proposal.state, one.proposal.partition_epoch + 1) for one in wanted
        }

    async def _reread(self, due: dict[str, list[_Wanted]], fence: Check | None) -> None:
        """Somebody was faster, or the answer was lost: look, and try again what can still be."""
        if fence is not None:
            found = await self._session.get(fence.key)
            if found is None or found.version != fence.version:
                raise Deposed(f"{fence.key} has another version")
        for name in due:
            await self.read(name)
        self._waiting = [one for wanted in due.values() for one in wanted] + self._waiting
