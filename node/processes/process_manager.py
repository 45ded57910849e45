"""Calls and ends the processes that a supervisor has started.

node/processes/supervisor.py starts and restarts them. Invariants: one process that hangs does not keep the others from
being called or ended, and none outlives the node, since it would hold the lock of the data directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from engine.errors import EngineError
from engine.runtime.tasks import start_task
from gateway.links.link import Link
from node.child_processes import Child, call_links

KILLED_S = 5.0  # until the kernel has ended a killed process and released the lock of the data directory

log = logging.getLogger("penstock.supervisor")


async def call_sequentially(links: Sequence[Link], change: str, arguments: object, timeout_s: float) -> None:
    """Calls one process after the other, also after a failure. Raises the first failure."""
    failure: EngineError | None = None
    for link in links:
        if not link.is_up:
            continue
        try:
            await call_links([link], change, arguments, timeout_s)
        except EngineError as error:
            failure = failure or error
    if failure is not None:
        raise failure


async def end(children: Sequence[Child], deadline_s: float) -> bool:
    """Terminate the processes, and kill those left after `deadline_s`. Returns whether all ended clean."""
    running = {child.index: child.running for child in children}
    waits = {start_task(process.wait()): index for index, process in running.items() if process is not None}
    for process in running.values():
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
    try:
        late = (await asyncio.wait(waits, timeout=deadline_s))[1] if waits else set()
    finally:
        kill(children)
    if late:
        log.error("processes did not end and were killed", extra={"shards": sorted(waits[wait] for wait in late)})
        await asyncio.wait(late, timeout=KILLED_S)
    return all(child.process is not None and child.process.returncode == 0 for child in children)


def kill(children: Sequence[Child]) -> None:
    """Kill the processes that still run."""
    for child in children:
        if child.running is not None:
            with suppress(ProcessLookupError):
                child.running.kill()
