"""Looks after the connections of a process: ends those whose clients do not take their answers, and idle ones.

Granian has an option for neither. Ending is `shutdown` of the socket: the server then finds the connection closed, and
lets go of what it holds for it. Who is to go is decided by gateway/connections/response_buffers.py and
gateway/connections/open_connections.py; this asks the kernel for them and carries it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial

from gateway.connections.kernel_sockets import KernelSockets, connections_to, own_sockets, shut_down_sockets
from gateway.connections.open_connections import OpenConnections
from gateway.connections.response_buffers import ResponseBuffers
from gateway.http.offload import Offload
from gateway.settings import NodeSettings

LOOK_S = 1.0  # between two looks at unread answers
LOOKS_AT_ONCE = 100  # 3 ms, before the loop sees to others
ROUNDS = 8  # within the time that a connection may be silent
ROUND_S_MAX = 5.0


class ConnectionWatch:
    """Runs while ports are open; `connections` is for the adapter to tell its requests to.

    `now` returns monotonic seconds; `count_idle` takes how many idle connections were ended.
    """

    def __init__(
        self,
        settings: NodeSettings,
        ports: Sequence[int],
        responses: ResponseBuffers,
        now: Callable[[], float],
        offload: Offload,
        count_idle: Callable[[int], None],
    ) -> None:
        silent_s, idle_s = settings.header_read_timeout_ms / 1000, settings.idle_connection_ms / 1000
        self.connections = OpenConnections(silent_s, idle_s)
        self._responses = responses
        self._now = now
        self._offload = offload
        self._count_idle = count_idle
        self._ports = ports
        self._round_s = min(silent_s / ROUNDS, idle_s / ROUNDS, ROUND_S_MAX)
        self._look_s = min(LOOK_S, settings.stream_stall_ms / 1000 / 2)
        self._kernel = KernelSockets()
        self._others: set[int] = set()  # sockets that are overdue here because another process serves them

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_answers(self._responses))
            tasks.create_task(self._watch_idle())

    async def _watch_answers(self, answers: ResponseBuffers) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            overdue = []
            for number, client in enumerate(answers.clients, 1):
                if answers.look(client) and (ends := answers.give_up(client)) is not None:
                    overdue.append(self._kernel.find(ends.server, ends.client))
                if number % LOOKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await self._end({found.inode for found in overdue if found is not None})

    async def _watch_idle(self) -> None:
        while True:
            await asyncio.sleep(self._round_s)
            found: dict[int, str] = {}
            for port in self._ports:
                of_port = await self._offload.in_thread(partial(connections_to, port))
                if of_port is None:
                    return  # the kernel tells nothing here, and never will
                found |= of_port
            overdue = self.connections.overdue(found, self._now(), self._responses.is_out)
            overdue -= self._others
            if overdue:
                own = await self._offload.in_thread(own_sockets)
                self._others = (self._others & found.keys()) | (overdue - own.keys())
                self._count_idle(len(overdue & own.keys()))
                await self._end(overdue & own.keys())

    async def _end(self, inodes: Collection[int]) -> None:
        if inodes:
            await self._offload.in_thread(lambda: shut_down_sockets(inodes))
