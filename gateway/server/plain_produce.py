"""Produces without a coroutine and a task: the most frequent form, whose body has come with its head.

A request of this form is placed by plain calls, in the turn in which it was read. `DelayedProduce` is called with the
outcome of its batch, and gives the answer. It takes the stages of gateway/produce. It decides nothing: any request that
it does not take, and any that a check would refuse, runs as a task, which answers.
Invariants: nothing is counted or stored for a request that is not taken; the requests of a connection are appended in
their order; each request that is taken ends once, with an answer or with its client.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache, partial

from engine.errors import EngineError
from engine.format.batch import RowFields
from engine.format.keyed_batch import KeyEntry
from engine.producers.appends import Appended
from engine.shard.served_topics import Topic
from gateway.http.problems import Problem, from_engine
from gateway.http.request import Request
from gateway.http.response import COMMON_HEADERS, Response
from gateway.produce.accumulator import REQUEST_BYTES_MAX, share_bytes_max
from gateway.produce.appending import Part, answer, plain_answer, send_turn
from gateway.produce.batching import (
    OWN_BYTES,
    RECORD_OVERHEAD_BYTES,
    Incoming,
    ProducerSequence,
    SharedRows,
    group_by_partition,
    plain_rows,
    row_bytes,
)
from gateway.produce.context import ProduceContext
from gateway.produce.headers import IdempotencyKey, own_key, own_sequence
from gateway.produce.idempotency import WINDOW_HEADER, hashes_of, hold_new, window_s, with_window
from gateway.produce.produce import ProduceRequest, destination
from gateway.routing.leader_headers import LEADER, leader_url, note_owner
from gateway.server.head_cache import NO_BODY, HeadCache, KnownHead
from gateway.server.requests import REQUEST_ID_HEADER, Requests
from gateway.wire.connection import Connection
from gateway.wire.messages import AnswerForm, RequestHead, VariedHead
from replication.replica.acks import Acks

JSON_TYPE = ("Content-Type", "application/json")


_new = tuple.__new__  # of a value without a frame for it


# The records of a request in the append of this turn: topic, partition, how many, when they came, and the entry.
Placed = tuple[Topic, int, int, int, KeyEntry | None]


class PlainProduces:
    """Takes the produces of one application that need no task."""

    def __init__(self, heads: HeadCache, requests: Requests, context: ProduceContext) -> None:
        self.requests = requests
        self.context = context
        self.heads = heads
        self._send = partial(send_turn, context)

    def __repr__(self) -> str:
        return f"PlainProduces({self.context.accumulator})"

    def take(self, connection: Connection, stream_id: int, head: RequestHead, body: bytes) -> DelayedProduce | None:
        """Places the records of a whole request. Returns None, with nothing done, for a request that needs a task."""
        known, own = head.memo, None
        if known is None and head.method == "POST":
            if type(head) is VariedHead and type(known := head.like.memo) is KnownHead:
                own = None if known.plain is None else _own(known.plain, head)
            if own is None:
                known = self.heads.find(head)
        if known is None:
            return None
        wanted = known.plain
        if wanted is None or len(body) > REQUEST_BYTES_MAX:
            return None
        key, sequenced = own or (wanted.idempotency_key, wanted.sequenced)
        began = time.perf_counter()
        context = self.context
        if context.lifecycle.is_refusing or (connection.is_http2 and context.order.has_slots(connection.client)):
            return None
        request = None
        if self.requests.access.tokens is not None:
            request = self.heads.request(known, head, NO_BODY, connection)
            try:
                self.requests.access.check(request)
            except Problem:
                return None
        delayed = DelayedProduce(self, connection, stream_id, head, known, wanted.acks, len(body), began)
        delayed.request = request
        placed = self._place(wanted, key, sequenced, body, delayed)
        if placed is None:
            return None
        delayed.placed = placed
        delayed.request_id = self.requests.request_id(known.headers)
        self.heads.answered += 1
        self.heads.without_task += 1
        metrics, stages = context.metrics, context.stages
        self.requests.begin()
        metrics.delayed_produces.value += 1
        metrics.produce_bytes.value += len(body)
        metrics.produce_records.value += placed[2]
        delayed.queued_at = time.perf_counter()
        stages.body.observe(0.0)  # it was there
        stages.decode.observe(delayed.queued_at - began)
        return delayed

    def _place(
        self,
        wanted: ProduceRequest,
        key: IdempotencyKey | None,
        sequenced: ProducerSequence | None,
        body: bytes,
        delayed: DelayedProduce,
    ) -> Placed | None:
        context, topic, settings = self.context, self.context.topics.get(wanted.topic), self.context.settings
        if topic is None or len(body) > settings.request_body_bytes_max:
            return None
        limits, partition, now_ms = topic.settings, wanted.partition, context.clock.now_ms()
        if limits.cleanup_policy != "delete" or (partition is not None and partition >= topic.record.partitions):
            return None
        if sequenced is not None and not context.producer_ids.is_known(sequenced.producer_id):
            return None
        entry = None
        if key is not None:
            key_hash, request_hash = hashes_of(key, body)
            entry = _new(KeyEntry, (key_hash, request_hash, topic.record.partitions, now_ms))
        assert wanted.decode is not None
        try:
            found = self._rows(wanted, wanted.decode(body), topic, len(body), now_ms, entry)
        except Exception:  # the task meets it too, and answers with it
            return None
        if found is None:
            return None
        partition, rows = found
        if not 0 < len(rows) <= settings.records_per_request_max:
            return None
        size_bytes = RECORD_OVERHEAD_BYTES * len(rows)
        if entry is not None or sequenced is not None:
            size_bytes += OWN_BYTES
        for row in rows:
            size = row_bytes(row)
            if size > limits.record_bytes_max:
                return None
            size_bytes += size
        waiting_bytes = context.queue.queued_bytes + context.accumulator.size_bytes
        if (
            size_bytes > share_bytes_max(topic, len(body))
            or waiting_bytes + size_bytes > settings.append_queue_bytes_max
            or (entry is not None and not hold_new(context, topic, entry))
        ):
            return None
        if not context.bodies.hold_small(len(body)):
            if entry is not None:
                context.keys.release(topic.record.topic_id, entry.key_hash)
            return None
        shared = SharedRows(rows, size_bytes, sequenced)
        context.accumulator.join(
            topic, partition, shared, entry, wanted.acks, wanted.timeout_ms, now_ms, self._send, delayed.receive
        )
        return topic, partition, len(rows), now_ms, entry

    def _rows(
        self,
        wanted: ProduceRequest,
        incoming: Incoming,
        topic: Topic,
        size_bytes: int,
        now_ms: int,
        entry: KeyEntry | None,
    ) -> tuple[int, list[RowFields]] | None:
        """Returns the records and their partition; None if they go to several, or one of them has a problem."""
        partition, key = wanted.partition, wanted.key
        rows = plain_rows(incoming, key, now_ms)
        if rows is None:
            to = destination(self.context, wanted, topic, size_bytes, now_ms, entry)
            grouped, problems = group_by_partition(incoming, to)
            if problems or len(grouped) != 1:
                return None
            ((partition, found),) = grouped.items()
            assert isinstance(found, list)
            rows = found
        elif partition is None:
            partitioner = self.context.partitioners.of(topic)
            if key is not None:
                partition = partitioner.for_key(key)
            elif entry is not None:
                partition = partitioner.for_request(entry.key_hash)
            else:
                partition = partitioner.sticky(size_bytes, self.context.clock.monotonic())
        return partition, rows


class DelayedProduce:
    """One request that waits for its acks."""

    __slots__ = ("_acks", "_began", "_body_bytes", "_connection", "_head", "_is_over", "_known", "_produces", "placed",
                 "queued_at", "request", "request_id", "stream_id")  # fmt: skip

    placed: Placed
    request_id: str
    queued_at: float

    def __init__(
        self,
        produces: PlainProduces,
        connection: Connection,
        stream_id: int,
        head: RequestHead,
        known: KnownHead,
        acks: Acks,
        body_bytes: int,
        began: float,
    ) -> None:
        self._produces = produces
        self._connection = connection
        self._head = head
        self._known = known
        self._acks = acks
        self._body_bytes = body_bytes
        self._began = began
        self._is_over = False
        self.stream_id = stream_id
        self.request: Request | None = None

    def __repr__(self) -> str:
        return f"DelayedProduce({self._head}, is_over={self._is_over})"

    def receive(self, outcome: Appended | BaseException | None) -> None:
        """Answers with the outcome of the append, None with acks=0. No-op if the client has left."""
        if self._is_over:
            return
        try:
            if outcome is None or isinstance(outcome, Appended):
                self._succeed(outcome)
            elif isinstance(outcome, Exception):  # it failed, or what became of it is not known
                self._report(outcome)
            else:  # the process stops
                self._connection.delayed.drop(self.stream_id)
        except Exception as error:  # the caller has outcomes for other requests
            self._connection.fail(self.stream_id, error)

    def _report(self, error: Exception) -> None:
        now = time.perf_counter()
        self._end(now)
        topic, _, _, _, entry = self.placed
        if entry is not None and isinstance(error, EngineError):
            window_ms = topic.settings.idempotency_window_ms
            error = with_window(from_engine(error), window_ms - int(1000 * (now - self._began)))
        self._fail(error)

    def _succeed(self, appended: Appended | None) -> None:
        began = time.perf_counter()
        self._end(began)
        topic, partition, count, now_ms, entry = self.placed
        context, status = self._produces.context, 200 if appended is not None else 202
        window = None if entry is None else window_s(topic, appended, began - self._began)
        leader: str | None = None  # in another process, if clients may go there
        own: dict[str, str] = {}  # of an answer that is not of a form
        try:
            if appended is not None and appended.is_duplicate:
                part = Part(topic.record.name, partition, count, topic)
                response = answer([part], [appended], self._acks, now_ms, topic)
                body, own = bytes(response.body), dict(response.headers)
            else:
                offset = None if appended is None else appended.base_offset
                body = plain_answer(topic, partition, offset, count, self._acks, now_ms)
            if partition not in topic.partitions or context.peers.view is not None:
                leader = leader_url(context.peers, topic.record.topic_id, partition)
                note_owner(self._connection, context.peers, topic.record.topic_id, (partition,))
        except Exception as error:
            self._fail(error)
            return
        ended = time.perf_counter()
        context.stages.answer.observe(ended - began)
        route, seconds = self._known.route, ended - self._began
        self._produces.requests.leave(route.operation, Response(body, own, status), seconds, self._request)
        if own:
            keyed = {} if window is None else {WINDOW_HEADER: str(window)}
            led = {} if leader is None else {LEADER: leader}
            self._complete(status, dict((JSON_TYPE,)) | keyed | own | led | {REQUEST_ID_HEADER: self.request_id}, body)
        else:
            form = FORMS[status] if window is None and leader is None else _form(status, window, leader)
            self._connection.delayed.complete_as(self.stream_id, form, self.request_id.encode(), body)

    def cancel(self) -> None:
        """Ends the wait: the client has left. The records are stored nevertheless."""
        now = time.perf_counter()
        self._end(now)
        self._produces.requests.log.log_disconnect(self._request(), now - self._began)

    def _end(self, now: float) -> None:
        self._is_over = True
        context = self._produces.context
        context.bodies.release_small(self._body_bytes)
        topic, _, _, _, entry = self.placed
        if entry is not None:
            context.keys.release(topic.record.topic_id, entry.key_hash)
        self._produces.requests.end()
        context.metrics.delayed_produces.value -= 1
        context.stages.ack.observe(now - self.queued_at)

    def _fail(self, error: Exception) -> None:
        requests, request = self._produces.requests, self._request()
        response = requests.failure(request, error)
        seconds = time.perf_counter() - self._began
        requests.leave(request.route.operation, response, seconds, lambda: request)
        headers = {**response.headers, REQUEST_ID_HEADER: self.request_id}
        self._complete(response.status, headers, bytes(response.body))

    def _complete(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        length = ("Content-Length", str(len(body)))
        self._connection.delayed.complete(self.stream_id, status, [*headers.items(), *COMMON_HEADERS, length], body)

    def _request(self) -> Request:
        if self.request is None:
            heads = self._produces.heads
            self.request = heads.request(heads.find(self._head), self._head, NO_BODY, self._connection)
        self.request.id = self.request_id
        return self.request


def _own(wanted: ProduceRequest, head: VariedHead) -> tuple[IdempotencyKey | None, ProducerSequence | None] | None:
    """Returns the key and the sequence of a head that is like that of a known request; None for the handler."""
    varying, values, key, sequenced = head.varying, head.values, wanted.idempotency_key, wanted.sequenced
    if varying.request_id >= 0 and any(name.lower() == "x-request-id" for name, _ in head.own):
        return None
    if (at := varying.key) >= 0 and (key is None or (key := own_key(key, values[at])) is None):
        return None
    if (at := varying.sequence) >= 0 and (
        sequenced is None or (sequenced := own_sequence(sequenced, values[at])) is None
    ):
        return None
    return key, sequenced


@lru_cache(maxsize=64)  # nearly all answers have the same window, and there are few leaders
def _form(status: int, kept_s: int | None, leader: str | None) -> AnswerForm:
    keyed = () if kept_s is None else ((WINDOW_HEADER, str(kept_s)),)
    led = () if leader is None else ((LEADER, leader),)
    return AnswerForm(status, (JSON_TYPE, *keyed, *led), REQUEST_ID_HEADER, COMMON_HEADERS)


FORMS = {status: AnswerForm(status, (JSON_TYPE,), REQUEST_ID_HEADER, COMMON_HEADERS) for status in (200, 202)}
