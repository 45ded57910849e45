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

from tests.simulation.mutants import MUTANTS
from tests.simulation.report import never_happened
from tests.simulation.run import Outcome, run
from tests.simulation.variants import VARIANTS
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
    for name, variant in VARIANTS.items():
        parser.add_argument(f"--{name}", action="append_const", dest="variants", const=variant, help=variant.help)
    arguments = parser.parse_args()
    # disabled for speed (a tenth): all of a run becomes garbage at once, and is collected after every few runs
    gc.disable()
    logging.disable(logging.ERROR)  # the event log of a failure has the relevant messages of nodes
    if arguments.mutants:
        return _mutants(arguments.first, arguments.seeds)
    variant = arguments.variants[0] if arguments.variants else None
    run_one = run if variant is None else variant.run
    if arguments.seed is not None:
        outcome = run_one(arguments.seed, logged_events=arguments.events)
        print(outcome.report() if outcome.problems else f"seed {outcome.seed} is fine: {dict(outcome.counts)}")
        return bool(outcome.problems)
    must_happen = None if variant is None else variant.must_happen
    return _many(arguments.first, arguments.seeds, arguments.minutes, run_one, must_happen)


def _many(
    first: int, seeds: int, minutes: float, run_one: Callable[[int], Outcome], must_happen: Sequence[str] | None
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
    for name, mutant in MUTANTS.items():
        seed_found = mutant.found_by_seed(range(first, first + seeds))
        print(
            f"{name}: first_seed={seed_found[0]}  # {seed_found[1][:90]}" if seed_found else f"NOT FOUND: {name}",
            flush=True,
        )
        missed += seed_found is None
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
