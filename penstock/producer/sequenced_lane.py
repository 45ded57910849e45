"""Sends one partition's batches with sequence numbers: several requests at once, each record stored once and in order.

Driver of penstock/producer/sequences.py, which decides what may be sent. This file maps each answer to its meaning:
1. Stored, now or before: done. `duplicate_older_than_window` is that too, without a position.
2. `sequence_gap`: not stored; the batch waits for those before it.
3. `producer_fenced`: another producer took over our id. This lane ends: all waiting batches fail too.
4. `unknown_producer`: another log behind the same address; continue under a new id.
5. A temporary failure (overload, lost connection, 504): a retry after a pause, under the same numbers.
6. Any other rejection: the record to blame fails, or the whole batch; the batches after it get new numbers.

At the delivery timeout a batch fails as in 6, and the error says whether it may be stored.
"""

from __future__ import annotations

import asyncio

from penstock.errors import ClientClosed, ClientError, DeliveryTimedOut, IdempotenceUnavailable, ProblemError
from penstock.producer.batch import Batch, BatchPosition, PartitionQueue
from penstock.producer.dispatch import Dispatch, not_sent_in_time, position_of, stop_error
from penstock.producer.plain_lane import PlainLane
from penstock.producer.producer_ids import ProducerIds
from penstock.producer.sequences import Numbers, Pipeline, Sent
from penstock.transport.exchange import Request

_PAUSE_S = 60.0  # after this time without an answer the node may have forgotten the producer: its memory is bounded


class Flight:
    """Holds a batch and its attempts so far."""

    __slots__ = ("batch", "due_at", "failures", "last", "may_be_stored", "request")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.request: Request | None = None  # made when the batch is first sent under its present numbers
        self.failures = 0
        self.due_at = 0.0  # loop time, seconds
        self.last: ClientError | None = None
        self.may_be_stored = False  # some attempt failed ambiguously


