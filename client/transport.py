"""The one door to aiohttp: carries Request values over kept-alive HTTP/1.1 connections.

HTTP/1.1 on purpose: a Python HTTP/2 client is many times slower. Never retries; what a failure means for the
request (surely not carried out, or maybe) is decided here, because only here it is known.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from client.address import parse_address
from client.errors import ClientClosed, ConnectionFailed
from client.exchange import Answer, Request
from client.options import ClientOptions

_READ_BUFFER_BYTES = 1024 * 1024  # aiohttp's 64 KiB pauses and resumes the socket 16 times for one full fetch


class Transport:
    """A pool of connections to one node. The pool is opened by the first request, inside the running loop."""

    def __init__(self, url: str, token: str | None, options: ClientOptions) -> None:
        self.url = str(parse_address(url))
        self._options = options
        # aiohttp would ask for gzip: within a data centre that costs both ends more than the bytes it saves.
        self._headers = {"Penstock-Client-Id": options.client_id, "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Transport {self.url}{' closed' if self._is_closed else ''}>"

    async def send(self, request: Request, *, wait_ms: int = 0) -> Answer:
        """The answer, whatever its status. Raises ConnectionFailed. `wait_ms` is what the node may wait."""
        session = self._opened()
        total_s = (self._options.request_timeout_ms + wait_ms) / 1000
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=self._options.connect_timeout_ms / 1000)
        url = URL(self.url + request.target, encoded=True)
        try:
            async with session.request(
                request.method, url, data=request.body, headers=request.headers, timeout=timeout
            ) as response:
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionFailed(f"{self.url}: {_reason(error)}", no_side_effects=True) from error
        except TimeoutError as error:
            raise ConnectionFailed(f"{self.url}: no answer in {total_s:g} s", no_side_effects=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionFailed(f"{self.url}: {_reason(error)}", no_side_effects=False) from error

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise ClientClosed("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._options.connections_max),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER_BYTES,
            )
        return self._session


def _reason(error: Exception) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    number = getattr(cause, "errno", None)
    text = os.strerror(number) if number is not None and number > 0 else str(cause) or type(cause).__name__
    return text[:1].lower() + text[1:]
