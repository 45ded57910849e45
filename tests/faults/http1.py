"""Framing of HTTP/1.1: reads complete requests and replies from a stream, as unmodified bytes.

It knows framing only and changes no byte: a replay sends the same bytes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

HEAD_END = b"\r\n\r\n"


class Broken(Exception):
    """The stream ended within a message, or is not HTTP/1.1."""


@dataclass(frozen=True)
class Message:
    """`head` includes its blank line; `body` is as received, including chunk sizes."""

    head: bytes
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.head + self.body

    @property
    def start_line(self) -> str:
        return self.head.partition(b"\r\n")[0].decode("latin-1")

    @property
    def status(self) -> int:
        return int(self.start_line.split(" ")[1])

    @property
    def is_last(self) -> bool:
        """True if the connection ends after it."""
        return (header(self.head, "connection") or "").lower() == "close"


def header(head: bytes, name: str) -> str | None:
    for line in head.split(b"\r\n")[1:]:
        header_name, _, value = line.partition(b":")
        if header_name.decode("latin-1").strip().lower() == name:
            return value.decode("latin-1").strip()
    return None


async def read_head(reader: asyncio.StreamReader) -> bytes | None:
    """Return the head; None when the stream ends between messages."""
    try:
        return await reader.readuntil(HEAD_END)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise Broken(f"the stream ended within a head: {error.partial[:100]!r}") from None
        return None
    except asyncio.LimitOverrunError as error:
        raise Broken("a head that does not end") from error


async def read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Read the body of a request; empty without a length and without chunks."""
    try:
        if (header(head, "transfer-encoding") or "").lower() == "chunked":
            return await _read_chunks(reader)
        return await reader.readexactly(int(header(head, "content-length") or 0))
    except (asyncio.IncompleteReadError, ValueError) as error:
        raise Broken("the stream ended within a body") from error


async def read_reply(reader: asyncio.StreamReader, *, is_head_only: bool = False) -> Message:
    """Read the final reply; skips 1xx replies. `is_head_only`: the answer to a HEAD."""
    while True:
        head = await read_head(reader)
        if head is None:
            raise Broken("no reply")
        status = int(head.split(b" ", 2)[1])
        if status >= 200:
            break
    if is_head_only or status in (204, 304):
        return Message(head, b"")
    if header(head, "content-length") is None and header(head, "transfer-encoding") is None:
        return Message(head, await reader.read(-1))
    return Message(head, await read_body(reader, head))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        body += line + await reader.readexactly(size + 2) if size else line
        if not size:
            break
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":  # trailers
        body += line
    return body + line
