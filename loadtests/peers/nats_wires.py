"""A delivery in the protocol of NATS: publish single records to JetStream, follow a stream."""

from __future__ import annotations

from collections.abc import Sequence

from loadtests.generators.records import numbered_value, numbers_in
from loadtests.generators.wire import Reply

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
_PING, _PONG = b"PING\r\n", b"PONG\r\n"


class Lines:
    """Keeps the incomplete last line of a stream, and removes what the server says about itself."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """Returns the complete lines, without INFO and PING. Lines are whole: a value has no line break."""
        data = self._rest + data
        end = data.rfind(b"\r\n") + 2
        if end < 2:
            self._rest = data
            return b""
        lines, self._rest = data[:end], data[end:]
        if lines.startswith(b"INFO "):
            lines = lines[lines.index(b"\r\n") + 2 :]
        return lines.replace(_PING, b"") if _PING in lines else lines


class Publish:
    """Publishes a numbered record a request. The server acknowledges the messages of a connection in their order."""

    def __init__(self, stream: str, connection: int) -> None:
        self._inbox = b"_INBOX.%b.%d" % (stream.encode(), connection)
        self._subject = stream.encode()
        self._lines = Lines()
        self._seen = 0

    def hello(self) -> bytes:
        return CONNECT + b"SUB %b 1\r\n" % self._inbox

    def request(self, number: int) -> bytes:
        value = numbered_value(number)
        return b"PUB %b %b %d\r\n%b\r\n" % (self._subject, self._inbox, len(value), value)

    def take(self, data: bytes) -> Sequence[Reply]:
        lines = self._lines.take(data)
        if b'"error"' in lines or b"-ERR" in lines or b"HMSG" in lines:
            return [Reply(lines[-300:].decode(errors="replace"))]
        self._seen += lines.count(b"\r\n")
        complete, self._seen = divmod(self._seen, 2)
        return [Reply()] * complete


class Follow:
    """Takes what a push consumer delivers."""

    def __init__(self, deliver_subject: str) -> None:
        self._subject = deliver_subject.encode()
        self._lines = Lines()

    def hello(self) -> bytes:
        return CONNECT + b"SUB %b 1\r\n" % self._subject

    def take(self, data: bytes) -> tuple[list[int], bytes]:
        """Returns the numbers that arrived, and the answer to a ping. Raises ValueError for an error of the server."""
        is_asked = _PING in data
        lines = self._lines.take(data)
        if b"-ERR" in lines:
            raise ValueError(lines[-300:].decode(errors="replace"))
        return numbers_in(lines), _PONG if is_asked else b""