class SequencedLane:
    def __init__(self, queue: PartitionQueue, dispatch: Dispatch, ids: ProducerIds) -> None:
        self.queue = queue
        self._dispatch = dispatch
        self._ids = ids
        self._pipeline: Pipeline[Flight] = Pipeline(dispatch.options.in_flight_max)
        self._is_acquiring_id = False
        self._is_stopped = False
        self._fenced: ClientError | None = None
        self._fallback: PlainLane | None = None  # replaces this lane on a node without producer ids
        self._timer: asyncio.TimerHandle | None = None
        self._answered_at = 0.0
        self._restarts = 0  # consecutive renumberings because the node lost its state
        self._paused_until = 0.0  # loop time; limits how often new epochs are tried on a node that takes none

    def __repr__(self) -> str:
        return f"<SequencedLane {self.queue!r} {self._pipeline!r}>"

    def wake(self) -> None:
        """Sends all that may be sent now. Must be called after every change."""
        if self._fallback is not None:
            self._fallback.wake()
        elif not self._is_stopped:
            self._send_retry()
            self._send_new()

    def stop(self) -> None:
        """Stops sending. Batches that wait for a retry get their result here, others from their task."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for flight in self._held_flights:
            self._complete(flight, ClientClosed("stopped", no_side_effects=not flight.may_be_stored))

    @property
    def _held_flights(self) -> list[Flight]:
        return [sent.item for sent in self._pipeline if not sent.is_in_flight and sent.resend is None]

    def _send_retry(self) -> None:
        sent = self._pipeline.next_retry()
        if sent is None:
            return
        wait_s = sent.item.due_at - asyncio.get_running_loop().time()
        if wait_s > 0:
            self._wake_after(wait_s)
        else:
            self._dispatch.attempts.retries += 1
            self._pipeline.retry(sent)
            self._dispatch.start(self._attempt(sent))

    def _send_new(self) -> None:
        queue, pipeline = self.queue, self._pipeline
        now = asyncio.get_running_loop().time()
        while (batch := queue.peek()) is not None:
            if self._fenced is not None:
                self._dispatch.complete(queue, _take(queue), self._fenced)
            elif self._dispatch.deadline(batch) <= now:
                self._dispatch.complete(queue, _take(queue), not_sent_in_time())
            elif pipeline.needs_id:
                self._start_acquiring_id()
                return
            elif now < self._paused_until:
                self._wake_after(self._paused_until - now)
                return
            elif not pipeline.can_take():
                return
            else:
                if not len(pipeline) and now - self._answered_at > _PAUSE_S:
                    pipeline.narrow()
                self._dispatch.start(self._attempt(pipeline.take(Flight(_take(queue)), len(batch.lines))))

    async def _attempt(self, sent: Sent[Flight]) -> None:
        flight = sent.item
        try:
            if flight.request is None:
                flight.request = self._dispatch.request(flight.batch, _headers(sent.numbers))
            await self._send(sent, flight.request)
        except BaseException:  # cancelled, or a bug: every record must get a result
            self._pipeline.on_rejected(sent)
            if not flight.batch.completed.is_set():
                self._complete(flight, stop_error())
            raise
        finally:
            self._on_attempt_ended()

    async def _send(self, sent: Sent[Flight], request: Request) -> None:
        batch = sent.item.batch
        try:
            answer = await self._dispatch.attempts.try_once(request, self._dispatch.deadline(batch))
            position = position_of(answer, len(batch.lines))
        except ClientError as error:
            sent.item.last = error
            self._on_failed(sent, error)
        else:
            self._dispatch.tally.duplicates += answer.headers.get("Penstock-Duplicate") == "true"
            self._on_stored(sent, position)

    def _on_stored(self, sent: Sent[Flight], position: BatchPosition) -> None:
        self._restarts = 0
        self._pipeline.on_stored(sent)
        self._complete(sent.item, position)

    def _on_failed(self, sent: Sent[Flight], error: ClientError) -> None:
        """Handles a failed attempt; the cases are those of the module docstring."""
        flight, code = sent.item, error.code
        if code == "duplicate_older_than_window":
            self._dispatch.tally.duplicates += 1
            self._on_stored(sent, BatchPosition(None, None))
        elif code == "sequence_gap":
            self._restarts += sent.is_alone
            self._pipeline.on_gap(sent)
        elif code == "producer_fenced":
            self._fenced = error
            self._fail(sent, error)
        elif code == "unknown_producer":
            self._restarts += 1
            self._pipeline.on_id_lost(sent)
        elif isinstance(error, DeliveryTimedOut):
            self._fail(sent, error)
        elif error.retryable:
            self._hold(sent, error)
        elif isinstance(error, ProblemError) and not flight.may_be_stored:
            parts = self._dispatch.split(self.queue, flight.batch, error)
            self._pipeline.on_rejected(sent, [Flight(part) for part in parts])
        else:
            self._fail(sent, error)

    def _hold(self, sent: Sent[Flight], error: ClientError) -> None:
        """Holds a batch for a retry after its pause, or fails it if the pause would pass its deadline."""
        flight = sent.item
        flight.failures += 1
        flight.due_at = asyncio.get_running_loop().time() + self._dispatch.attempts.delay_s(error, flight.failures)
        if flight.due_at >= self._dispatch.deadline(flight.batch):
            self._fail(sent, _timeout_error(flight, error))
            return
        flight.may_be_stored = flight.may_be_stored or not error.no_side_effects
        self._pipeline.on_held(sent, is_ambiguous=not error.no_side_effects)

    def _fail(self, sent: Sent[Flight], error: ClientError) -> None:
        if not error.no_side_effects:
            self._pipeline.on_held(sent, is_ambiguous=True)
        elif sent.item.may_be_stored:
            error = error.copy_with(no_side_effects=False)
        self._pipeline.on_rejected(sent)
        self._complete(sent.item, error)

    def _on_attempt_ended(self) -> None:
        now = self._answered_at = asyncio.get_running_loop().time()
        drained = self._pipeline.drain()
        if drained is not None:
            self._dispatch.tally.epochs_raised += 1
            for flight in drained.ambiguous:
                self._complete(flight, _ambiguous(flight))
            self.queue.put_back([flight.batch for flight in drained.resend])
            if self._restarts > 1 and drained.resend:
                last = drained.resend[0].last or ClientError("the node rejected the sequence numbers")
                self._paused_until = now + self._dispatch.attempts.delay_s(last, self._restarts - 1)
        self.wake()

    def _complete(self, flight: Flight, outcome: BatchPosition | ClientError) -> None:
        self._dispatch.complete(self.queue, flight.batch, outcome)

    def _wake_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.wake)

    def _start_acquiring_id(self) -> None:
        if not self._is_acquiring_id:
            self._is_acquiring_id = True
            self._dispatch.start(self._acquire_id())

    async def _acquire_id(self) -> None:
        try:
            self._pipeline.begin(await self._ids.get(self._pipeline.lost_id))
        except IdempotenceUnavailable as error:
            if self._dispatch.options.idempotence == "if_offered":
                self._fallback = PlainLane(self.queue, self._dispatch)
            else:
                self._fail_next(error)
        except ClientError as error:
            self._fail_next(error)
        finally:
            self._is_acquiring_id = False
        self.wake()

    def _fail_next(self, error: ClientError) -> None:
        """Fails the next batch for lack of a producer id. It was never sent, so it is not stored."""
        if self.queue.has_ready():
            self._dispatch.complete(self.queue, _take(self.queue), error.copy_with(no_side_effects=True))


def _take(queue: PartitionQueue) -> Batch:
    batch = queue.take()
    assert batch is not None
    return batch


def _headers(numbers: Numbers) -> dict[str, str]:
    return {
        "Producer-Id": str(numbers.producer_id),
        "Producer-Epoch": str(numbers.epoch),
        "Producer-Seq": str(numbers.sequence),
    }


def _timeout_error(flight: Flight, last: ClientError) -> DeliveryTimedOut:
    is_certain = last.no_side_effects and not flight.may_be_stored
    text = f"no success before the delivery timeout, in {flight.failures} attempts; the last failure: {last}"
    return DeliveryTimedOut(text, last=last, no_side_effects=is_certain)


def _ambiguous(flight: Flight) -> DeliveryTimedOut:
    text = "the outcome of this batch and of the failed batch before it is unknown; a retry could store it twice"
    return DeliveryTimedOut(text, last=flight.last, no_side_effects=False)
