"""Brings a call for a partition to the process that answers for it: this one, or another over a link.

gateway/routing/calls.py has the form of the arguments between processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import Struct, structs

from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from engine.partition.partition import Partition
from engine.runtime.slices import SLICE, in_slices
from engine.shard.served_topics import Topic
from gateway.links.link import Answer, Handler, LinkDown, LinkLost, MalformedCall, handler
from gateway.routing.calls import PartitionArguments, RowsArguments
from gateway.routing.leader_failover import is_ambiguous, is_transient
from gateway.routing.partitions import Partitions
from gateway.routing.peers import Owner, Peers
from gateway.routing.retry_budget import RetryBudgets
from replication.errors import NoLeader

A = TypeVar("A")
R = TypeVar("R")
Reply = tuple[R, bytes | bytearray]

CALL_S = 30.0  # the owner's time limit beyond the requested wait

_PartitionEpochs = Sequence[tuple[int, int]]  # partitions, each with the least leader epoch


@dataclass(frozen=True, slots=True)
class PartitionCall(Generic[A, R]):
    """A call at a partition's owner: its name, and the types of its arguments and of its result.

    `kind` is the type of its arguments, as msgspec decodes them from a link; the result is a plain value. `is_change`:
    it cannot be repeated without harm. `is_batched`: it waits for the disk, which syncs many partitions in the time of
    one.
    """

    name: str
    kind: Any
    is_change: bool = False
    is_batched: bool = False

    def by(self, function: Callable[[Partition, A], Awaitable[Reply[R]]]) -> Answering:
        """Returns the call with its function in the owner's process."""
        return Answering(self, function)


def _asks_leader(_: object) -> bool:
    return False


class Answering(NamedTuple):
    """A call with its function in the owner's process.

    `answer_now` returns the result of a call of another process that needs no task, and whose reply has no payload;
    None for other calls.
    `allows_follower`: an in-sync follower may answer a call with these arguments.
    """

    call: PartitionCall[Any, Any]
    function: Callable[[Partition, Any], Awaitable[Reply[Any]]]
    answer_now: Callable[[Partition, Any], Any] | None = None
    allows_follower: Callable[[Any], bool] = _asks_leader


