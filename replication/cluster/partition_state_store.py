"""Partition states in the store, in blocks of 100, and changes of them by compare-and-set.

A change names the partition_epoch that it follows. The block's version only guards against writers of its other
partitions; such a conflict is retried. Many blocks go into one commit, so that the failure of a node with 3,000
partitions costs few. Does not check permissions: a controller's writes carry the fence of its latch. Invariants: one
commit in flight at a time; a block is never replaced by an older read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.runtime.tasks import in_background
from replication.cluster.keys import block_key, block_of, topic_id_of
from replication.cluster.values import (
    Confirmed,
    Outcome,
    OutcomeUnknown,
    Proposal,
    Rejected,
    block_from_bytes,
    block_to_bytes,
)
from replication.cluster.view import StateChange
from replication.coordination.interface import Check, CommitUnknown, Conflict, Put, Session, SessionLost, Versioned
from replication.cores.partition_state import VersionedState

COMMIT_BYTES_MAX = 512 * 1024  # ZooKeeper's limit is 1 MiB per request
CHECKS_MAX = 1000  # per commit: a check takes about 100 bytes of a request
CONFIRM_AGAIN_S = (0.0, 0.01, 0.05, 0.1, 0.2)  # before each retry of a conflict; a ZooKeeper server may lag behind
GATHER_S = 0.002  # a node's failure makes the leaders of all its partitions propose at the same time


class ControllerFenced(Exception):
    """The fence of a write is broken: another controller has taken over. No part of the write was done."""


@dataclass(slots=True)
class _Block:
    seen: Versioned
    states: dict[int, VersionedState]


@dataclass(slots=True)
class _QueuedWrite:
    """A queued compare-and-set."""

    proposal: Proposal
    fence: Check | None
    outcome: asyncio.Future[Outcome]

    @property
    def block(self) -> str:
        return block_of(self.proposal.topic_id, self.proposal.number)

    def resolve(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class StateBlocks:
    """The blocks of one session. `on_changed` receives every changed state, of any writer."""

    def __init__(self, session: Session, on_changed: Callable[[list[StateChange]], None]) -> None:
        self.commits = 0
        self._session = session
        self._on_changed = on_changed
        self._blocks: dict[str, _Block] = {}
        self._waiting: list[_QueuedWrite] = []
        self._writing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"StateBlocks(blocks={len(self._blocks)}, waiting={len(self._waiting)}, commits={self.commits})"

    def has(self, topic_id: str, number: int) -> bool:
        return block_of(topic_id, number) in self._blocks

    def versions_of(self, topic_id: str) -> dict[str, int]:
        """Returns the blocks of a topic with their versions."""
        return {name: block.seen.version for name, block in self._blocks.items() if topic_id_of(name) == topic_id}

    def topic_ids(self) -> set[str]:
        return {topic_id_of(name) for name in self._blocks}

    def apply(self, read: Iterable[tuple[str, Versioned | None]]) -> None:
        """Applies blocks as they were read. Raises Corrupt."""
        changed_states: list[StateChange] = []
        for name, seen in read:
            changed_states += self._apply(name, seen)
        if changed_states:
            self._on_changed(changed_states)

    async def write(self, proposals: Sequence[Proposal], fence: Check | None = None) -> list[Outcome]:
        """Writes states; returns an outcome for each, in order. Raises ControllerFenced if the fence is broken,
        EngineError.
        """
        loop = asyncio.get_running_loop()
        writes = [_QueuedWrite(proposal, fence, loop.create_future()) for proposal in proposals]
        self._waiting += writes
        if self._writing is None or self._writing.done():
            self._writing = in_background(self._write_all(), "writing partition states", self._fail_queued)
        outcomes = await asyncio.gather(*(write.outcome for write in writes), return_exceptions=True)
        failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
        if failed is not None:
            raise failed
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    async def read(self, name: str) -> None:
        """Reads a block from the store again. Raises SessionLost."""
        self.apply([(name, await self._session.get(block_key(name)))])

    async def confirm(self, names: Sequence[str]) -> dict[str, Mapping[int, VersionedState]]:
        """Returns the states of blocks as the store has them at some time after this call, without deleted blocks.

        A commit that only checks versions: a ZooKeeper server may answer a read with an old state, while commits are
        totally ordered. Raises SessionLost, CommitUnknown, and Conflict if the states keep changing.
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
            blocks = {name: self._blocks[name] for name in names if name in self._blocks}
            try:
                if blocks:
                    await self._session.commit(
                        *(Check(block_key(n), block.seen.version) for n, block in blocks.items())
                    )
                return {name: block.states for name, block in blocks.items()}
            except Conflict:
                await asyncio.sleep(pause_s)
                for name in names:
                    await self.read(name)
        raise Conflict("the states of partitions change too often to be confirmed", hint="try again")

    def _apply(self, name: str, seen: Versioned | None) -> list[StateChange]:
        block = self._blocks.get(name)
        if seen is None:
            self._blocks.pop(name, None)
            return []
        if block is not None and (block.seen.created, block.seen.version) >= (seen.created, seen.version):
            return []
        states = block_from_bytes(block_key(name), seen.value)
        return self._store_block(name, _Block(seen, states))

    def _store_block(self, name: str, block: _Block) -> list[StateChange]:
        old_block = self._blocks.get(name)
        before = {} if old_block is None else old_block.states
        self._blocks[name] = block
        topic_id = topic_id_of(name)
        return [(topic_id, n, versioned) for n, versioned in sorted(block.states.items()) if before.get(n) != versioned]

    async def _write_all(self) -> None:
        await asyncio.sleep(GATHER_S)
        is_first_try = True
        while self._waiting:
            batch, self._waiting = self._next_batch(is_first_try)
            try:
                is_first_try = await self._write(batch)
            except SessionLost:
                for write in batch:
                    write.resolve(OutcomeUnknown())
                self._fail_queued()
            except ControllerFenced as error:
                for write in batch:
                    write.fail(error)
            except Exception as error:  # each writer reports it
                for write in batch:
                    write.fail(error)

    def _fail_queued(self) -> None:
        """Settles all queued writes as unknown; the next session reads the states."""
        for write in self._waiting:
            write.resolve(OutcomeUnknown())
        self._waiting = []

    def _next_batch(self, is_first_try: bool) -> tuple[list[_QueuedWrite], list[_QueuedWrite]]:
        """The writes of the next commit: of one fence, and within the size limit. After a conflict only one block."""
        fence = self._waiting[0].fence
        batch: list[_QueuedWrite] = []
        rest: list[_QueuedWrite] = []
        taken: set[str] = set()
        changed: set[tuple[str, int]] = set()
        size = 0
        for write in self._waiting:
            name, key = write.block, (write.proposal.topic_id, write.proposal.number)
            block = self._blocks.get(name)
            cost = 0 if name in taken or block is None else len(block.seen.value) + 1000
            fits = name in taken or not taken or (is_first_try and size + cost <= COMMIT_BYTES_MAX)
            if write.fence == fence and fits and key not in changed:
                batch.append(write)
                taken.add(name)
                changed.add(key)
                size += cost
            else:
                rest.append(write)
        return batch, rest

    async def _write(self, batch: list[_QueuedWrite]) -> bool:
        """Runs one commit and queues its failed writes first. Returns False after a conflict."""
        fence = batch[0].fence
        due = await self._due(batch)
        if not due:
            return True
        blocks = {name: self._blocks[name] for name in due}
        after = {name: {**blocks[name].states, **self._states(writes)} for name, writes in due.items()}
        values = {name: block_to_bytes(states) for name, states in after.items()}
        puts = [Put(block_key(name), values[name], block.seen.version) for name, block in blocks.items()]
        try:
            self.commits += 1
            await self._session.commit(*([fence] if fence is not None else []), *puts)
        except (Conflict, CommitUnknown):
            await self._reread(due, fence)
            return False
        changed_states: list[StateChange] = []
        for name, block in blocks.items():
            seen = Versioned(values[name], block.seen.version + 1, block.seen.created)
            if self._blocks.get(name) is block:  # otherwise the watch has applied it already
                changed_states += self._store_block(name, _Block(seen, after[name]))
        if changed_states:
            self._on_changed(changed_states)
        for writes in due.values():
            for write in writes:
                write.resolve(Confirmed(write.proposal.partition_epoch + 1))
        return True

    async def _due(self, batch: list[_QueuedWrite]) -> dict[str, list[_QueuedWrite]]:
        """Groups the writes to try by block, and settles the others."""
        due: dict[str, list[_QueuedWrite]] = {}
        for name in {write.block for write in batch if self._is_behind(write)}:
            await self.read(name)
        for write in batch:
            outcome = self._outcome_of(write)
            if outcome is None:
                due.setdefault(write.block, []).append(write)
            else:
                write.resolve(outcome)
        return due

    def _is_behind(self, write: _QueuedWrite) -> bool:
        versioned = self._found(write)
        return versioned is None or versioned.partition_epoch < write.proposal.partition_epoch

    def _outcome_of(self, write: _QueuedWrite) -> Outcome | None:
        """1. The expected epoch: None. 2. Already there: an earlier commit whose answer was lost. 3. Refused."""
        versioned = self._found(write)
        if versioned is not None and versioned.partition_epoch == write.proposal.partition_epoch:
            return None
        if versioned == VersionedState(write.proposal.state, write.proposal.partition_epoch + 1):
            return Confirmed(write.proposal.partition_epoch + 1)
        return Rejected(versioned)

    def _found(self, write: _QueuedWrite) -> VersionedState | None:
        block = self._blocks.get(write.block)
        return None if block is None else block.states.get(write.proposal.number)

    def _states(self, writes: Iterable[_QueuedWrite]) -> dict[int, VersionedState]:
        return {
            write.proposal.number: VersionedState(write.proposal.state, write.proposal.partition_epoch + 1)
            for write in writes
        }

    async def _reread(self, due: dict[str, list[_QueuedWrite]], fence: Check | None) -> None:
        """After a conflict or a lost answer: reads the blocks and queues the writes again."""
        if fence is not None:
            fence_value = await self._session.get(fence.key)
            if fence_value is None or fence_value.version != fence.version:
                raise ControllerFenced(f"{fence.key} has another version")
        for name in due:
            await self.read(name)
        self._waiting = [write for writes in due.values() for write in writes] + self._waiting
