"""Sends requests to receivers: the only place that connects to addresses that a client chose.

Every connection goes to an address that was checked after its name was resolved. It follows no redirects, knows no
proxies, keeps no cookies, and drops the body of an answer.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Mapping
from ipaddress import ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from gateway.subscriptions.core.outcome import Outcome, retry_after_s
from gateway.subscriptions.core.targets import AllowedTargets, InvalidTarget

CONNECTIONS_MAX = 500  # of a process, to all receivers
HEADER_BYTES_MAX = 8190
ANSWER_BYTES = 16 * 1024
BODY_S = 1.0  # for the body of an answer, which decides nothing


class CheckedResolver(AbstractResolver):
    """Resolves names, and returns only addresses that are allowed and not this machine's."""

    def __init__(self, allowed: AllowedTargets) -> None:
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Returns the addresses of a host. Raises OSError if none is allowed."""
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        results = [
            ResolveResult(hostname=host, host=address[0], port=port, family=kind, proto=proto, flags=0)
            for kind, _, proto, _, address in infos
            if isinstance(address[0], str) and is_allowed(self._allowed, address[0])
        ]
        if not results:
            raise OSError(errno.EACCES, f"no address of {host} is allowed")  # aiohttp shows the second
        return results

    async def close(self) -> None:
        """Closes nothing: it holds no connection."""


def is_allowed(allowed: AllowedTargets, text: str) -> bool:
    """Returns whether a connection may go to an address."""
    address = ip_address(text.partition("%")[0])
    return allowed.allows_address(address) and (allowed.is_listed(address) or not _is_own(text))


def _is_own(address: str) -> bool:
    """Returns whether this machine has the address: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


class Sender:
    """The HTTP client of push in one process. Its session is made at the first request."""

    def __init__(self, allowed: AllowedTargets) -> None:
        self.allowed = allowed
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Sender({'idle' if self._session is None else 'open'})"

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> tuple[Outcome, Mapping[str, str]]:
        """Returns the outcome of a request and the headers of its answer. A failure is an outcome too.

        Once the head of an answer has come, its status is the outcome, whatever becomes of its body.
        """
        answered: tuple[Outcome, Mapping[str, str]] | None = None
        began = time.perf_counter()

        def outcome(status: int | None, error: str, pause_s: int | None = None) -> Outcome:
            return Outcome(status, error, pause_s, round(1000 * (time.perf_counter() - began)))

        try:
            self.allowed.check_url(url)
            target = URL(url, encoded=True)
            if (host := target.host) is not None and _is_address(host) and not is_allowed(self.allowed, host):
                return outcome(None, f"the address {host} is not allowed"), {}
            async with self._open().request(
                method,
                target,
                headers=headers,
                data=body,
                timeout=aiohttp.ClientTimeout(total=timeout_ms / 1000),
                allow_redirects=False,
            ) as response:
                status, received = response.status, response.headers
                error = "" if 200 <= status < 300 else f"the receiver answered {status}"
                answered = outcome(status, error, retry_after_s(status, received.get("Retry-After"))), received
                async with asyncio.timeout(BODY_S):  # with more to come, the connection is not used again
                    await response.content.read(ANSWER_BYTES)
            return answered
        except TimeoutError:
            return answered or (outcome(None, f"no answer within {timeout_ms} ms"), {})
        except InvalidTarget as error:
            return outcome(None, str(error)), {}
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return answered or (outcome(None, f"{type(error).__name__}: {error}"[:300]), {})

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(
                resolver=CheckedResolver(self.allowed), use_dns_cache=False, limit=CONNECTIONS_MAX
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=HEADER_BYTES_MAX,
                max_field_size=HEADER_BYTES_MAX,
                skip_auto_headers=("Accept-Encoding",),
                headers={"User-Agent": "penstock-push"},
            )
        return self._session


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
