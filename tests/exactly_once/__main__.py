"""`make exactly-once-long`: each recipe under KILLS kills (200). Exits with 1 if a recipe does not keep its promise."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.exactly_once.cluster import ClusterRun
from tests.exactly_once.run import LOST, RECIPES, REPEATED, Report, Run, run


def summary(recipe: str, report: Report) -> str:
    counts = {
        topic: tuple(sum(text.startswith(kinds) for text in found) for kinds in (LOST, REPEATED))
        for topic, found in report.findings.items()
    }
    found = f"{recipe}: {report.inputs} inputs, kills {dict(report.kills)}, (lost, repeated) {counts}"
    return f"{found}: {report.failures(recipe)[:20] or 'as promised'}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipe", choices=sorted(RECIPES), action="append")
    parser.add_argument("--cluster", action="store_true", help="three nodes, whose leaders die")
    options = parser.parse_args()
    make = ClusterRun if options.cluster else Run
    has_failed = False
    for recipe in options.recipe or RECIPES:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            say = partial(print, flush=True)
            report = run(Path(directory), recipe, options.kills, options.seed, say, make)
        failures = report.failures(recipe)
        has_failed |= bool(failures)
        print(summary(recipe, report), f"{time.monotonic() - began:.0f} s")
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
