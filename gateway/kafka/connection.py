"""One connection of Kafka's protocol: requests in, their responses out, in the same order.

Requests begin in the order in which they arrive. While a handler runs as a task, later requests of the connection wait,
as at Kafka's own server; appends that are queued wait for their acknowledgements side by side. Invariants: responses
leave in the order of their requests; what a connection holds of memory is bounded and counted; nothing is read from a
client that does not read, that is throttled, or whose requests wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol, cast

from engine.runtime.pending import Pending
from engine.runtime.tasks import start_task
from gateway.kafka.codec.messages import Buffer, Malformed
from gateway.kafka.frames import Frames
from gateway.kafka.requests import Client, KafkaRequest
from gateway.wire.listening import endpoint_of

IN_FLIGHT_MAX = 16  # requests of a connection whose responses have not left
UNSENT_BYTES = 256 * 1024  # beyond it no further request of the connection begins
JOINED_BYTES = 64 * 1024  # of responses that are joined before they are sent: a call for each piece costs more
ROOM_PAUSE_S = 0.05  # before another look whether there is room for requests


class Host(Protocol):
    """The server of a connection."""

    receive_room: memoryview

    @property
    def has_room(self) -> bool: ...
    def hold(self, size_bytes: int) -> None: ...
    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...
    def new_client(self, address: str) -> Client: ...
    def frame_bytes_max(self, client: Client) -> int: ...
    def begin(self, frame: memoryview, client: Client) -> tuple[KafkaRequest, Any]: ...
    def finish(self, request: KafkaRequest, outcome: Any) -> list[Buffer] | None: ...
    def abandon(self, request: KafkaRequest) -> None: ...
    def log_closed(self, client: Client, reason: str) -> None: ...
    def count_unsent(self, connection: Connection, size_bytes: int) -> None: ...


class _Slot:
    """The place of one response in the order of responses. `pieces` is None until it is there."""

    __slots__ = ("frame_bytes", "handled", "pieces", "request")

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.request: KafkaRequest | None = None
        self.handled: Pending[Any] | None = None
        self.pieces: list[Buffer] | None = None


class Connection(asyncio.BufferedProtocol):
    """`active_at` is when it last received or sent; `partial_since`: when its incomplete frame began, or None."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(0)
        self._waiting: deque[memoryview] = deque()
        self._slots: deque[_Slot] = deque()
        self._task: asyncio.Task[None] | None = None
        self._held_bytes = 0
        self._is_reading = True
        self._is_writable = True
        self._is_ending = False
        self._muted_until = 0.0
        self._wake: asyncio.TimerHandle | None = None
        self.active_at = self._loop.time()
        self.partial_since: float | None = None
        self.stalled_since: float | None = None
        self.is_closed = False

    def __repr__(self) -> str:
        return f"Connection({len(self._slots)} under way, {len(self._waiting)} waiting)"

    @property
    def is_idle(self) -> bool:
        return not self._slots and not self._waiting

    @property
    def unsent_bytes(self) -> int:
        return 0 if self.is_closed else self._transport.get_write_buffer_size()

    def leave(self) -> None:
        """Ends the connection once the requests that have begun are answered; others are not begun."""
        self._is_ending = True
        if not self._slots and not self.is_closed:
            self._transport.close()

    def abort(self) -> None:
        self._is_ending = True
        if not self.is_closed:
            self._transport.abort()

    # For the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self.client = self._host.new_client(endpoint_of(transport.get_extra_info("peername")))
        self._known_caller = self.client.caller
        self._frames.bytes_max = self._host.frame_bytes_max(self.client)
        self._host.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = self._is_ending = True
        if self._wake is not None:
            self._wake.cancel()
        if self._task is not None:
            self._task.cancel()
        self._drop_slots()
        self._waiting.clear()
        self._hold(-self._held_bytes)
        self._host.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._host.receive_room

    def buffer_updated(self, size_bytes: int) -> None:
        self.active_at = self._loop.time()
        if self._is_ending:
            return
        self._hold(size_bytes)
        try:
            self._waiting += self._frames.receive(self._host.receive_room[:size_bytes])
        except Malformed as error:
            self._end(str(error))
            return
        if not self._frames.partial_bytes:
            self.partial_since = None
        elif self.partial_since is None:
            self.partial_since = self.active_at
        self._begin_waiting()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_writable = False
        self.stalled_since = self._loop.time()

    def resume_writing(self) -> None:
        self._is_writable, self.stalled_since = True, None
        self._begin_waiting()

    # Within

    def _begin_waiting(self) -> None:
        """Begins the requests that may begin, and reads on as long as none waits."""
        while self._waiting and self._may_begin():
            self._begin(self._waiting.popleft())
        if self.is_closed:
            return
        behind = self.client.behind
        self.client.is_waiting = bool(self._waiting)
        if self._waiting and behind is not None and not behind.done():
            behind.set_result(None)
        may_read = not self._waiting and self._host.has_room and not self._is_ending
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if not may_read and not self._host.has_room:
            self._wake_after(ROOM_PAUSE_S)

    def _may_begin(self) -> bool:
        if self._is_ending or self._task is not None or not self._is_writable or len(self._slots) >= IN_FLIGHT_MAX:
            return False
        left_s = self._muted_until - self._loop.time()
        if left_s > 0:
            self._wake_after(left_s)
        return left_s <= 0

    def _wake_after(self, seconds: float) -> None:
        if self._wake is None:
            self._wake = self._loop.call_later(seconds, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        self._begin_waiting()

    def _begin(self, frame: memoryview) -> None:
        slot = _Slot(len(frame))
        self._slots.append(slot)
        try:
            slot.request, handled = self._host.begin(frame, self.client)
        except Malformed as error:
            self._slots.pop()
            self._hold(-slot.frame_bytes - 4)
            self._end(str(error))
            return
        self._follow(slot, handled)

    def _follow(self, slot: _Slot, handled: Any) -> None:
        if isinstance(handled, Pending):
            slot.handled = handled
            handled.then(partial(self._complete, slot))
        elif isinstance(handled, Coroutine):
            self._task = start_task(self._run(slot, handled))
        else:
            self._complete(slot, handled)

    async def _run(self, slot: _Slot, handled: Coroutine[Any, Any, Any]) -> None:
        """Runs the part of a request for which later ones wait."""
        outcome: Any
        try:
            outcome = await handled
        except asyncio.CancelledError:
            if self.is_closed:
                raise
            outcome = ConnectionAbortedError("the request was cancelled")
        except Exception as error:
            outcome = error
        self._task = None
        self._follow(slot, outcome)
        self._begin_waiting()

    def _complete(self, slot: _Slot, outcome: Any) -> None:
        """Takes the result of a request, an exception among them, and sends the responses that are next."""
        if self.is_closed:
            return
        request = slot.request
        assert request is not None
        slot.handled = None
        try:
            slot.pieces = self._host.finish(request, outcome) or []
        except Malformed as error:  # the connection ends here, behind the responses to earlier requests
            slot.pieces, slot.request = [], None
            self._is_ending = True
            self._host.log_closed(self.client, str(error))
        if request.throttle_ms:
            self._muted_until = self._loop.time() + request.throttle_ms / 1000
        self._send()

    def _send(self) -> None:
        """Sends the responses at the head of the order that are there."""
        pieces: list[Buffer] = []
        had_room = len(self._slots) < IN_FLIGHT_MAX
        while self._slots and self._slots[0].pieces is not None:
            slot = self._slots.popleft()
            assert slot.pieces is not None
            pieces += slot.pieces
            self._hold(-slot.frame_bytes - 4)
            if slot.request is None:
                self._drop_slots()
        if pieces:
            self.active_at = self._loop.time()
            size_bytes = sum(map(len, pieces))
            if size_bytes > JOINED_BYTES:
                self._transport.writelines(pieces)
                self._host.count_unsent(self, size_bytes)
            else:
                self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self.client.caller is not self._known_caller:
            self._known_caller = self.client.caller
            self._frames.bytes_max = self._host.frame_bytes_max(self.client)
        if self._is_ending:
            if not self._slots:
                self._transport.close()
        elif self._waiting and not had_room:
            self._begin_waiting()

    def _drop_slots(self) -> None:
        """Drops the requests that are not answered. Their appends go on."""
        while self._slots:
            slot = self._slots.popleft()
            if slot.handled is not None:
                slot.handled.cancel()
            if slot.pieces is None and slot.request is not None:
                self._host.abandon(slot.request)

    def _end(self, reason: str) -> None:
        """Ends the connection, as Kafka does where no answer could be understood."""
        self._host.log_closed(self.client, reason)
        self.leave()

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._host.hold(size_bytes)
