"""The faults and answers that must have occurred: runs test nothing that never happened in them."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.simulation.faults import KINDS

MUST_HAPPEN = (
    *(f"fault {kind}" for kind in KINDS),
    "elections",
    "conflicts within a block",
    "truncations",
    "restarts of a log",
    "in-sync shrinks",
    "in-sync expands",
    "power losses",
    "power lost everywhere",
    "disks lost",
    "disks rolled back",
    "partitions offline",
    "sessions expired",
    "writes refused",
    "refused: not enough replicas",
    "refused: session in doubt",
    "refused permanently: above the watermark",
    "tier commits",
    "store requests failed",
    "store replies lost",
    "segments dropped for the store",
    "reads from the store",
    "copies refused by a full disk",
    "elected on a full disk",
    "answers asked for ahead",
    "messages cut",
    "messages lost",
    "messages repeated",
    "messages late",
    "repeats recognised",
    "produce ok",
    "produce fail",
    "produce info",
    "records consumed",
    "objects merged",
)


# test_simulation.py has its own runs for these.
READ_ERRORS = ("bytes damaged", "reads failing", "leaderships given away for read errors", "segments repaired")

# About once in a hundred runs, so a few runs need not have them.
RARE = (
    "shippers fenced",
    "elections from eligible",
    "restarts behind the log's start",
    "store requests done late",
    *READ_ERRORS,
)
MANY_SEEDS = 1000

# About once in a thousand runs; test_simulation.py has its own runs for it.
VERY_RARE = ("answers of replaced leaders",)
VERY_MANY_SEEDS = 10_000


def never_happened(counts: Counter[str], seeds: int, must_happen: Sequence[str] | None = None) -> list[str]:
    if must_happen is not None:
        return [what for what in must_happen if not counts[what]]
    expected = MUST_HAPPEN
    if seeds >= MANY_SEEDS:
        expected += RARE
    if seeds >= VERY_MANY_SEEDS:
        expected += VERY_RARE
    return [what for what in expected if not counts[what]]


@contextmanager
def swept_by_hand() -> Iterator[None]:
    """Collect garbage by hand, which saves a tenth of the time: all of a run becomes garbage at once, and nothing older
    does.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    logging.disable(logging.ERROR)  # the event log of a failure has the relevant messages of nodes
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
