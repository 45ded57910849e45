"""Copies of the nodes' code with a planted bug, run as processes: the harness must find each bug.

The product has no hook for this: the text of a copy is changed. An assertion fails if the product's code changes so
that the place no longer exists.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.chaos.results import PACKAGES
from tests.checking.mutants import Edit, plant_edits


class Mutant(NamedTuple):
    """A planted bug. `fault` exposes it within some seconds; the harness's findings then contain `found`."""

    edits: tuple[Edit, ...]
    fault: str = "cut-then-kill"
    seconds: float = 1
    found: str = r" acknowledged, [1-9]\d* lost, "


MUTANTS = {
    "ack before replication": Mutant((Edit("replication/replica/appends.py", "if acks.position >= end:", "if True:"),)),
    "a high watermark that ignores the in-sync set": Mutant(
        (
            Edit(
                "replication/cores/leader.py",
                "ends = [self._progress[node].end for node in self._waited_for(now)] if self._progress else []",
                "ends: list[int] = []",
            ),
        )
    ),
    # Both remedies of decision 0076 are off: in this fault each alone keeps every record. The simulator has a mutant
    # for each of them, with faults that the other one does not see.
    "a start counter that proves nothing, and followers that truncate": Mutant(
        (
            Edit(
                "replication/cluster/start_counter.py", "if stored is None:\n            return False", "return False"
            ),
            Edit("replication/cores/follower.py", "if to >= committed or", "if True or"),
            Edit("replication/cores/leader.py", "if end is None or end >= fetch.high_watermark", "if True"),
        ),
        "rollback",
        20,
    ),
    "permanent refusals of a node that believes to lead": Mutant(
        (
            Edit(
                "replication/replica/replica_host.py",
                "return self._session.has_contact(self._boottime())",
                "return True",
            ),
            Edit("replication/replica/replica_host.py", "if self._confirmed is None:", "if True:"),
        ),
        "pause-supervisor",
        20,
        r"C15 wrong refusal: ",
    ),
    "an event stream's id of a deleted topic is used in the new one": Mutant(
        (
            Edit(
                "gateway/fetch/event_stream.py",
                'return identity is None or identity == f"{topic_id[:IDENTITY_CHARACTERS]}."',
                "return True",
            ),
        ),
        "recreated-topics",
        1,
        r"N5 (skipped|not notified): event stream",
    ),
    "a topic that vanished from the store counts as deleted": Mutant(
        (
            Edit(
                "replication/cluster/watch.py",
                "if await self._session.get(deleted_key(topic.topic_id)) is None:",
                "if False:",
            ),
            Edit(
                "replication/cluster/topics.py",
                "return await self._session.get(deleted_key(topic_id)) is not None",
                "return True",
            ),
        ),
        "emptied-store",
        1,
        r"K1 data is gone: ",
    ),
}


def planted(name: str, directory: Path) -> Path:
    """Return the path of the mutant's code."""
    return plant_edits(MUTANTS[name].edits, PACKAGES, directory)
