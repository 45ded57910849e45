"""Sends one partition's batches without sequence numbers: one request at a time, because a retry could be overtaken.

For acks=0, where no answer reports a failure, and for `idempotence="off"`. A request that failed ambiguously (reset
connection, 504) may store its records twice when it is retried: `retry_ambiguous`.
"""

from __future__ import annotations

from penstock.errors import ClientError, ProblemError
from penstock.producer.batch import Batch, PartitionQueue
from penstock.producer.dispatch import Dispatch, position_of, stop_error


class PlainLane:
    def __init__(self, queue: PartitionQueue, dispatch: Dispatch) -> None:
        self.queue = queue
        self._dispatch = dispatch
        self._is_sending = False

    def __repr__(self) -> str:
        return f"<PlainLane {self.queue!r}>"

    def wake(self) -> None:
        """Starts sending if a batch is ready."""
        if not self._is_sending and self.queue.has_ready():
            self._is_sending = True
            self._dispatch.start(self._send_all())

    def stop(self) -> None:
        """No-op: the dispatch cancels the tasks."""

    async def _send_all(self) -> None:
        """Sends batches one after the other, until none is ready."""
        try:
            while (batch := self.queue.take()) is not None:
                await self._deliver(batch)
        finally:
            self._is_sending = False

    async def _deliver(self, batch: Batch) -> None:
        dispatch = self._dispatch
        try:
            answer = await dispatch.attempts.send(dispatch.request(batch), dispatch.deadline(batch))
            dispatch.complete(self.queue, batch, position_of(answer, len(batch.lines)))
        except ProblemError as problem:
            self.queue.put_back(dispatch.split(self.queue, batch, problem))
        except ClientError as error:
            dispatch.complete(self.queue, batch, error)
        except BaseException:  # cancelled, or a bug: every record must get a result
            dispatch.complete(self.queue, batch, stop_error())
            raise
