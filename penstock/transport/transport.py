"""The one module that uses aiohttp: sends Request values over kept-alive HTTP/1.1 connections.

HTTP/1.1 on purpose: a Python HTTP/2 client is many times slower. Never repeats a request that a node may have received;
one that was not sent goes to the next node. This module decides whether a failed request may have been carried out,
because only it knows how far the request got. Redirects are not followed: the token goes only to the given nodes, and
to leaders that they name, as far as `leader_addresses` allows.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable

import aiohttp
from yarl import URL

from penstock.closing import AsyncClosing
from penstock.errors import ClientClosed, ConnectionFailed
from penstock.options import ClientOptions
from penstock.transport.api import RACK_HEADER
from penstock.transport.exchange import Answer, Request, problem_of
from penstock.transport.leaders import LEADER_HEADER, LeaderCache
from penstock.transport.nodes import Node, NodeList, bearer, parse_addresses, reason_of

_NOT_NOW = 503
_LEFT_FOR = ("draining", "not_leader", "no_leader")  # the node stops or knows no leader: another may know more
_LEADER_CONNECT_MS_MAX = 1_000  # a leader is near a node that has answered; behind a firewall, the nodes are asked then
_REQUEST_ID = "Penstock-Request-Id"  # in every answer of a node
_READ_BUFFER_BYTES = 1024 * 1024  # aiohttp's 64 KiB pauses and resumes the socket 16 times for one full fetch


Token = str | Callable[[], str]

_log = logging.getLogger(__name__)


class Transport(AsyncClosing):
    """Pools the connections to the given nodes. The first request opens the pool, inside the running loop."""

    def __init__(
        self, urls: str | Iterable[str], token: Token | None, options: ClientOptions, cacert: str | None = None
    ) -> None:
        self.nodes = NodeList(parse_addresses(urls), options.backoff_ms, options.backoff_ms_max)
        self.leaders = LeaderCache([node.url for node in self.nodes.order(0.0)], options.leader_addresses)
        self.requests = 0
        self._options = options
        # aiohttp would accept gzip: in a data centre, compressing costs more than the bytes it saves.
        self._headers = {"Penstock-Client-Id": options.client_id, "Accept-Encoding": "identity"}
        self._token: Token = token or ""
        self._authorization()  # raises now for a text that no header can carry
        self._tls = True if cacert is None else ssl.create_default_context(cafile=cacert)
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Transport {self.nodes!r}{' closed' if self._is_closed else ''}>"

    async def send(self, request: Request, *, wait_ms: int = 0) -> Answer:
        """Returns the answer, whatever its status. `wait_ms` is how long the node may wait. Raises ConnectionFailed.

        After a node that cannot be reached, the next one is asked; ConnectionFailed is raised when none is left. A node
        that failed after it may have received the request is left too, but repeating that request is the caller's
        decision.
        """
        loop = asyncio.get_running_loop()
        answer = await self._send_to_leader(request, wait_ms)
        if answer is not None:
            return answer
        failure: ConnectionFailed | None = None
        for node in self.nodes.order(loop.time()):
            try:
                answer = await self._exchange(node.url, request, wait_ms, self._options.connect_timeout_ms)
            except ConnectionFailed as error:
                if not error.no_side_effects:
                    self._leave(node, str(error))
                    raise
                self.nodes.on_failure(node, loop.time())
                failure = error
            else:
                self._note_leader(request, answer)
                if answer.status == _NOT_NOW and len(self.nodes) > 1 and problem_of(answer).code in _LEFT_FOR:
                    self._leave(node, problem_of(answer).code)
                else:
                    self.nodes.on_answer(node, loop.time())
                return answer
        assert failure is not None
        raise failure

    def _leave(self, node: Node, reason: str) -> None:
        self.nodes.leave(node, asyncio.get_running_loop().time())
        if self.nodes.current_url != node.url:
            _log.info("node %s is left for %s: %s", node.url, self.nodes.current_url, reason)

    async def _send_to_leader(self, request: Request, wait_ms: int) -> Answer | None:
        """Asks the leader of the request's partition. Returns None if none is known or reachable: then ask any node."""
        now = asyncio.get_running_loop().time()
        url = None if RACK_HEADER in request.headers else self.leaders.url_of(request.path, now)
        if url is None:
            return None
        connect_ms = min(self._options.connect_timeout_ms, _LEADER_CONNECT_MS_MAX)
        try:
            answer = await self._exchange(url, request, wait_ms, connect_ms)
        except ConnectionFailed as error:
            if not error.no_side_effects:
                self.leaders.on_failure(request.path)
                raise
            self.leaders.on_unreachable(request.path, url, asyncio.get_running_loop().time())
            return None
        if _is_foreign(answer):
            self.leaders.on_unreachable(request.path, url, asyncio.get_running_loop().time())
            return None
        self.leaders.on_answer(url)
        if answer.status >= _NOT_NOW:  # the next node finds the leader itself
            self.leaders.on_failure(request.path)
        self._note_leader(request, answer)
        return answer

    def _note_leader(self, request: Request, answer: Answer) -> None:
        if LEADER_HEADER in answer.headers and "/partitions/" in request.path:
            url = answer.headers[LEADER_HEADER]
            if self.leaders.on_leader_header(request.path, url):
                _log.debug("the leader of %s is at %s", request.path, url)

    async def _exchange(self, node_url: str, request: Request, wait_ms: int, connect_ms: int) -> Answer:
        session = self._open()
        self.requests += 1
        total_s = (self._options.request_timeout_ms + wait_ms) / 1000
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=connect_ms / 1000)
        url = URL(node_url + request.target, encoded=True)
        headers = {**request.headers, **self._authorization()}
        try:
            async with session.request(
                request.method, url, data=request.body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionFailed(f"{node_url}: {_reason(error)}", no_side_effects=True) from error
        except TimeoutError as error:
            raise ConnectionFailed(f"{node_url}: no answer in {total_s:g} s", no_side_effects=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionFailed(f"{node_url}: {_reason(error)}", no_side_effects=False) from error

    def _authorization(self) -> dict[str, str]:
        """Returns the header with the present token; asks the function that gives it."""
        token = self._token if isinstance(self._token, str) else self._token()
        return {"Authorization": bearer(token)} if token else {}

    async def open(self, request: Request, silence_s: float, url: str = "") -> OpenAnswer:
        """Sends once and returns a 2xx answer whose body is still to be read. A signed `url` gets no token.

        It replaces the path of the request. Raises ConnectionFailed, ProblemError.
        """
        now = asyncio.get_running_loop().time()
        node = next(iter(self.nodes.order(now)))
        target = URL(url or node.url + request.target, encoded=True)
        headers = {**request.headers, **({} if url else self._authorization())}
        connect_s = self._options.connect_timeout_ms / 1000
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=silence_s)
        try:
            response = await self._open().get(target, headers=headers, timeout=timeout, allow_redirects=False)
            if response.status == 200:
                return OpenAnswer(response)
            answer = Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._leave(node, _reason(error))
            raise ConnectionFailed(f"{target.origin()}: {_reason(error)}", no_side_effects=True) from error
        raise problem_of(answer)

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    def check_open(self) -> None:
        """Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("the client is closed")

    def _open(self) -> aiohttp.ClientSession:
        self.check_open()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._options.connections_max, ssl=self._tls),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER_BYTES,
            )
        return self._session


class OpenAnswer:
    """An answer whose body comes in pieces."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self) -> bytes:
        """Returns the next piece; empty at the end. Raises ConnectionFailed."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            text = f"{self._response.url.origin()}: {_reason(error)}"
            raise ConnectionFailed(text, no_side_effects=True) from error

    def close(self) -> None:
        """Ends the connection; a read that waits ends too."""
        self._response.close()


def _is_foreign(answer: Answer) -> bool:
    """True if another program answers at the address of a leader, as through a tunnel: it has stored nothing."""
    return 400 <= answer.status < 500 and _REQUEST_ID not in answer.headers


def _reason(error: Exception) -> str:
    """Returns the reason of the error that aiohttp wraps, if any."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return reason_of(error.certificate_error)
    return reason_of(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)
