"""The acknowledgements that a producer can ask for; docs/produce.md has the position that each waits for.

replica.py and standalone.py wait. If a node of a cluster becomes a follower during the wait, its appended records are
committed once the new leader reports that; a truncation, or the timeout, ends the wait with an error.
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
from engine.producers.appends import Appended


class Acks(Enum):
    """Names the confirmation that a producer wants before the answer."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


ACKS_BY_WORD = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL, "-1": Acks.ALL}


# Errors that a client does not retry and that depend on the log: another leader may have another log.
FINAL = (LogEndMismatch, FencingTokenMismatch, ProducerFenced, DuplicateOlderThanWindow, KeyReused)


def retrieve_exception(future: asyncio.Future[Appended]) -> None:
    """Retrieve the exception of a wait without a caller: it is in the metrics, and asyncio need not report it."""
    if not future.cancelled():
        future.exception()
