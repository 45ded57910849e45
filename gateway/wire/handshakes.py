"""TLS handshakes in turn: few at once, so that a storm of clients after a restart does not hold the event loop.

One object serves the listeners of a server. It decides when the handshake of a connection starts, and nothing about
certificates. A connection first waits for the first byte of its client, so that silent clients keep no place. It then
waits for one of AT_ONCE places, in the order of arrival. A handshake whose client takes longer than PLACE_S gives its
place to the next one and goes on, so that stalled clients delay others by little. Its later steps come at most at the
rate at which places are given.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

HANDSHAKE_BYTE = 0x16  # the first byte of TLS; HTTP begins with a letter
AT_ONCE = 4  # 7 ms of the loop: a handshake with a client certificate takes 1.7 ms of the processor
PLACE_S = 0.02  # most clients on the same continent finish within it


class NotTls(Exception):
    """The first byte of a client is not that of TLS."""


class Handshakes:
    """The handshakes of a server's listeners. `place_s` is how long one may keep its place."""

    def __init__(self, place_s: float = PLACE_S) -> None:
        self._place_s = place_s
        self._places = asyncio.Semaphore(AT_ONCE)
        self._holders: set[socket.socket] = set()

    def __repr__(self) -> str:
        return f"Handshakes({len(self._holders)} of {AT_ONCE} places taken)"

    async def connect(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        accepted: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
        within_s: float,
    ) -> None:
        """Waits for the first byte and for a place, and makes the connection.

        `tls` is called as the handshake starts, so that a renewed certificate counts for those that wait. `within_s`
        limits all of it. Raises NotTls, TimeoutError, OSError (includes SSLError); the caller then closes the socket.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(within_s):
            if await first_byte(accepted) != HANDSHAKE_BYTE:
                raise NotTls
            await self._places.acquire()
            self._holders.add(accepted)
            timer = loop.call_later(self._place_s, self._give_back, accepted)
            try:
                await loop.connect_accepted_socket(make_protocol, accepted, ssl=tls(), ssl_handshake_timeout=within_s)
            finally:
                timer.cancel()
                self._give_back(accepted)

    def _give_back(self, accepted: socket.socket) -> None:
        if accepted in self._holders:
            self._holders.remove(accepted)
            self._places.release()


async def first_byte(connection: socket.socket) -> int:
    """Waits for the first byte of a connection, which stays there. Raises ConnectionResetError if there is none."""
    try:
        first = connection.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(connection, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(connection)
        first = connection.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionResetError
    return first[0]
