"""Runs of clusters of 9 and of 20 nodes, with more partitions than nodes: leaders are killed, partitions move.

In all else they are the plain runs of the same seed.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.run import Outcome, Run, options_for
from tests.simulation.world.world import LOGGED_EVENTS

SIZES = ((9, 18), (20, 40))  # nodes, partitions
PARTITIONS_A_PRODUCER = 6


def run_large(seed: int, logged_events: int = LOGGED_EVENTS) -> Outcome:
    nodes, partitions = SIZES[seed % len(SIZES)]
    options = replace(
        options_for(seed),
        nodes=nodes,
        partitions=partitions,
        racks=3 + seed % 3,
        more_producers=partitions // PARTITIONS_A_PRODUCER,
    )
    return Run(seed, options, logged_events).execute()
