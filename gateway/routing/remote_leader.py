"""A partition's leader in another process, as a producer sees it: each batch is a call over the link."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.errors import AckTimeout, EngineError
from engine.producers.appends import AppendConditions, Appended, QueuedBatch, fields_of
from engine.runtime.loop_waits import Bucket, loop_waits
from engine.runtime.pending import Pending
from gateway.routing.calls import AppendArguments, CheckAppendArguments
from gateway.routing.peers import Peers
from replication.errors import MAYBE_STORED
from replication.replica.acks import Acks
from replication.replica.appends import AppendOutcome

REPLY_MARGIN_S = 1.0  # the owner answers a timeout itself; only a dead or stopped one causes this longer wait


class RemoteLeader:
    """Sends appends to the process that leads a partition. That process waits for the acknowledgements."""

    judges_requests = False

    def __init__(self, peers: Peers, topic: str, topic_id: str, partition: int) -> None:
        self._peers = peers
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition

    def __repr__(self) -> str:
        return f"RemoteLeader({self._topic}/{self._partition})"

    def produce_all(
        self, batches: Sequence[QueuedBatch], acks: Acks, timeout_ms: int
    ) -> list[Pending[AppendOutcome | None]]:
        """Sends batches in their order. Raises NoLeader, LinkDown and Busy with nothing sent.

        A later batch that the link has no room for has that error.
        """
        sent: list[Pending[AppendOutcome | None]] = []
        for batch, conditions, _ in batches:
            try:
                sent.append(self.produce(batch, acks, timeout_ms, conditions))
            except EngineError as error:
                if not sent:
                    raise
                failed: Pending[AppendOutcome | None] = Pending()
                sent.append(failed)
                failed.complete(error)
        return sent

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, conditions: AppendConditions | None = None
    ) -> Pending[AppendOutcome | None]:
        """Sends a batch. Raises NoLeader, LinkDown and Busy with nothing sent."""
        link = self._peers.link_to_owner(self._topic_id, self._partition)
        which = (self._topic_id, self._topic, self._partition, self._known_epoch)
        wait_ms = 0 if acks is Acks.NONE else timeout_ms
        call = link.begin("append", AppendArguments(*which, acks, wait_ms, fields_of(conditions)), batch)
        return RemoteAppend(call, acks, timeout_ms, f"{self._topic}/{self._partition}")

    async def check_append(self, acks: Acks, timeout_s: float) -> None:
        """Checks as the leader's check_append does."""
        link = self._peers.link_to_owner(self._topic_id, self._partition)
        arguments = CheckAppendArguments(self._topic_id, self._topic, self._partition, self._known_epoch, acks)
        await link.call("check_append", arguments, timeout_s=timeout_s)

    @property
    def _known_epoch(self) -> int:
        return self._peers.known_epoch(self._topic_id, self._partition)


class RemoteAppend(Pending["AppendOutcome | None"]):
    """A batch on its way. Ends with the answer, at once with acks=0, or when the answer is late."""

    __slots__ = ("_bucket", "_call", "_name", "_timeout_ms")

    def __init__(self, call: asyncio.Future[tuple[list[Any], bytes]], acks: Acks, timeout_ms: int, name: str) -> None:
        super().__init__()
        self._call = call
        self._name = name
        self._timeout_ms = timeout_ms
        self._bucket: Bucket = {}
        call.add_done_callback(self._on_answer)
        if acks is Acks.NONE:
            self.complete(None)
        else:
            loop = call.get_loop()
            deadline = loop.time() + timeout_ms / 1000 + REPLY_MARGIN_S
            self._bucket = loop_waits(loop).deadlines.put(deadline, self, RemoteAppend._expire)

    def cancel(self) -> None:
        """Ends the wait, here and there. The append continues."""
        super().cancel()
        self._call.cancel()

    def _on_answer(self, call: asyncio.Future[tuple[list[Any], bytes]]) -> None:
        self._bucket.pop(self, None)
        error = asyncio.CancelledError() if call.cancelled() else call.exception()
        if self.is_over:  # with acks=0 nothing is waited for
            return
        outcome: AppendOutcome | BaseException
        try:
            outcome = Appended.of(call.result()[0]) if error is None else error
        except TypeError as malformed:  # of another version
            outcome = malformed
        self.complete(outcome)

    def _expire(self) -> None:
        text = f"{self._name}: its leader did not answer within {self._timeout_ms} ms"
        self.complete(AckTimeout(text, hint=MAYBE_STORED))
        self._call.cancel()
