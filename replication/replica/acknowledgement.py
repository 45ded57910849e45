"""Waits for what an ack asks, from the append to the commit, also while leadership moves meanwhile.

Where this node goes on as a follower, what it had appended is committed once the new leader says so; a cut, or the end
of its patience, tells those whom it concerns. Not how much an ack asks: that is acks.py's and the leader core's.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from engine.errors import (
    AckTimeout,
    DuplicateOlderThanWindow,
    FencingTokenMismatch,
    KeyReused,
    LogEndMismatch,
    ProducerFenced,
)
from engine.producers.append_validator import Appended
from engine.runtime.loop_waits import loop_waits
from replication.cluster.leadership_check import Confirmable, confirm_leading
from replication.cores.leader import Leader
from replication.cores.role import Follow, Lead
from replication.cores.watermark import AckVerdict
from replication.refusals import MAYBE_STORED, leadership_lost, too_few_after_append
from replication.replica.acks import Acks

# Refusals that a client does not retry, and that depend on what is in the log: another leader may have another log.
FINAL = (LogEndMismatch, FencingTokenMismatch, ProducerFenced, DuplicateOlderThanWindow, KeyReused)


class Acknowledgement(Confirmable, Protocol):
    """What is asked of a replica: replication.replica.replica.Replica."""

    @property
    def takes_all(self) -> bool: ...


async def acknowledged(
    replica: Acknowledgement, core: Leader | None, written: asyncio.Future[Appended], acks: Acks, timeout_ms: int
) -> Appended:
    """See Replica.acknowledged. `core` led when it was appended."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    partition = replica.partition
    try:
        try:
            appended = await loop_waits(loop).deadlines.done_by(deadline, written)
        except FINAL:
            await confirm_leading(replica)
            raise
        is_led_on = core is not None and replica.core is core
        if not is_led_on and not isinstance(replica.role, Follow | Lead):
            raise leadership_lost(partition.name)
        is_sure = is_led_on and not replica.host.is_in_doubt
        if acks is Acks.ALL or not is_sure:  # what outlives a leadership is what the next one commits
            if partition.high_watermark < appended.end:
                await partition.acknowledged_by(deadline, appended.end)
            if core is not None and replica.core is core and not replica.takes_all:
                _demand_enough(partition.name, core, appended.end)
        return appended
    except TimeoutError:
        text = f"{partition.name}: acks={acks.value} was not reached within {timeout_ms} ms"
        raise AckTimeout(text, hint=MAYBE_STORED) from None


def forget(future: asyncio.Future[Appended]) -> None:
    """Nobody waits any more: a failure is in the metrics and must not be reported as never retrieved."""
    if not future.cancelled():
        future.exception()


def _demand_enough(name: str, core: Leader, end: int) -> None:
    if core.ack_verdict(end) is AckVerdict.TOO_FEW_AFTER_APPEND:
        raise too_few_after_append(name, core)
