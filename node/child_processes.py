"""The processes of a node as its supervisor knows them, and calls to them.

node/processes/supervisor.py starts and restarts them, node/processes/process_manager.py ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.links.link import Link, LinkLost
from node.messages import CHANGE_S

WORKER = -1


@dataclass(slots=True)
class Child:
    """One process: a shard by its index, or the worker."""

    index: int
    process: asyncio.subprocess.Process | None = None
    link: Link | None = None
    is_ready: bool = False
    consecutive_deaths: int = 0

    @property
    def running(self) -> asyncio.subprocess.Process | None:
        return self.process if self.process is not None and self.process.returncode is None else None


class ChildProcesses:
    """Calls the processes of a node: the shards, and the worker, which is the last child.

    A process that is down learns of a change when it starts again.
    """

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children

    def __repr__(self) -> str:
        return f"ChildProcesses({len(self._children)})"

    async def call_shards(self, change: str, arguments: object) -> None:
        await call_links(self.shard_links(), change, arguments, CHANGE_S)

    async def call_worker(self, change: str, arguments: object) -> None:
        await call_links(_up(self._children[-1:]), change, arguments, CHANGE_S)

    def shard_links(self) -> list[Link]:
        """Return the links to all running shards, for calls that are not awaited but keep their order."""
        return _up(self._children[:-1])


def _up(children: Sequence[Child]) -> list[Link]:
    return [child.link for child in children if child.link is not None and child.link.is_up]


async def call_links(links: Sequence[Link], change: str, arguments: object, timeout_s: float) -> None:
    """Calls every process. One that ends meanwhile is ignored: it learns of the change when it is back.

    Raises the error of a call that was not answered in time or failed.
    """
    calls = [link.call(change, arguments, timeout_s=timeout_s) for link in links]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for link, outcome in zip(links, outcomes, strict=True):
        is_gone = isinstance(outcome, LinkLost) and not link.is_up
        if isinstance(outcome, BaseException) and not is_gone:
            raise outcome
