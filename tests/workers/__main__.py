"""`make workers`: the workers of all languages, disturbed for SECONDS (60). Exits with 1 if anything is wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.checking.worker_checkers import Life, repeats
from tests.workers.languages import LANGUAGES, why_not
from tests.workers.run import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    options = parser.parse_args()
    languages = []
    for language in options.languages.split(","):
        if reason := why_not(language):
            print(f"{language} is left out: {reason}")
        else:
            languages.append(language)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        found, running, count = run(Path(directory), languages, options.seconds, options.seed)
    print(summary(count, running.lives, running.disturbances, found))
    sys.exit(bool(found))


def summary(count: int, lives: Sequence[Life], disturbances: Counter[str], found: Sequence[str]) -> str:
    by_language: Counter[str] = Counter()
    for life in lives:
        by_language[life.language] += len(life.printed)
    lines = [
        f"{count} records; printed {dict(by_language)}, {repeats(lives)} of them again",
        f"{len(lives)} processes; disturbances {dict(disturbances)}",
        *(found[:20] or ["nothing is missed, and nothing is repeated without a reason"]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
