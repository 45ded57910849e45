"""A fault in a real cluster gives no findings; a cluster with a planted bug gives losses.

The short form of `make chaos`: two to three minutes with all tests; `make chaos-short` runs more of each.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import EXIT_FOUND, cannot
from tests.chaos.machines.hosts import ROOT
from tests.chaos.mutants import MUTANTS, planted

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(cannot() is not None, reason=str(cannot())),
    pytest.mark.xdist_group("namespaces"),  # one harness at a time: each needs the machine for itself
]

IS_LONGER = bool(os.environ.get("PENSTOCK_TEST_CHAOS"))
FAULTS = ("kill", "cut-then-kill", "isolate") if IS_LONGER else ("isolate",)  # tests/e2e/cluster/ has kills
SECONDS_EACH = 20 if IS_LONGER else 1  # a fault is injected at least once, to its end
PLANTED = list(MUTANTS) if IS_LONGER else list(MUTANTS)[:1]
SESSION_TIMEOUT_MS = 2_000  # shorter failovers make a test shorter
RUN_S = 540.0  # allows for a busy machine


def chaos(faults: str, seconds: float, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the harness in its own process, since it moves to its own network."""
    options = ["--one-cluster", "--faults", faults, "--seconds-each", str(seconds), "--output", str(output), *more]
    command = [sys.executable, "-m", "tests.chaos", "--session-timeout-ms", str(SESSION_TIMEOUT_MS), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False)


@pytest.mark.timeout(RUN_S + 60)
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path):
    ended = chaos(",".join(FAULTS), SECONDS_EACH, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(re.findall(r" [1-9]\d* acknowledged, 0 lost, 0 duplicates, 0 other findings", ended.stdout)) == len(
        FAULTS
    )


@pytest.mark.long
@pytest.mark.timeout(RUN_S + 60)
@pytest.mark.parametrize("mutant", PLANTED)
def test_a_mutant_is_caught(mutant, tmp_path):
    fault, seconds = MUTANTS[mutant].fault, MUTANTS[mutant].seconds
    source = str(planted(mutant, tmp_path / "source"))
    ended = chaos(fault, seconds, tmp_path / "out", "--no-groups", "--source", source)
    assert ended.returncode == EXIT_FOUND, ended.stdout + ended.stderr
    assert re.search(MUTANTS[mutant].found, ended.stdout), ended.stdout
