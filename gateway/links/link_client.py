"""A link to one other process: made in the background, and made again whenever it is lost.

gateway/links/link.py has the calls over a link. Without a `dial` the other process listens on a Unix socket (`listen`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from engine.runtime.tasks import keep_running
from gateway.links.link import Handler, Link, LinkDown, LinkLost

Dial = Callable[[Callable[[], Link]], Awaitable[Link]]  # connects, and gives the connection to a new link

log = logging.getLogger("penstock.link")


class LinkRejected(ConnectionRefusedError):
    """The other process runs and rejects this one. An operator has to find the reason."""


class LinkClient:
    """A link to one other process that reconnects whenever it is lost."""

    RETRY_S = 0.05
    RETRY_S_MAX = 1.0  # of a machine that does not answer; a retry of a local socket costs nothing

    def __init__(
        self,
        path: str,
        handlers: Mapping[str, Handler] | None = None,
        on_lost: Callable[[], None] | None = None,
        dial: Dial | None = None,
    ) -> None:
        """With `on_lost` the link is made once, and its loss calls `on_lost` instead of a reconnect.

        Without `dial`, `path` is that of a Unix socket. `handlers` may grow until the first connection.
        """
        self.path = path
        self._dial = dial
        self._handlers = {} if handlers is None else handlers
        self._on_lost = on_lost
        self._link: Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Caller({self.path}, {self._link})"

    def connect(self) -> None:
        """Begins to connect, and retries until it works."""
        if self._connecting is None or self._connecting.done():
            self._connecting = keep_running(self._connect_forever, "connecting to another process", of=self.path)

    async def wait_connected_within(self, timeout_s: float) -> Link:
        """Returns the link as soon as it is up. Raises LinkLost if that takes longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.wait_connected()
        except TimeoutError:
            raise LinkLost(f"no process answered at {self.path} within {timeout_s:g} s") from None

    async def wait_connected(self) -> Link:
        """Returns the link as soon as it is up."""
        while self._link is None or not self._link.is_up:
            self.connect()
            assert self._connecting is not None
            await asyncio.shield(self._connecting)
        return self._link

    def link(self) -> Link:
        """Returns the link. Raises LinkDown while it is down."""
        if self._link is None or not self._link.is_up:
            raise LinkDown("the process that owns the partition is restarting")
        return self._link

    def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.close()

    async def _connect_forever(self) -> None:
        pause_s, reason = self.RETRY_S, ""
        dial = self._dial or self._dial_unix
        while not self._is_closed:
            try:
                self._link = await dial(lambda: Link(self._handlers, self._on_link_lost))
            except LinkRejected as error:  # logged once: an operator has to act, and connecting is retried
                if str(error) != reason:
                    reason = str(error)
                    log.error("another process rejected the connection", extra={"at": self.path, "reason": reason})
            except OSError:
                pass  # the other process does not listen yet
            if self._link is not None and self._link.is_up:
                return
            await asyncio.sleep(pause_s)
            if self._dial is not None:
                pause_s = min(2 * pause_s, self.RETRY_S_MAX)

    async def _dial_unix(self, make_link: Callable[[], Link]) -> Link:
        _, link = await asyncio.get_running_loop().create_unix_connection(make_link, self.path)
        return link

    def _on_link_lost(self, _: Link) -> None:
        if self._on_lost is not None:
            self._on_lost()
        elif not self._is_closed:
            self.connect()


async def listen(path: str, handlers: Mapping[str, Handler]) -> asyncio.Server:
    """Listens for links on a Unix socket."""
    return await asyncio.get_running_loop().create_unix_server(lambda: Link(handlers), path)
