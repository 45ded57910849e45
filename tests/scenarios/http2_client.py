"""A small HTTP/2 client for tests, on the `h2` library: many requests at once on one connection, prior knowledge.

It is not a client for users: it has no TLS and no retries, and buffers answers completely. Tests of HTTP/2 details
(resets, windows, many streams) need a client that can also misbehave.
"""

from __future__ import annotations

import asyncio
import contextlib

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)

READ_BYTES = 256 * 1024
WINDOW_BYTES = 2**31 - 1


class _Stream:
    """One request in flight."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Http2Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
        self._reader = reader
        self._writer = writer
        self._authority = authority
        self._connection = H2Connection(
            H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False)
        )
        self._streams: dict[int, _Stream] = {}
        self._window_grew = asyncio.Event()
        self._connection.initiate_connection()
        self._connection.increment_flow_control_window(WINDOW_BYTES - 65_535)
        self._flush()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, host: str, port: int) -> Http2Client:
        reader, writer = await asyncio.open_connection(host, port)
        return cls(reader, writer, f"{host}:{port}")

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._writer.close()

    async def request(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body. A cancellation resets the stream, as a client that disconnects does."""
        stream_id, stream = self.begin(method, path, headers, is_whole=not body)
        try:
            if body:
                await self._send_body(stream_id, stream, body)
            await stream.answered
        except asyncio.CancelledError:
            self.reset(stream_id)
            raise
        finally:
            del self._streams[stream_id]
        status = next(value for name, value in stream.headers if name == ":status")
        return int(status), [pair for pair in stream.headers if not pair[0].startswith(":")], bytes(stream.body)

    def begin(self, method: str, path: str, headers: dict[str, str], *, is_whole: bool) -> tuple[int, _Stream]:
        """Send the headers of a request; with `is_whole` no body follows. A given `:authority` replaces the default."""
        stream_id = self._connection.get_next_available_stream_id()
        stream = self._streams[stream_id] = _Stream()
        authority = headers.get(":authority", self._authority)
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", authority)]
        fields = [(name.lower(), value) for name, value in headers.items() if name != ":authority"]
        self._connection.send_headers(stream_id, pseudo + fields, end_stream=is_whole)
        self._flush()
        return stream_id, stream

    def send_part(self, stream_id: int, data: bytes) -> None:
        """Send a part of a body, smaller than the window, without its end."""
        self._connection.send_data(stream_id, data)
        self._flush()

    def send_trailers(self, stream_id: int, trailers: list[tuple[str, str]]) -> None:
        """End a body with trailers."""
        self._connection.send_headers(stream_id, trailers, end_stream=True)
        self._flush()

    async def pipelined(
        self, method: str, paths: list[str], headers: dict[str, str], bodies: list[bytes]
    ) -> list[tuple[int, bytes]]:
        """Send requests one after the other, each complete before the next; return status and body of each answer.

        All must fit into the windows and into the number of streams that the node allows.
        """
        await self._until_room(sum(map(len, bodies)))
        begun = [self._send_whole(method, path, headers, body) for path, body in zip(paths, bodies, strict=True)]
        await asyncio.gather(*(stream.answered for _, stream in begun))
        for stream_id, _ in begun:
            del self._streams[stream_id]
        return [(int(dict(stream.headers)[":status"]), bytes(stream.body)) for _, stream in begun]

    def _send_whole(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, _Stream]:
        given = {**headers, "content-length": str(len(body))}
        stream_id, stream = self.begin(method, path, given, is_whole=not body)
        step = min(self._connection.max_outbound_frame_size, 256 * 1024)
        for at in range(0, len(body), step):
            self._connection.send_data(stream_id, body[at : at + step], end_stream=at + step >= len(body))
        self._flush()
        return stream_id, stream

    async def _until_room(self, size_bytes: int) -> None:
        """Wait until the connection's window has this size."""
        while self._connection.outbound_flow_control_window < size_bytes:
            self._window_grew.clear()
            await self._window_grew.wait()

    async def wait_for_window(self, size_bytes: int) -> None:
        """Wait until a new stream's window has this size."""
        while self._connection.remote_settings.initial_window_size < size_bytes:
            self._window_grew.clear()
            await self._window_grew.wait()

    def reset(self, stream_id: int) -> None:
        with contextlib.suppress(Exception):  # the stream or the connection may have ended: nothing left to reset
            self._connection.reset_stream(stream_id, ErrorCodes.CANCEL)
            self._flush()

    async def _send_body(self, stream_id: int, stream: _Stream, body: bytes) -> None:
        """Send within the windows; end early if the answer arrives before the body was sent."""
        sent = 0
        while sent < len(body) and not stream.answered.done():
            room = min(self._connection.local_flow_control_window(stream_id), self._connection.max_outbound_frame_size)
            if room == 0:
                self._window_grew.clear()
                await self._window_grew.wait()
                continue
            self._connection.send_data(stream_id, body[sent : sent + room], end_stream=sent + room >= len(body))
            sent += room
            self._flush()
            await self._writer.drain()

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(READ_BYTES):
                for event in self._connection.receive_data(data):
                    self._take(event)
                self._flush()
        except ConnectionError as error:
            self._fail_all(error)
        else:
            self._fail_all(ConnectionResetError("the node closed the connection"))

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived() if event.stream_id in self._streams:
                self._streams[event.stream_id].headers = [(str(n), str(v)) for n, v in event.headers]
            case DataReceived():
                self._connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if event.stream_id in self._streams:
                    self._streams[event.stream_id].body += event.data
            case StreamEnded() if event.stream_id in self._streams:
                _finish(self._streams[event.stream_id].answered, None)
            case StreamReset() if event.stream_id in self._streams:
                reset = ConnectionResetError(f"the node reset the stream: {event.error_code!r}")
                _finish(self._streams[event.stream_id].answered, reset)
            case ConnectionTerminated() if event.error_code:
                self._fail_all(ConnectionResetError(f"the node ended the connection: {event.error_code!r}"))
            case WindowUpdated():
                pass
        self._window_grew.set()

    def _fail_all(self, error: Exception) -> None:
        for stream in self._streams.values():
            _finish(stream.answered, error)

    def _flush(self) -> None:
        self._writer.write(self._connection.data_to_send())


def _finish(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
