"""A keep-alive HTTP/1.1 connection, as thin as Python allows: one request in flight, answers with Content-Length only.

A generator must cost less than the measured server; an HTTP client library costs several times as much as the node. It
has no other use: no chunked answers, no redirects, no retries.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, cast
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_NEXT_OFFSET = re.compile(rb"\r\npenstock-next-offset: *(\d+)", re.IGNORECASE)
_STATUS_AT = slice(9, 12)  # after "HTTP/1.1 "


class Answer(NamedTuple):
    status: int
    head: bytes
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def error(self) -> str:
        """Returns status and body of a failure; empty for 2xx."""
        return "" if self.is_good else f"{self.status}: {self.body[:300].decode(errors='replace')}"

    @property
    def next_offset(self) -> int:
        """Returns the next offset from the node's header."""
        match = _NEXT_OFFSET.search(self.head)
        assert match is not None, "the answer names no next offset"
        return int(match[1])


class Connection(asyncio.Protocol):
    """One connection. `send` starts a request; its future is done with the answer, or with the error that ended it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._parts: list[bytes] = []
        self._missing_bytes: int | None = None  # None until the head is complete

    def send(self, request: bytes) -> asyncio.Future[Answer]:
        assert self._waiting is None, "one request at a time"
        assert self._transport is not None
        self._waiting = future = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        if self._missing_bytes is None:
            self._look_for_head()
        else:
            self._missing_bytes -= len(data)
        if self._missing_bytes is not None and self._missing_bytes <= 0:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def _look_for_head(self) -> None:
        data = b"".join(self._parts)
        self._parts = [data]
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            match = _LENGTH.search(data, 0, end + 2)
            self._missing_bytes = end + 4 + (int(match[1]) if match else 0) - len(data)

    def _finish(self) -> None:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._missing_bytes = [], None
        head, _, body = data.partition(b"\r\n\r\n")
        future, self._waiting = self._waiting, None
        if future is not None and not future.done():
            future.set_result(Answer(int(head[_STATUS_AT]), head, body))


async def connect(host: str, port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    return connection


def connector(url: str) -> Callable[[], Awaitable[Connection]]:
    """Returns what opens connections to the host of a URL."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return partial(connect, parts.hostname, parts.port)


Headers = tuple[tuple[str, str], ...]


def request_bytes(method: str, host: str, target: str, body: bytes = b"", headers: Headers = ()) -> bytes:
    """Returns the bytes of a request, which is sent many times."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers)]
    if method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
