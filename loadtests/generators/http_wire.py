"""A `Wire` of HTTP/1.1 whose requests differ in a header, such as an idempotency key; those of h2load are all equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from loadtests.generators.bodies import Body
from loadtests.generators.wire import Reply

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_DUPLICATE = re.compile(rb"\r\npenstock-duplicate: *true", re.IGNORECASE)
_STATUS_AT = slice(9, 12)  # after "HTTP/1.1 "


class HttpProduce:
    """Produces one body over and over. `headers_of` takes the number of the request on this connection."""

    def __init__(self, host: str, target: str, body: Body, headers_of: Callable[[int], bytes]) -> None:
        self._head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {body.media_type}\r\n".encode()
        self._end = b"Content-Length: %d\r\n\r\n%b" % (len(body.data), body.data)
        self._records = body.records
        self._headers_of = headers_of
        self._sent = 0
        self._rest = b""

    def hello(self) -> bytes:
        return b""

    def request(self, number: int) -> bytes:
        self._sent += 1
        return self._head + self._headers_of(self._sent - 1) + self._end

    def take(self, data: bytes) -> Sequence[Reply]:
        data = self._rest + data
        replies, at = [], 0
        while (head_end := data.find(b"\r\n\r\n", at)) >= 0:
            head = data[at : head_end + 2]
            length = _LENGTH.search(head)
            end = head_end + 4 + (int(length[1]) if length else 0)
            if len(data) < end:
                break
            replies.append(self._reply(head, data[head_end + 4 : end]))
            at = end
        self._rest = data[at:]
        return replies

    def _reply(self, head: bytes, body: bytes) -> Reply:
        status = head[_STATUS_AT]
        if status != b"200":
            return Reply(0, len(body), f"{status.decode()}: {body[:300].decode(errors='replace')}")
        if _DUPLICATE.search(head):
            return Reply(0, len(body), "the node took a new request for a repeat")
        return Reply(self._records, len(body))
