"""Which connections ask for nothing: those that never sent a whole request, and those whose last one is long answered.

The HTTP server closes an idle HTTP/1.1 connection after its first bytes, but gives one that has said nothing all the
time it likes, and an HTTP/2 one too, as long as its client answers pings; enough of them, and nobody else gets in. The
server does not tell of connections, so requests are counted here as they come, and the kernel tells what is there
(gateway/connections/connection_watch.py asks it). Nothing here asks a clock or touches a socket.
What must hold: a connection with a request under way, a long poll or an event stream or a slow body, is not idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.connections.kernel_sockets import plain_address


class _Asking:
    """A connection that has sent a request. `inode` is not known before the kernel has been asked."""

    __slots__ = ("answered_at", "inode", "under_way")

    def __init__(self) -> None:
        self.inode = 0
        self.under_way = 0
        self.answered_at = 0.0


class OpenConnections:
    """Of one process, by the address of the client as the HTTP server gives it."""

    def __init__(self, silent_s_max: float, idle_s_max: float) -> None:
        self._silent_s_max = silent_s_max
        self._idle_s_max = idle_s_max
        self._asking: dict[str, _Asking] = {}
        self._silent: dict[int, float] = {}  # by inode: since when

    def __repr__(self) -> str:
        return f"OpenConnections(asking={len(self._asking)}, silent={len(self._silent)})"

    def began(self, client: str) -> None:
        """A request has come. `ended` follows."""
        one = self._asking.get(client)
        if one is None:
            one = self._asking[client] = _Asking()
        one.under_way += 1

    def ended(self, client: str, now: float) -> None:
        one = self._asking[client]
        one.under_way -= 1
        one.answered_at = now

    def overdue(self, found: Mapping[int, str], now: float, is_out: Callable[[str], bool]) -> set[int]:
        """The inodes of connections that have asked for nothing for too long, of those that are there now.

        `is_out` tells whose answer is still on its way: those are judged elsewhere.
        """
        asking = {plain_address(client): (client, one) for client, one in self._asking.items()}
        overdue, silent = set(), {}
        for inode, address in found.items():
            client, one = asking.pop(address, (address, None))
            if one is None:
                silent[inode] = since = self._silent.get(inode, now)
                if now - since >= self._silent_s_max:
                    overdue.add(inode)
            elif one.under_way or is_out(client):
                one.inode = inode
            elif one.inode != inode:  # the address was another connection's before, or is seen for the first time
                one.inode, one.answered_at = inode, now
            elif now - one.answered_at >= self._idle_s_max:
                overdue.add(inode)
        for client, one in asking.values():  # they have left
            if not one.under_way:
                del self._asking[client]
        self._silent = silent
        return overdue
