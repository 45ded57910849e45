"""Fenced blocks of a page, and shell sessions among them: run, and compared with the page.

In a session bash runs each line that begins with `$ `; the lines after it are its output, in which `…` matches
anything. White space at the ends of lines does not count.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

URL = "http://127.0.0.1:8080"  # of `make run`
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"


class Step(NamedTuple):
    command: str
    expected: str


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def steps_of(session: str) -> list[Step]:
    parts = re.split(r"^\$ ", session, flags=re.MULTILINE)
    assert parts[0] == "", "a session begins with a command"
    return [Step(command, expected) for command, _, expected in (part.partition("\n") for part in parts[1:])]


def environment_of(page: str, url: str, **variables: str) -> dict[str, str]:
    """Return the environment of a user who has pasted the first block of the page into a clean shell in the clone.

    Only the port differs. `variables` replace those that the block exports.
    """
    setup, *_ = blocks(page, "sh")
    setup = setup.replace(URL, url)
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "USER", "TMPDIR") if name in os.environ}
    shell = {**kept, "PATH": os.defpath}
    script = f"{setup}\nexec {shlex.quote(sys.executable)} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    shown = subprocess.run(["bash", "-ec", script], cwd=ROOT, env=shell, capture_output=True, check=True, timeout=60)
    return {**json.loads(shown.stdout), **variables}


def run_sessions(page: str, directory: Path, environment: dict[str, str]) -> None:
    """Run the sessions of a page in their order, with its worker in bash beside them if it has one.

    Skips the test if they call jq and there is none.
    """
    if "| jq " in (PAGES / page).read_text() and shutil.which("jq", path=environment["PATH"]) is None:
        pytest.skip("jq is not installed (Debian: jq)")
    for worker in blocks(page, "bash")[:1]:
        (directory / "worker.sh").write_text(worker)
    for step in (step for session in blocks(page, "console") for step in steps_of(session)):
        run_step(step, directory, environment)


def printed_by(program: str, directory: Path, environment: dict[str, str]) -> list[str]:
    """Return the lines that a program in Python prints. It must end well and warn of nothing."""
    command = ["python", "-W", "error", "-c", program]
    ended = subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=True, timeout=300)
    return ended.stdout.decode().splitlines()


def run_step(step: Step, directory: Path, environment: dict[str, str]) -> None:
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", step.command], cwd=directory, env=environment, capture_output=True, timeout=300
    )
    shown = ended.stdout.decode() + ended.stderr.decode()
    assert ended.returncode == 0, f"$ {step.command}\n{shown}"
    assert matches(step.expected, shown), f"$ {step.command}\nthe page says:\n{step.expected}\nit printed:\n{shown}"


def matches(expected: str, shown: str) -> bool:
    """Return whether the pieces between the `…` occur in order, the first at the beginning and the last at the end.

    Spaces before and after `…` pad columns of varying width. No regular expression: one with many wildcards takes
    exponential time to fail.
    """
    shown = _trimmed(shown)
    first, *others = re.split(r"\s*…\s*", _trimmed(expected))
    if not others:
        return shown == first
    *middle, last = others
    position = len(first)
    for piece in middle:
        found = shown.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return shown.startswith(first) and shown.endswith(last) and position + len(last) <= len(shown)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
