"""What an acknowledgement means: which named position must have passed the records.

The table of DESIGN 6; the gateway only carries the word.
"""

from __future__ import annotations

from enum import Enum


class Acks(Enum):
    """How much a producer wants to know before it is answered."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


ACKS_BY_WORD = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL, "-1": Acks.ALL}


def durability_waited_for(acks: Acks, topic_durability: str) -> str:
    """What the answer may claim: where the records were when it was sent."""
    if acks is Acks.NONE:
        return "none"
    if acks is Acks.ALL and topic_durability == "group":
        return "fsync"
    return "page_cache"
