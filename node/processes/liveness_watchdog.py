"""Ends a process of the node that hangs: it asks each one that serves for a sign of life, and kills who gives none.

A shard that hangs keeps its port, so that connections go on coming to it, and leads on as far as the cluster can see:
nobody would take its partitions over. Killed, it is started again by node/processes/supervisor.py like one that died.
What it is not: a deadline for starting, which takes as long as recovery takes.
What must hold: time in which the supervisor itself did not run, as on a machine that was paused, does not count.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from gateway.links.link import Busy, Handler
from node.processes.process_manager import Child

LOOKS = 10  # in the time that a process may be silent: a pause of everything counts as one of them at most

log = logging.getLogger("penstock.supervisor")


async def kill_if_silent(child: Child, silent_ms_max: int) -> None:
    """Watch the process that the child has now, until it is killed or the watch is cancelled."""
    process = child.process
    assert process is not None
    asked: asyncio.Future[Any] | None = None
    looks_in_vain = 0
    while looks_in_vain < LOOKS:
        await asyncio.sleep(silent_ms_max / LOOKS / 1000)
        if asked is not None and not asked.done():
            looks_in_vain += 1
            continue
        asked, looks_in_vain = None, 0
        if child.is_ready and child.link is not None:
            with suppress(Busy):  # it is going down, which the supervisor sees
                asked = child.link.begin("sign_of_life", None)
    log.error("a process hangs and is killed", extra={"shard": child.index, "silent_ms": silent_ms_max})
    with suppress(ProcessLookupError):
        process.kill()


async def sign_of_life(_: Any, __: bytes) -> tuple[None, bytes]:
    """What every process answers."""
    return None, b""


SIGNS_OF_LIFE: dict[str, Handler] = {"sign_of_life": sign_of_life}
