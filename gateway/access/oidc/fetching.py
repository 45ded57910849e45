"""Fetches the keys of issuers over HTTPS: the only place of access that connects to anything.

It follows no redirects, knows no proxies, keeps no cookies, decompresses nothing, and reads no more than a key set
needs. Not here: when keys are fetched, and what becomes of them (keeper.py).
"""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import Executor

import aiohttp
from yarl import URL

from gateway.access.oidc import jws
from gateway.access.oidc.issuers import Issuer
from gateway.access.oidc.keys import FetchFailed, InvalidKeys, Key, parse_discovery, parse_keys

ANSWER_BYTES_MAX = 256 * 1024
FETCH_S = 5.0  # for one answer, with its connection
_HEADER_BYTES_MAX = 8190


class KeyFetcher:
    """Fetches keys. `executor` reads certificates and parses what has come."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def fetch(self, issuer: Issuer) -> tuple[Key, ...]:
        """Returns the keys of an issuer that can be used. Raises FetchFailed."""
        loop = asyncio.get_running_loop()
        try:
            context = await loop.run_in_executor(self._executor, _tls_context, issuer.ca_file)
            connector = aiohttp.TCPConnector(ssl=context, use_dns_cache=False, force_close=True)
            async with aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=_HEADER_BYTES_MAX,
                max_field_size=_HEADER_BYTES_MAX,
                skip_auto_headers=("Accept-Encoding",),
                headers={"User-Agent": "penstock-oidc", "Accept": "application/json"},
                timeout=aiohttp.ClientTimeout(total=FETCH_S),
            ) as session:
                keys_url = issuer.keys_url
                if not keys_url:
                    document = await _get(session, issuer.discovery_url)
                    keys_url = await loop.run_in_executor(self._executor, parse_discovery, document, issuer)
                document = await _get(session, keys_url)
            return await loop.run_in_executor(self._executor, _usable, document)
        except TimeoutError:
            raise FetchFailed(f"no whole answer within {FETCH_S:g} s") from None
        except InvalidKeys as error:
            raise FetchFailed(str(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # OSError: also of the CA's file
            raise FetchFailed(f"{type(error).__name__}: {error}"[:300]) from None


async def _get(session: aiohttp.ClientSession, url: str) -> bytes:
    """Returns the body of an answer. Raises FetchFailed, and the errors of aiohttp."""
    async with session.get(URL(url, encoded=True), allow_redirects=False) as response:
        if response.status != 200:
            raise FetchFailed(f"{url} answered {response.status}; only 200 counts, and redirects are not followed")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise FetchFailed(f"{url} answered with a Content-Encoding that was not asked for")
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise FetchFailed(f"{url} answered with more than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _usable(document: bytes) -> tuple[Key, ...]:
    """Returns the keys of a key set that are what they say. Raises InvalidKeys."""
    keys = parse_keys(document)
    usable = tuple(key for key in keys if _is_usable(key))
    if not usable:
        raise InvalidKeys("no key of the key set is usable: each is too short, or is not what its members say")
    return usable


def _is_usable(key: Key) -> bool:
    try:
        jws.public_key(key.jwk)
    except jws.UnusableKey:
        return False
    return True


def _tls_context(ca_file: str) -> ssl.SSLContext:
    """Returns how an issuer's certificate is checked. Blocks. Raises OSError."""
    return ssl.create_default_context(cafile=ca_file or None)
