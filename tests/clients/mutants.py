"""Planted faults in the clients, and the stories that must catch them: `make clients-mutants` (ARGS="--language go").

mutants.toml has them. A fault is a replaced text: in the built files of the TypeScript client, or in a source of the Go
client, which `go build -overlay` puts in place. The repository's files stay. Exits with 1 if a fault is not caught.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.clients.runner import BUILD, ROOT, TYPESCRIPT

GO = ROOT / "clients" / "go"
ANSWER_S = "40"  # of a story with a fault: it mostly waits for an answer that never comes
STORY_S = 300
CAUGHT, SURVIVED = 1, 0  # what pytest returns


class Change(NamedTuple):
    """`before` occurs once in the file."""

    file: str
    before: str
    after: str


class Mutant(NamedTuple):
    name: str
    story: str
    typescript: Change
    go: Change | None  # None: no story catches it in Go


MUTANTS = tuple(
    Mutant(row["name"], row["story"], Change(**row["typescript"]), Change(**row["go"]) if "go" in row else None)
    for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["mutants"]
)


def environment(mutant: Mutant, language: str, directory: Path) -> dict[str, str]:
    """Write the changed file, and return the variables by which a runner has it."""
    change = mutant.typescript if language == "typescript" else mutant.go
    assert change is not None
    directory.mkdir(parents=True, exist_ok=True)
    if language == "typescript":
        shutil.copytree(TYPESCRIPT / "dist", directory / "dist", dirs_exist_ok=True)
        _write(directory / "dist" / change.file, TYPESCRIPT / "dist" / change.file, change)
        (directory / "package.json").write_text('{"type": "module"}')
        return {"PENSTOCK_CLIENT": str(directory / "dist" / "index.js")}
    _write(directory / change.file, GO / change.file, change)
    overlay = directory / "overlay.json"
    overlay.write_text(json.dumps({"Replace": {str(GO / change.file): str(directory / change.file)}}))
    return {"PENSTOCK_GO_OVERLAY": str(overlay)}


def _write(to: Path, source: Path, change: Change) -> None:
    text = source.read_text()
    assert text.count(change.before) == 1, f"{source.name}: {change.before!r} occurs {text.count(change.before)} times"
    to.write_text(text.replace(change.before, change.after))


def play(mutant: Mutant, language: str, number: int) -> int:
    """Return pytest's code of the story."""
    given = environment(mutant, language, BUILD / "mutants" / f"{language}-{number}")
    command = [
        *(sys.executable, "-m", "pytest", "-m", "", "-q", "-x", "-p", "no:cacheprovider"),
        *("--timeout", str(STORY_S), mutant.story, "-k", language),
    ]
    played = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **given, "PENSTOCK_ANSWER_S": ANSWER_S}, capture_output=True, check=False
    )
    if b"'go', 'build'" in played.stdout:  # it does not compile
        print(played.stdout.decode()[-1500:])
        return 2
    return played.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", choices=("typescript", "go"), action="append")
    parser.add_argument("--only", default="", help="a part of the name of the faults")
    parser.add_argument("--check", action="store_true", help="only see that each fault can be planted")
    given = parser.parse_args()
    missed = []
    for language in given.language or ("typescript", "go"):
        for number, mutant in enumerate(MUTANTS):
            if given.only not in mutant.name or (language == "go" and mutant.go is None):
                continue
            if given.check:
                environment(mutant, language, BUILD / "mutants" / "check")
                continue
            began = time.monotonic()
            code = play(mutant, language, number)
            verdict = {CAUGHT: "caught", SURVIVED: "NOT CAUGHT"}.get(code, f"BROKEN ({code})")
            print(f"{language:10} {verdict:10} {time.monotonic() - began:4.0f} s  {mutant.name}", flush=True)
            if code != CAUGHT:
                missed.append(mutant.name)
    shutil.rmtree(BUILD / "mutants", ignore_errors=True)
    sys.exit(f"not caught: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
