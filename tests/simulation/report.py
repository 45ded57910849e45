"""What must have happened for runs to mean anything: a fault or an answer that never occurred was not tried."""

from __future__ import annotations

from collections import Counter

from tests.simulation.faults import KINDS

MUST_HAPPEN = (
    *(f"fault {kind}" for kind in KINDS),
    "elections",
    "elections from eligible",
    "truncations",
    "restarts of a log",
    "in-sync shrinks",
    "in-sync expands",
    "power losses",
    "power lost everywhere",
    "disks lost",
    "partitions offline",
    "sessions expired",
    "writes refused",
    "refused: not enough replicas",
    "refused: session in doubt",
    "answers of replaced leaders",
    "messages cut",
    "messages lost",
    "messages repeated",
    "messages late",
    "repeats recognised",
    "produce ok",
    "produce fail",
    "produce info",
    "records consumed",
)


def never_happened(counts: Counter[str]) -> list[str]:
    return [what for what in MUST_HAPPEN if not counts[what]]