class Router:
    """`calls` has the calls for the partitions that this process answers for."""

    def __init__(self, partitions: Partitions, peers: Peers, budgets: RetryBudgets, calls: Iterable[Answering]) -> None:
        self.partitions = partitions
        self.peers = peers
        self.budgets = budgets
        self._calls = {answering.call.name: answering for answering in calls}

    def may_retry(self, error: EngineError, *, is_change: bool = False) -> bool:
        """Returns whether a call failed because leadership moves, and may be repeated.

        `is_change`: it must not be repeated if it may have been executed.
        """
        is_moving = is_transient(error) or (is_ambiguous(error) and not is_change)
        return is_moving and self.peers.cluster.has_elections

    async def call(
        self,
        call: PartitionCall[A, R],
        topic_name: str,
        number: int,
        arguments: A,
        *,
        wait_ms: int = 0,
        budget_ms: int | None = None,
        topic_id: str | None = None,
    ) -> Reply[R]:
        """Makes a call at the partition's owner. Waits for a leader that is being elected, and follows one that moves.

        With a `topic_id` no call reaches another topic of that name. Raises UnknownTopic, UnknownPartition, NoLeader,
        OtherTopic, and what the call raises.
        """
        budget = self.budgets.begin(wait_ms, budget_ms)
        while True:
            try:
                return await self._call_now(call, topic_name, number, arguments, wait_ms, topic_id)
            except EngineError as error:
                if not self.may_retry(error, is_change=call.is_change):
                    raise
                await budget.pause(error)
            if wait_ms:
                wait_ms = budget.wait_left_ms
                if isinstance(arguments, Struct):  # a fetch's; those of set_fence contain no time
                    arguments = structs.replace(arguments, wait_ms=wait_ms)

    async def call_all(self, call: PartitionCall[None, R], topic: Topic) -> list[R | None]:
        """Makes a call for every partition of a topic. The results are in the order of the partitions."""
        rows = await self.collect_rows(call, topic.record)
        left = [number for number in range(topic.record.partitions) if number not in rows]
        results = await asyncio.gather(*(self.call(call, topic.record.name, number, None) for number in left))
        rows.update(zip(left, (result for result, _ in results), strict=True))
        return [rows[number] for number in range(topic.record.partitions)]

    async def collect_rows(
        self, call: PartitionCall[None, R], record: TopicRecord, timeout_s: float | None = None
    ) -> dict[int, R | None]:
        """Makes a call for all partitions of a topic, with one message to each process that answers for some.

        Looks for no leader and does not retry: a partition without a leader has no row, and the row of one whose owner
        does not answer in time is None. Thousands of rows are made in slices of a turn of the loop.
        """
        by_owner: dict[Owner, list[int]] = {}
        for number in range(record.partitions):
            try:
                by_owner.setdefault(self.peers.owner(record.topic_id, number), []).append(number)
            except NoLeader:
                continue
        retrying = [self._ask_owner(call, record, owner, numbers, timeout_s) for owner, numbers in by_owner.items()]
        answers = await asyncio.gather(*retrying)
        return {number: row for rows in answers for number, row in rows}

    def handlers(self) -> dict[str, Handler]:
        """Returns the handlers of these calls from other processes."""

        def of(answering: Answering) -> Handler:
            def find(request: PartitionArguments[Any]) -> Partition:
                allows_follower = answering.allows_follower(request.arguments)
                return self.partitions.owned_partition(
                    *(request.topic, request.topic_id, request.partition, request.leader_epoch),
                    from_follower=allows_follower,
                )

            async def call(request: PartitionArguments[Any], _: bytes) -> Answer:
                return await answering.function(find(request), request.arguments)

            def begin(request: PartitionArguments[Any], _: bytes) -> asyncio.Future[Any] | None:
                assert answering.answer_now is not None
                result = answering.answer_now(find(request), request.arguments)
                if result is None:
                    return None
                future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                future.set_result(result)
                return future

            kind = cast(Any, PartitionArguments)[answering.call.kind]
            return handler(kind, call, None if answering.answer_now is None else begin)

        async def rows(request: RowsArguments, _: bytes) -> Answer:
            if request.call not in self._calls:
                raise MalformedCall(f"this process does not know the call {request.call}")
            call = self._calls[request.call].call
            return await self._collect_here(call, request.topic_id, request.topic, request.partitions), b""

        by_name = {name: of(answering) for name, answering in self._calls.items()}
        return {"rows": handler(RowsArguments, rows), **by_name}

    async def _call_now(
        self,
        call: PartitionCall[A, R],
        topic_name: str,
        number: int,
        arguments: A,
        wait_ms: int,
        expected_id: str | None,
    ) -> Reply[R]:
        partitions, peers = self.partitions, self.peers
        topic_id = partitions.topic_id(topic_name, number)
        if expected_id is not None:
            partitions.check_topic_id(topic_name, expected_id)
        owner = peers.owner(topic_id, number)
        if peers.is_local(owner):
            partition = partitions.owned_partition(topic_name, topic_id, number)
            return await self._calls[call.name].function(partition, arguments)
        link, epoch = peers.link(owner), peers.known_epoch(topic_id, number)
        try:
            sent = PartitionArguments(topic_id, topic_name, number, epoch, arguments)
            return await link.call(call.name, sent, timeout_s=wait_ms / 1000 + CALL_S)
        except LinkLost:
            if call.is_change:
                raise  # the call may have been executed
            raise LinkDown("the connection to the process that owns the partition was lost") from None

    async def _ask_owner(
        self,
        call: PartitionCall[None, R],
        record: TopicRecord,
        owner: Owner,
        numbers: list[int],
        timeout_s: float | None,
    ) -> Sequence[tuple[int, Any]]:
        if self.peers.is_local(owner):
            return await self._collect_here(call, record.topic_id, record.name, [(number, 0) for number in numbers])
        epochs = [(number, self.peers.known_epoch(record.topic_id, number)) for number in numbers]
        arguments = RowsArguments(call.name, record.topic_id, record.name, epochs)
        try:
            async with asyncio.timeout(timeout_s):
                rows, _ = await self.peers.link(owner).call("rows", arguments, timeout_s=CALL_S)
        except TimeoutError:
            return [(number, None) for number in numbers] if timeout_s is not None else []
        except EngineError:  # the process restarts, or its version does not know the call
            return []
        return rows  # type: ignore[no-any-return]

    async def _collect_here(
        self, call: PartitionCall[None, R], topic_id: str, topic_name: str, epochs: _PartitionEpochs
    ) -> list[tuple[int, R | None]]:
        function: Callable[[Partition, None], Awaitable[Reply[R]]] = self._calls[call.name].function

        async def row(number: int, epoch: int) -> R | None:
            try:
                answer, _ = await function(self.partitions.owned_partition(topic_name, topic_id, number, epoch), None)
            except EngineError:
                return None
            return answer

        rows: list[tuple[int, R | None]] = []
        if call.is_batched:
            for first in range(0, len(epochs), SLICE):
                part = epochs[first : first + SLICE]
                answers = await asyncio.gather(*(row(number, epoch) for number, epoch in part))
                rows += [(number, answer) for (number, _), answer in zip(part, answers, strict=True)]
        else:
            async for number, epoch in in_slices(epochs):
                rows.append((number, await row(number, epoch)))
        return [(number, row) for number, row in rows if row is not None]
