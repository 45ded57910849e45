"""The meaning of an acknowledgement, and the wait for it, also across a change of leader.

docs/produce.md has the position that each `acks` waits for; the gateway only passes
the word on. The leader core decides how many replicas are enough. If this node becomes a follower, its appended records
are committed once the new leader reports that; a truncation, or the timeout, ends the wait with an error.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from engine.errors import (
    DuplicateOlderThanWindow,
    FencingTokenMismatch,
    KeyReused,
    LogEndMismatch,
    ProducerFenced,
)
from engine.producers.append_validator import Appended


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


def forget(future: asyncio.Future[Appended]) -> None:
    """Drop a wait. Retrieves its failure, which is in the metrics, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()
