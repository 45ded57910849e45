"""The requests of the comparison in the protocol of NATS: publish to JetStream, pull batches, follow a stream.

A record is a message of its own, also where Kafka and Penstock take a batch: a request of 1000 records is 1000 PUBs
whose 1000 acknowledgements are counted. The server acknowledges the messages of a connection to one stream in their
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadtests.generators.records import numbers_in
from loadtests.generators.wire import Reply

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
PULL_EXPIRES_NS = 10_000_000_000
_BATCH_ID = b"<the batch's ID>"  # replaced by one of the same length
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
    """Publishes requests of `values_of(number)`; a reply is complete with the last acknowledgement."""

    def __init__(
        self,
        stream: str,
        connection: int,
        records: int,
        values_of: Callable[[int], Sequence[bytes]],
        *,
        is_constant: bool,
    ) -> None:
        self._inbox = b"_INBOX.%b.%d" % (stream.encode(), connection)
        self._subject = stream.encode()
        self._records = records
        self._values_of = values_of
        self._constant = self._encoded(0) if is_constant else None
        self._lines = Lines()
        self._seen = 0

    def hello(self) -> bytes:
        return CONNECT + b"SUB %b 1\r\n" % self._inbox

    def request(self, number: int) -> bytes:
        return self._encoded(number) if self._constant is None else self._constant

    def take(self, data: bytes) -> Sequence[Reply]:
        lines = self._lines.take(data)
        if b'"error"' in lines or b"-ERR" in lines or b"HMSG" in lines:
            return [Reply(0, len(data), lines[-300:].decode(errors="replace"))]
        self._seen += lines.count(b"\r\n")
        complete, self._seen = divmod(self._seen, 2 * self._records)
        return [Reply(self._records, 0)] * complete

    def _encoded(self, number: int) -> bytes:
        head = b"PUB %b %b " % (self._subject, self._inbox)
        return b"".join(b"%b%d\r\n%b\r\n" % (head, len(value), value) for value in self._values_of(number))


class PublishAtomic:
    """Publishes atomic batches: all records of a request are stored or none, and the last one is acknowledged.

    The stream must allow it (`allow_atomic`), and a batch has at most 1000 messages.
    """

    def __init__(self, stream: str, connection: int, values: Sequence[bytes]) -> None:
        self._inbox = b"_INBOX.%b.%d" % (stream.encode(), connection)
        self._records = len(values)
        self._template = self._encoded(stream.encode(), values)
        self._batch_start = b"%04d" % connection
        self._lines = Lines()
        self._seen = 0

    def hello(self) -> bytes:
        return CONNECT + b"SUB %b 1\r\n" % self._inbox

    def request(self, number: int) -> bytes:
        return self._template.replace(_BATCH_ID, b"%b-%011d" % (self._batch_start, number))

    def take(self, data: bytes) -> Sequence[Reply]:
        lines = self._lines.take(data)
        if b'"error"' in lines or b"-ERR" in lines or b"HMSG" in lines:
            return [Reply(0, len(data), lines[-300:].decode(errors="replace"))]
        self._seen += lines.count(b"\r\n")
        complete, self._seen = divmod(self._seen, 2)
        return [Reply(self._records, 0)] * complete

    def _encoded(self, subject: bytes, values: Sequence[bytes]) -> bytes:
        parts = []
        for sequence, value in enumerate(values, 1):
            is_last = sequence == len(values)
            commit = b"Nats-Batch-Commit: 1\r\n" if is_last else b""
            head = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (_BATCH_ID, sequence, commit)
            reply = self._inbox + b" " if is_last else b""
            parts.append(
                b"HPUB %b %b%d %d\r\n%b%b\r\n" % (subject, reply, len(head), len(head) + len(value), head, value)
            )
        return b"".join(parts)


class Pull:
    """Pulls batches of a stream through a consumer of this connection, which exists already. It needs no acks."""

    def __init__(self, stream: str, consumer: str, connection: int, records: int) -> None:
        self._inbox = b"_INBOX.%b.%d" % (consumer.encode(), connection)
        asked = b'{"batch":%d,"expires":%d}' % (records, PULL_EXPIRES_NS)
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%b.%b-%d" % (stream.encode(), consumer.encode(), connection)
        self._request = b"PUB %b %b %d\r\n%b\r\n" % (subject, self._inbox, len(asked), asked)
        self._records = records
        self._lines = Lines()
        self._seen = 0

    def hello(self) -> bytes:
        return CONNECT + b"SUB %b 1\r\n" % self._inbox

    def request(self, number: int) -> bytes:
        return self._request

    def take(self, data: bytes) -> Sequence[Reply]:
        lines = self._lines.take(data)
        if b"HMSG" in lines or b"-ERR" in lines:
            return [Reply(0, len(data), lines[-300:].decode(errors="replace"))]
        self._seen += lines.count(b"\r\n")
        complete, self._seen = divmod(self._seen, 2 * self._records)
        return [Reply(self._records, len(data))] * complete


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
