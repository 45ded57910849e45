"""One connection: detects the protocol, feeds its core with what arrives, and runs the application.

The shell around gateway/wire/http1.py and gateway/wire/http2.py. Invariants: (1) requests of HTTP/1.1 are answered in
order, those of HTTP/2 concurrently; (2) when the client leaves, the work for it is cancelled; (3) in a turn of the loop
a core parses one portion at most, and in a turn that is used up none (engine/runtime/loop_waits.py), so that a client
with much work does not keep others waiting; (4) an exception while an event is handled ends the request of this event,
and no other one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any

from engine.runtime.loop_waits import client_key, loop_waits
from engine.runtime.tasks import start_handler
from engine.runtime.timed_coroutine import TimedCoroutine
from gateway.wire.exchange import Counted, Delayed, Exchange, Host, Moves, Work
from gateway.wire.frames import PREFACE, Buffer
from gateway.wire.http1 import Http1
from gateway.wire.http2 import Http2
from gateway.wire.idle import Progress
from gateway.wire.listening import Door, endpoint_of
from gateway.wire.messages import (
    AnswerForm,
    BodyCut,
    BodyEnded,
    BodyPart,
    Event,
    Header,
    HeadRejected,
    RequestBegan,
    RequestHead,
    StreamReset,
)
from gateway.wire.output import Output

log = logging.getLogger("penstock.gateway")

BODY_BYTES_MAX = 256 * 1024  # unread bytes of a body over HTTP/1.1; reading pauses beyond them
HELD_BYTES_MAX = 256 * 1024  # received and not parsed yet; reading pauses beyond them
UNCOUNTED_BYTES = 16 * 1024  # in a turn that has only as little work; parsed, with small requests in it, in no time
UNCOUNTED_EVENTS = 64  # likewise: a small request takes 50 µs
READY_BYTES_MAX = 1024 * 1024  # of answers that wait for the transport alone; beyond them no request is begun


class Connection(asyncio.BufferedProtocol):
    """`client` and `server` are the two ends as `host:port`. Times are those of the loop.

    `delayed` are the requests that wait for their answers without a task, by the numbers of their streams.
    """

    def __init__(self, server: Host, door: Door | None = None, moved: Http1 | Http2 | None = None) -> None:
        """`door` is where it came in. `moved` is the core of a connection that another process has begun."""
        self._server = server
        self.door = door
        self.listener = None if door is None else door.listener
        self.tls: ssl.SSLObject | None = None
        self._take = server.take
        self._moved = moved
        self.moves: Moves | None = None
        self._loop = server.loop
        self._turns, self._key = loop_waits(server.loop).turns, id(self)
        self.transport: Any = None
        self.core: Http1 | Http2 = None  # type: ignore[assignment]  # until the protocol is known
        self.output: Output = None  # type: ignore[assignment]
        self._unsniffed = b""
        self._exchanges: dict[int, Exchange] = {}
        self.delayed: dict[int, Delayed] = {}
        self._unstarted = 0  # exchanges whose tasks have not run yet
        self._queued: deque[Exchange | HeadRejected] = deque()  # of HTTP/1.1, behind the one in progress
        self._is_reading_paused = self._is_reading_on = False  # on: what is received and not parsed has its turn soon
        self._is_held_back = False  # the client does not read its answers
        self.is_closed = self.is_http2 = self._is_leaving = False
        self.client = self.server = ""
        self.known_caller: Any = None
        self.counted: Counted | None = None
        self.opened_at = self.received_at = self.idle_since = server.loop.time()
        self.has_asked = False  # a whole head has been received
        self.pinged_at: float | None = None
        self.progress = Progress()

    def __repr__(self) -> str:
        return f"Connection({self.client}, {self.core}, exchanges={len(self._exchanges)})"

    @property
    def has_requests(self) -> bool:
        return bool(self._exchanges or self.delayed)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self.output is None else self.output.unsent_bytes

    @property
    def taken_bytes(self) -> int:
        return 0 if self.output is None else self.output.taken_bytes

    async def wait_progress(self) -> None:
        """Wait until some of the output has left. Raises ConnectionResetError when the client has left."""
        await self.output.wait_progress()

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.client = endpoint_of(transport.get_extra_info("peername"))
        self.server = endpoint_of(transport.get_extra_info("sockname"))
        tls = self.tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._speak((Http2 if tls.selected_alpn_protocol() == "h2" else Http1)(self._server.limits))
        self._turns.own(self._key, self.client.rpartition(":")[0])
        self._server.opened(self)
        if self._moved is not None:
            self.has_asked = True
            self._speak(self._moved)
            self._receive(b"")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the room that all connections of the server share: its bytes are parsed or copied at once."""
        return self._server.receive_room

    def buffer_updated(self, nbytes: int) -> None:
        self.received_at = now = self._loop.time()
        turns = self._turns
        if now >= turns.look_at:
            turns.look(now)
        data: Buffer = self._server.receive_room[:nbytes]
        if not self.core:
            data = self._unsniffed + data
            if len(data) < len(PREFACE) and PREFACE.startswith(data):
                self._unsniffed = data
                return
            self._unsniffed = b""
            self._speak((Http2 if data.startswith(PREFACE) else Http1)(self._server.limits))
        is_timed = turns.is_counted or turns.is_watched or nbytes > UNCOUNTED_BYTES
        if (is_timed and turns.must_wait(self._key)) or self._queued or self._is_reading_on or self._is_held_back:
            self.core.hold(data)
            self._read_on_soon()
        elif turns.is_watched:
            turns.run(self._key, partial(self._receive, data))
        else:
            self._receive(data)

    def eof_received(self) -> None:  # the transport closes itself
        if self.core is not None:
            self._handle_all(self.core.end_of_input())

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._turns.leave(self._key)
        if self.counted is not None:
            self.counted.close()
        try:
            for exchange in list(self._exchanges.values()):
                self._cancel(exchange)
            for stream_id in list(self.delayed):
                self.drop(stream_id)
            if self.output is not None:
                self.output.lose()
        finally:
            self._server.closed(self)

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()
        self.go_on()

    def hold_back(self) -> None:
        """Begins no request and parses nothing until `go_on`."""
        self._is_held_back = True
        self._steer_reading()

    def go_on(self) -> None:
        """Goes on with what was held back."""
        if self._is_held_back:
            self._is_held_back = False
            is_busy = self.delayed or any(one.task is not None for one in self._exchanges.values())
            (self._steer_reading if self._queued and is_busy else self._go_on)()  # those queued wait for its end
            if self.is_http2:  # what came since is held
                self._read_on_soon()

    # From the application, by its exchange or its handler

    def use_owner(self, owner: str) -> None:
        """Notes whose connection it is: all of an owner share its part of the loop. Before, that is its address."""
        self._turns.own(self._key, owner)

    def consumed(self, exchange: Exchange, size_bytes: int) -> None:
        if self.is_closed:
            return
        self.core.consumed(exchange.stream_id, size_bytes)
        if self.is_http2 and self.core.has_output:
            self._flush_soon()
        elif self._is_reading_paused and not self.is_http2:
            self._steer_reading()

    def send_continue(self, exchange: Exchange) -> None:
        self.core.send_continue(exchange.stream_id)
        self._flush_soon()

    def stop_body(self, exchange: Exchange) -> None:
        self.core.stop_body(exchange.stream_id)
        self._flush_soon()

    def answer(self, exchange: Exchange, status: int, headers: list[Header], body: bytes | bytearray) -> None:
        self.core.answer(exchange.stream_id, status, [*headers, self._server.date], body)
        self._flush_soon()

    # From the application, for a request without a task

    def delay(self, stream_id: int, delayed: Delayed, size_bytes: int) -> None:
        """Adds a request that the application takes, with the size of its body."""
        self.delayed[stream_id] = delayed
        self._server.under_way += 1
        if self.is_http2:
            self.core.consumed(stream_id, size_bytes)

    def complete_as(self, stream_id: int, form: AnswerForm, value: bytes, body: bytes) -> None:
        """Gives the whole answer to a request, in a form."""
        del self.delayed[stream_id]
        try:
            self.core.answer_as(stream_id, form, value, self._server.date, body)
        finally:
            self._end_delayed(stream_id)

    def complete(self, stream_id: int, status: int, headers: list[Header], body: bytes | bytearray) -> None:
        """Gives the whole answer to a request."""
        del self.delayed[stream_id]
        try:
            self.core.answer(stream_id, status, [*headers, self._server.date], body)
        finally:
            self._end_delayed(stream_id)

    def run_delayed(self, stream_id: int, head: RequestHead, work: Work) -> None:
        """Gives a request to a task, whose `work` answers it."""
        del self.delayed[stream_id]
        exchange = Exchange(self, stream_id, head, True)
        exchange.work = work
        self._start(exchange)
        self._count_end()  # the task is counted by itself

    def drop(self, stream_id: int) -> None:
        """Ends a request without an answer. No-op if it has ended."""
        delayed = self.delayed.pop(stream_id, None)
        if delayed is not None:
            try:
                delayed.cancel()
            except Exception:
                log.exception("a request without a task failed to end")
            self.core.abandon(stream_id)
            self._end_delayed(stream_id)

    def _end_delayed(self, stream_id: int) -> None:
        if self.is_http2:
            self.core.release(stream_id)
            self.output.flush_soon()
        else:
            self.output.flush()  # no other answer is under way
        if self.output.is_paused or self._is_reading_paused or self._queued or self.core.held_bytes:
            self._go_on()
        if self.moves is not None:
            self.moves.on_request_end()
        self._count_end()

    def begin(self, exchange: Exchange, status: int, headers: list[Header]) -> None:
        self.core.begin(exchange.stream_id, status, [*headers, self._server.date])
        self._flush_soon()

    def write(self, exchange: Exchange, data: bytes | bytearray) -> None:
        """Writes a piece of an answer. Raises ConnectionResetError when the client has left."""
        if self.is_closed or exchange.stream_id not in self._exchanges:
            raise ConnectionResetError("the client has left")
        self.core.write(exchange.stream_id, data)
        self._flush_soon()

    def finish(self, exchange: Exchange) -> None:
        self.core.finish(exchange.stream_id)
        self._flush_soon()

    # From the server

    def announce_leave(self) -> None:
        """Asks the client to use another connection. Requests that still arrive are answered."""
        self._is_leaving = True
        if self.core is not None:
            self.core.announce_leave()
            self._flush_soon()

    def leave(self) -> None:
        """Answer the requests that were received, then close."""
        if not self.core:
            self.transport.close()
            return
        self.core.leave()
        self._flush_soon()

    def ping(self, now: float) -> None:
        """Ask for a sign of life (PING); any received byte counts."""
        if self.core is not None:
            self.pinged_at = now
            self.core.ping()
            self._flush_soon()

    def abort(self) -> None:
        """End the connection now, without what was not sent."""
        if not self.is_closed:
            self.transport.abort()

    def _speak(self, core: Http1 | Http2) -> None:
        self.core = core
        self.output = Output(self._loop, self.transport, core)
        self.is_http2 = type(core) is Http2
        if self._is_leaving:
            core.announce_leave()
        if self.is_http2:
            self._flush_soon()

    def _receive(self, data: Buffer) -> None:
        self._handle_all(self.core.receive(data, self.received_at))
        if self.core.has_output or self.core.is_closing:
            self._flush_soon()
        if self.core.held_bytes:
            self._read_on_soon()

    def _read_on_soon(self) -> None:
        """Parses the next portion in the next turn, unless requests wait. Reading goes on: a client may leave."""
        if not self._is_reading_on and not self._queued:
            self._is_reading_on = True
            self._turns.call(self._key, self._read_on)
        self._steer_reading()

    def _read_on(self) -> None:
        self._is_reading_on = False
        if not (self._queued or self.is_closed or self._is_held_back):
            self._receive(b"")
            self._steer_reading()

    def _handle_all(self, events: list[Event]) -> None:
        if len(events) > UNCOUNTED_EVENTS:
            self._turns.is_over()
        for event in events:
            try:
                self._handle(event)
            except Exception as error:
                self.fail(event.stream_id, error, event.body if isinstance(event, RequestBegan) else None)

    def fail(self, stream_id: int, error: Exception, body: bytes | None = None) -> None:
        """Ends a request whose handling raised: by 500, or with its stream. `body` is of one that is not taken yet."""
        log.error("a request failed outside of its handler", exc_info=error)
        if (exchange := self._exchanges.get(stream_id)) is not None:
            self._cancel(exchange)
        elif stream_id in self.delayed:
            self.complete(stream_id, 500, *self._server.rejection(500))
        elif body is not None:
            self.core.consumed(stream_id, len(body))
            self._handle(HeadRejected(stream_id, 500))
        else:
            self.core.abandon(stream_id)
            self.core.release(stream_id)
            self._flush_soon()

    def _handle(self, event: Event) -> None:
        kind = type(event)
        if kind is BodyPart:
            if (exchange := self._exchanges.get(event.stream_id)) is None:  # the request has ended
                self.core.consumed(event.stream_id, len(event.data))  # type: ignore[union-attr]
            else:
                exchange.feed(event.data)  # type: ignore[union-attr]
                if not self.is_http2 and exchange.unread_bytes > BODY_BYTES_MAX:
                    self._steer_reading()
        elif kind is RequestBegan:
            self.has_asked = True
            stream_id, head, is_complete, body = event  # type: ignore[misc]
            take = self._take
            if take is not None and is_complete and self._is_next and take(self, stream_id, head, body):
                return
            exchange = Exchange(self, stream_id, head, is_complete, body)
            if not self.is_http2 and not self._is_next:
                self._exchanges[exchange.stream_id] = exchange  # no more is parsed until its turn has come
                self._queued.append(exchange)
            else:
                self._start(exchange)
        elif kind is BodyEnded or kind is BodyCut:
            if (exchange := self._exchanges.get(event.stream_id)) is not None:
                exchange.end_body() if kind is BodyEnded else exchange.cut_body()
        elif kind is StreamReset:
            if (exchange := self._exchanges.get(event.stream_id)) is not None:
                self._cancel(exchange)
            else:
                self.drop(event.stream_id)
        elif self.is_http2 or self._is_next:
            self._reject(event)  # type: ignore[arg-type]
        else:
            self._queued.append(event)  # type: ignore[arg-type]

    @property
    def _is_next(self) -> bool:
        """True if the next request can reach the application now, behind all before it."""
        if self.is_http2:
            return not (self._unstarted or (self._turns.is_counted and self._turns.must_wait(self._key)))
        return not (self._exchanges or self.delayed or self._queued)

    def _start(self, exchange: Exchange) -> None:
        self._exchanges[exchange.stream_id] = exchange
        self._server.under_way += 1
        self._unstarted += 1
        work: Coroutine[Any, Any, None] = self._run(exchange)
        if self._turns.is_watched:
            work = TimedCoroutine(work, partial(self._turns.spend, self._key))
        exchange.task = start_handler(self._loop, work)

    async def _run(self, exchange: Exchange) -> None:
        exchange.has_started = True
        self._unstarted -= 1
        client_key.set(self._key)
        try:
            if self._turns.must_wait(self._key):
                await self._turns.wait(self._key)
            work, exchange.work = exchange.work, None  # no cycle is left for the collector
            await (self._server.application(exchange) if work is None else work.run(exchange))
        except asyncio.CancelledError:
            pass  # the client has left, or the server stops
        except Exception:
            log.exception("the application failed")
            if not (exchange.has_begun or exchange.is_answered):
                exchange.answer(500, *self._server.rejection(500))
                exchange.stop_body()
        finally:
            if exchange.work is not None:  # its client has left before its turn came
                exchange.work.cancel()
            self._ended(exchange)

    def _count_end(self) -> None:
        """Follows the end of a request."""
        server = self._server
        self.idle_since = server.ended_at = self._loop.time()
        server.watched.add(self)
        server.under_way -= 1
        if server.under_way == 0:
            server.is_idle.set()

    def _ended(self, exchange: Exchange) -> None:
        self._exchanges.pop(exchange.stream_id, None)
        if not exchange.is_answered:
            self.core.abandon(exchange.stream_id)
            self._flush_soon()
        self.core.release(exchange.stream_id)
        if exchange.unread_bytes:  # the application reads no more
            self.consumed(exchange, exchange.unread_bytes)
        if not self.is_http2 or (self.output is not None and self.output.is_paused):
            self._go_on()
        self._count_end()
        if self.moves is not None:
            self.moves.on_request_end()

    def _go_on(self) -> None:
        """Goes on to the next request, unless the client does not read its answers."""
        if self.output.is_paused and self.core.ready_bytes > READY_BYTES_MAX:
            self._is_held_back = True
            self._steer_reading()
            return
        if not self.is_closed and not self.core.is_closing:  # what is behind an announced end is not begun
            if self._queued:
                one = self._queued.popleft()
                self._reject(one) if isinstance(one, HeadRejected) else self._start(one)
            if self.core.held_bytes:
                self._read_on_soon()
        if self._is_reading_paused:
            self._steer_reading()

    def _reject(self, event: HeadRejected) -> None:
        headers, body = self._server.rejection(event.status)
        self.core.answer(event.stream_id, event.status, [*headers, self._server.date], body)
        self.core.stop_body(event.stream_id)
        self.core.release(event.stream_id)
        self._flush_soon()

    def _steer_reading(self) -> None:
        """Pauses reading while many bytes wait: to be parsed, to be sent, or over HTTP/1.1 for the reader of a body."""
        is_full = self._is_held_back or self.core.held_bytes > HELD_BYTES_MAX
        if not is_full and not self.is_http2:
            unread_bytes = max((one.unread_bytes for one in self._exchanges.values()), default=0)
            is_full = unread_bytes > BODY_BYTES_MAX
        if is_full != self._is_reading_paused and not self.is_closed:
            self._is_reading_paused = is_full
            (self.transport.pause_reading if is_full else self.transport.resume_reading)()

    def _flush_soon(self) -> None:
        self._server.watched.add(self)
        self.output.flush_soon()

    def _cancel(self, exchange: Exchange) -> None:
        if exchange.task is not None:
            exchange.task.cancel()
            if not exchange.has_started:  # then its coroutine never runs, its end included
                self._unstarted -= 1
                if exchange.work is not None:
                    exchange.work.cancel()
                self._ended(exchange)
        else:  # it was still queued
            self._queued.remove(exchange)
            del self._exchanges[exchange.stream_id]
