"""Carries the fetches of this shard's followers to the internal listeners of other nodes: HTTP/1.1, kept alive.

Not what is asked, nor when: replication/fetcher.py. One client session for all nodes; who is closed fetches no more.
"""

from __future__ import annotations

import aiohttp

from engine.batch import Buffer
from gateway.internal_link import FETCH_PATH, Credentials
from replication.fetcher import Exchange, PeerUnreachable

CONNECT_S = 3.0
ANSWER_S = 5.0  # beyond the wait that was asked for: a node that is stopped, or a link that is cut, answers nothing
READ_BYTES = 1024 * 1024


class ReplicaExchanges:
    """Makes the `connect` of a ReplicaHost."""

    def __init__(self, credentials: Credentials, wait_ms: int) -> None:
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=ANSWER_S + wait_ms / 1000)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            headers={**credentials.headers(), "Content-Type": "application/octet-stream"},
            auto_decompress=False,
            read_bufsize=READ_BYTES,
        )

    def to(self, url: str) -> Exchange:
        """Fetches from the shard that listens there."""
        address = url.rstrip("/") + FETCH_PATH

        async def exchange(body: bytes) -> Buffer:
            try:
                async with self._session.post(address, data=body) as response:
                    answer = await response.read()
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise PeerUnreachable(f"{url}: {error!r}") from error
            if response.status != 200:
                raise PeerUnreachable(f"{url} answers {response.status}: {answer[:200]!r}")
            return answer

        return exchange

    async def close(self) -> None:
        await self._session.close()
