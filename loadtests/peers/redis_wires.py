"""A delivery in Redis's protocol (RESP2): XADD of single records, XREAD at the end.

A record is an entry with one field. Replies are counted by their line breaks, which values do not have.
"""

from __future__ import annotations

from collections.abc import Sequence

from loadtests.generators.records import numbered_value, numbers_in
from loadtests.generators.wire import Reply

FIELD = b"v"
BLOCK_MS = 2000
TAIL_COUNT = 1000
_LINES_EACH = 8  # of an entry in a reply: *2, $, ID, *2, $1, v, $, value
_VALUE_START = b"*2\r\n$1\r\nv\r\n"


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Add:
    """Adds a numbered record a request."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()
        self._seen = 0
        self._is_at_line_start = True

    def hello(self) -> bytes:
        return b""

    def request(self, number: int) -> bytes:
        return command(b"XADD", self._stream, b"*", FIELD, numbered_value(number))

    def take(self, data: bytes) -> Sequence[Reply]:
        is_error = b"\n-" in data or (self._is_at_line_start and data.startswith(b"-"))
        self._is_at_line_start = data.endswith(b"\n")
        if is_error:
            return [Reply(data[-300:].decode(errors="replace"))]
        self._seen += data.count(b"\n")
        complete, self._seen = divmod(self._seen, 2)
        return [Reply()] * complete


class Entries:
    """Collects a reply with entries: some lines of head, the last of them the count, and the entries."""

    def __init__(self, head_lines: int) -> None:
        self._head_lines = head_lines
        self._parts: list[bytes] = []
        self._breaks = 0
        self._expected: int | None = None

    def take(self, data: bytes) -> tuple[int, bytes] | None:
        """Returns count and bytes of a complete reply. Raises ValueError for an error."""
        self._parts.append(data)
        self._breaks += data.count(b"\n")
        if self._expected is None and self._breaks:
            self._parts = [b"".join(self._parts)]
            self._expected = self._count(self._parts[0])
        if self._expected is None or self._breaks < self._lines_of(self._expected):
            return None
        reply, count = b"".join(self._parts), self._expected
        self._parts, self._breaks, self._expected = [], 0, None
        return max(0, count), reply

    def _count(self, data: bytes) -> int | None:
        """Returns the number of entries; -1 for the null of a wait that ended."""
        if data.startswith(b"-"):
            raise ValueError(data[:300].decode(errors="replace"))
        lines = data.split(b"\r\n", self._head_lines)
        if lines[0] == b"*-1":
            return -1
        return int(lines[self._head_lines - 1][1:]) if len(lines) > self._head_lines else None

    def _lines_of(self, count: int) -> int:
        return 1 if count < 0 else self._head_lines + _LINES_EACH * count


class Follow:
    """Reads the end of a stream: each XREAD waits for the first entry."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()
        self._entries = Entries(head_lines=5)
        self._after = b"0"

    def hello(self) -> bytes:
        words = (b"BLOCK", b"%d" % BLOCK_MS, b"COUNT", b"%d" % TAIL_COUNT, b"STREAMS", self._stream, self._after)
        return command(b"XREAD", *words)

    def take(self, data: bytes) -> tuple[list[int], bytes]:
        """Returns the numbers that arrived, and the next request. Raises ValueError for an error of the server."""
        entries = self._entries.take(data)
        if entries is None:
            return [], b""
        count, reply = entries
        if count:
            self._after = last_id(reply)
        return numbers_in(reply), self.hello()


def last_id(reply: bytes) -> bytes:
    """Returns the ID of the last entry of a reply."""
    return reply[: reply.rindex(_VALUE_START)].rsplit(b"\r\n", 2)[1]
