"""HTTP access of one client to the nodes: it stays with the node that answered last, and every attempt has a timeout.

Shows what a hand-written client sees: no library, one request at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
import orjson

ATTEMPT_S = 5.0  # the client's timeout; the request's own timeout is shorter
ACK_TIMEOUT_MS = 4_000
CONNECT_S = 1.0
NOT_SENT = "not_connected"
NO_ANSWER = "no_answer"
TIMED_OUT = "timed_out"
# A connection that is idle for longer is not used again: a server that stops closes it, which RFC 9112, 9.5 allows at
# any time, and a request that is on its way just then has no answer. A node gives notice for 0.4 s before it does.
IDLE_S = 0.3


class Answer(NamedTuple):
    """`status` 0 means no answer; `code` then says whether the request may have arrived."""

    status: int
    json: Any
    headers: Mapping[str, str]
    code: str
    node: int


def now() -> float:
    """Return seconds of the monotonic clock, which all processes share."""
    return time.monotonic_ns() / 1e9


class NodeClient:
    """Sends requests to one node at a time. `urls` by node number; the client starts at `first`."""

    def __init__(self, session: aiohttp.ClientSession, urls: Sequence[str], first: int) -> None:
        self._session, self._urls = session, urls
        self._at = first % len(urls)

    def next_node(self) -> None:
        """Switch to the next node."""
        self._at = (self._at + 1) % len(self._urls)

    async def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        node = self._at + 1
        try:
            async with self._session.request(method, self._urls[self._at] + path, data=body, headers=headers) as answer:
                document = orjson.loads(await answer.read() or b"null")
                code = document.get("code", "") if answer.status >= 400 else ""
                return Answer(answer.status, document, answer.headers, code, node)
        except aiohttp.ConnectionTimeoutError:
            return Answer(0, {}, {}, NOT_SENT, node)
        except aiohttp.ClientConnectorError:
            return Answer(0, {}, {}, NOT_SENT, node)
        except TimeoutError:
            return Answer(0, {}, {}, TIMED_OUT, node)
        except (aiohttp.ClientError, OSError, orjson.JSONDecodeError):
            return Answer(0, {}, {}, NO_ANSWER, node)


def open_session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=ATTEMPT_S, sock_connect=CONNECT_S)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S))
