"""`make chaos-short`: two faults at a real cluster, with nothing found; and a cluster with a bug, with losses found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import EXIT_FOUND, cannot
from tests.chaos.hosts import ROOT
from tests.chaos.mutants import MUTANTS, planted

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("PENSTOCK_TEST_CHAOS"), reason="three minutes: `make chaos-short` runs it"),
    pytest.mark.skipif(cannot() is not None, reason=str(cannot())),
]

SESSION_TIMEOUT_MS = 2_000  # so that a failover takes less of a test's time
RUN_S = 300.0


def chaos(fault: str, seconds: float, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, since the harness moves to a network of its own."""
    options = ["--faults", fault, "--seconds-each", str(seconds), "--output", str(output), *more]
    command = [sys.executable, "-m", "tests.chaos", "--session-timeout-ms", str(SESSION_TIMEOUT_MS), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False)


@pytest.mark.timeout(RUN_S + 60)
@pytest.mark.parametrize("fault", ["kill", "cut-then-kill"])
def test_nothing_acknowledged_is_lost_or_doubled(fault, tmp_path):
    ended = chaos(fault, 20, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " 0 lost, 0 duplicates, 0 other findings" in ended.stdout


@pytest.mark.timeout(RUN_S + 60)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant, tmp_path):
    ended = chaos("cut-then-kill", 1, tmp_path / "out", "--source", str(planted(mutant, tmp_path / "source")))
    assert ended.returncode == EXIT_FOUND, ended.stdout + ended.stderr
    assert re.search(r" acknowledged, [1-9]\d* lost, ", ended.stdout), ended.stdout
