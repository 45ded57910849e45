"""`python -m tests.simulation --seed 7` replays one run; `--seeds 1000 --from 0` runs many and counts what happened.

`--mutants` prints the first seed that finds each planted bug. Results of seeds and bugs are printed as they come. The
first failing run ends the program and prints its event log.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.simulation.groups.run import run_groups
from tests.simulation.judges.mutants import MUTANTS, found_by_seed
from tests.simulation.rebuild.run import run_rebuild
from tests.simulation.report import (
    GROUPS_MUST_HAPPEN,
    REBUILD_MUST_HAPPEN,
    SHARE_MUST_HAPPEN,
    TABLES_MUST_HAPPEN,
    never_happened,
)
from tests.simulation.run import Outcome, run
from tests.simulation.share.run import run_share
from tests.simulation.tables.run import run_tables
from tests.simulation.world.world import LOGGED_EVENTS

SEEDS_BETWEEN_COLLECTIONS = 20
ENOUGH_SEEDS = 200  # with this many seeds every fault and answer must have occurred


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--events", type=int, default=LOGGED_EVENTS, help="how many events of each node to print")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--minutes", type=float, default=0.0, help="run for this long instead of a number of seeds")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--groups", action="store_true", help="runs with members of a consumer group")
    parser.add_argument("--share", action="store_true", help="runs with callers of a share group")
    parser.add_argument("--tables", action="store_true", help="runs with compacted topics")
    parser.add_argument("--rebuild", action="store_true", help="runs whose coordination store is emptied and rebuilt")
    arguments = parser.parse_args()
    # disabled for speed (a tenth): all of a run becomes garbage at once, and is collected after every few runs
    gc.disable()
    logging.disable(logging.ERROR)  # the event log of a failure has the relevant messages of nodes
    if arguments.mutants:
        return _mutants(arguments.first, arguments.seeds)
    if arguments.seed is not None:
        of_kind = {
            run_share: arguments.share,
            run_groups: arguments.groups,
            run_tables: arguments.tables,
            run_rebuild: arguments.rebuild,
        }
        run_one = next((one for one, is_chosen in of_kind.items() if is_chosen), run)
        outcome = run_one(arguments.seed, logged_events=arguments.events)
        print(outcome.report() if outcome.problems else f"seed {outcome.seed} is fine: {dict(outcome.counts)}")
        return bool(outcome.problems)
    if arguments.groups:
        return _many(arguments.first, arguments.seeds, arguments.minutes, run_groups, GROUPS_MUST_HAPPEN)
    if arguments.share:
        return _many(arguments.first, arguments.seeds, arguments.minutes, run_share, SHARE_MUST_HAPPEN)
    if arguments.tables:
        return _many(arguments.first, arguments.seeds, arguments.minutes, run_tables, TABLES_MUST_HAPPEN)
    if arguments.rebuild:
        return _many(arguments.first, arguments.seeds, arguments.minutes, run_rebuild, REBUILD_MUST_HAPPEN)
    return _many(arguments.first, arguments.seeds, arguments.minutes, run)


def _many(
    first: int, seeds: int, minutes: float, run_one: Callable[[int], Outcome], must_happen: Sequence[str] | None = None
) -> int:
    began, counts, seed = time.monotonic(), Counter[str](), first
    while time.monotonic() - began < minutes * 60 if minutes else seed < first + seeds:
        outcome = run_one(seed)
        if outcome.problems:
            print(outcome.report())
            return 1
        counts += outcome.counts
        seed += 1
        if seed % SEEDS_BETWEEN_COLLECTIONS == 0:
            gc.collect()
    missing = never_happened(counts, seed - first, must_happen) if seed - first >= ENOUGH_SEEDS else []
    minutes_taken = (time.monotonic() - began) / 60
    for what, count in sorted(counts.items()):
        print(f"{count:10d} {what}")
    print(f"{seed - first} seeds passed, {(seed - first) / minutes_taken:.0f} seeds per minute")
    for what in missing:
        print(f"never happened: {what}")
    return bool(missing)


def _mutants(first: int, seeds: int) -> int:
    missed = 0
    for name in MUTANTS:
        found = found_by_seed(name, range(first, first + seeds))
        print(f'    "{name}": {found[0]},  # {found[1][:90]}' if found else f"NOT FOUND: {name}", flush=True)
        missed += found is None
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
