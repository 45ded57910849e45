"""Posts spans to a collector by OTLP/HTTP: the only place of tracing that connects to anything.

It follows no redirects and keeps no cookies. Nothing of an answer but its status and Retry-After is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

import aiohttp

from gateway.tracing.exporter import NotNow, Refused
from gateway.tracing.otlp import encode_spans
from gateway.tracing.span import Attribute, SpanRecord

POST_S = 10.0  # the default of OTEL_EXPORTER_OTLP_TIMEOUT
RETRYABLE = (429, 502, 503, 504)  # OTLP/HTTP; every other failure is final
_TRACES_PATH = "/v1/traces"
_HEADERS = {"Content-Type": "application/json", "Content-Encoding": "gzip", "User-Agent": "penstock-otlp"}


class Collector:
    """One collector. `resource` are the attributes of this node."""

    def __init__(self, endpoint: str, resource: Mapping[str, Attribute], executor: Executor | None = None) -> None:
        self._url = endpoint.rstrip("/") + _TRACES_PATH
        self._resource = resource
        self._executor = executor
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Collector({self._url})"

    async def send(self, spans: Sequence[SpanRecord]) -> None:
        """Posts spans. Raises NotNow, Refused."""
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(self._executor, encode_spans, spans, self._resource)
        if self._session is None:
            timeout, jar = aiohttp.ClientTimeout(total=POST_S), aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=jar, headers=_HEADERS)
        try:
            async with self._session.post(self._url, data=body, allow_redirects=False) as response:
                status, asked = response.status, response.headers.get("Retry-After", "")
        except TimeoutError:
            raise NotNow(f"{self._url} did not answer within {POST_S:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NotNow(f"{self._url}: {type(error).__name__}") from None
        if status in RETRYABLE:
            is_number = asked.isascii() and asked.isdigit() and len(asked) < 10
            raise NotNow(f"{self._url} answered {status}", float(asked) if is_number else None)
        if not 200 <= status < 300:
            raise Refused(f"{self._url} answered {status}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
