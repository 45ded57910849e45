"""Kills a process of the node that hangs: it must answer a call within `process_heartbeat_timeout_ms`.

A hung shard would keep its port and its leaderships, so no other node would take over. After the kill
node/processes/supervisor.py restarts it like one that died. Not a deadline for starts, which take as long as recovery
takes. Invariant: time in which the supervisor itself did not run, as on a paused machine, does not count.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from types import NoneType
from typing import Any

from gateway.links.link import Busy, Handler, handler
from node.child_processes import Child

CHECKS = 10  # per silent time: a pause of the machine counts as one of them at most

log = logging.getLogger("penstock.supervisor")


async def kill_if_silent(child: Child, silent_ms_max: int) -> None:
    """Watch the child's current process until it is killed or the watch is cancelled."""
    process = child.process
    assert process is not None
    call: asyncio.Future[Any] | None = None
    missed = 0
    while missed < CHECKS:
        await asyncio.sleep(silent_ms_max / CHECKS / 1000)
        if call is not None and not call.done():
            missed += 1
            continue
        call, missed = None, 0
        if child.is_ready and child.link is not None:
            with suppress(Busy):  # it is ending, and the supervisor notices that
                call = child.link.begin("heartbeat", None)
    log.error("a process hangs and is killed", extra={"shard": child.index, "silent_ms": silent_ms_max})
    with suppress(ProcessLookupError):
        process.kill()


async def heartbeat(_: None, __: bytes) -> tuple[None, bytes]:
    """Answers a call of the watchdog."""
    return None, b""


HEARTBEAT: dict[str, Handler] = {"heartbeat": handler(NoneType, heartbeat)}
