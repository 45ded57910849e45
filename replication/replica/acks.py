"""The meaning of an acknowledgement, and the wait for it, also across a change of leader.

docs/produce.md has the position that each `acks` waits for; the gateway only passes
the word on. The leader core decides how many replicas are enough. If this node becomes a follower, its appended records
are committed once the new leader reports that; a truncation, or the timeout, ends the wait with an error.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any, Protocol

from engine.errors import (
    AckTimeout,
    DuplicateOlderThanWindow,
    FencingTokenMismatch,
    KeyReused,
    LogEndMismatch,
    ProducerFenced,
)
from engine.partition.partition import Partition
from engine.producers.append_validator import Appended
from engine.runtime.loop_waits import loop_waits
from replication import refusals
from replication.cores.leader import Leader
from replication.cores.partition_state import VersionedState
from replication.cores.progress import AckVerdict
from replication.cores.role import Follow, Lead, Role
from replication.refusals import MAYBE_STORED, leadership_lost, too_few_after_append


class Acks(Enum):
    """Names the confirmation that a producer wants before the answer."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


ACKS_BY_WORD = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL, "-1": Acks.ALL}


def durability_waited_for(acks: Acks, topic_durability: str) -> str:
    """Return the durability that an answer may claim: where the records were when it was sent."""
    if acks is Acks.NONE:
        return "none"
    if acks is Acks.ALL and topic_durability == "group":
        return "fsync"
    return "page_cache"


# Errors that a client does not retry and that depend on the log: another leader may have another log.
FINAL = (LogEndMismatch, FencingTokenMismatch, ProducerFenced, DuplicateOlderThanWindow, KeyReused)


class Acknowledging(Protocol):
    """The part of replication.replica.replica.Replica that these functions read."""

    partition: Partition
    role: Role
    state: VersionedState | None

    @property
    def core(self) -> Leader | None: ...
    @property
    def host(self) -> Any: ...
    @property
    def takes_all(self) -> bool: ...


async def confirm_leading(replica: Acknowledging) -> None:
    """Return once the store has confirmed, after this call, that the replica leads. Raises NotLeader, NoLeader.

    Rejects at once a leader whose last contact with the store is older than its session timeout.
    """
    core, name = replica.core, replica.partition.name
    if core is None:
        raise refusals.not_leading(name, replica.role, is_known=replica.state is not None)
    is_confirmed = replica.host.has_contact and await replica.host.confirms(replica, core.leader_epoch)
    if not is_confirmed or replica.core is not core:
        raise refusals.without_contact(name)


async def acknowledged(
    replica: Acknowledging, core: Leader | None, written: asyncio.Future[Appended], acks: Acks, timeout_ms: int
) -> Appended:
    """Wait for an acknowledgement, see Replica.acknowledged. `core` led when the batch was appended.

    Raises AckTimeout, LeadershipLost, NotEnoughReplicasAfterAppend, and the error of the append.
    """
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
        if acks is Acks.ALL or not is_sure:  # after a leadership ends, only the next leader's commits are certain
            if partition.high_watermark < appended.end:
                await partition.watermark.acks.wait_until(deadline, appended.end)
            if core is not None and replica.core is core and not replica.takes_all:
                _demand_enough(partition.name, core, appended.end)
        return appended
    except TimeoutError:
        text = f"{partition.name}: acks={acks.value} was not reached within {timeout_ms} ms"
        raise AckTimeout(text, hint=MAYBE_STORED) from None


def forget(future: asyncio.Future[Appended]) -> None:
    """Drop a wait. Retrieves its failure, which is in the metrics, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


def _demand_enough(name: str, core: Leader, end: int) -> None:
    if core.ack_verdict(end) is AckVerdict.TOO_FEW_AFTER_APPEND:
        raise too_few_after_append(name, core)
