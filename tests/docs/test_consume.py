"""docs/consume.md: its sessions print what the page shows, and its programs run and resume."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openapi import load_contract
from tests.docs.console import PAGES, blocks, run_step, steps_of
from tests.e2e.node_process import ROOT, running_process

PAGE = "consume.md"


@pytest.mark.e2e
def test_the_sessions_and_programs_run_as_shown(tmp_path: Path) -> None:
    steps = [step for session in blocks(PAGE, "console") for step in steps_of(session)]
    assert len(steps) == 10
    with running_process(tmp_path / "node") as node:
        environment = {**os.environ, "PENSTOCK_URL": node.url, "PYTHONPATH": str(ROOT)}
        for step in steps:
            run_step(step, tmp_path, environment)
        resuming, sharing = blocks(PAGE, "python")
        assert printed_by(resuming, tmp_path, environment) == ["0 0 a", "0 1 b", "0 2 c", "0 3 d"]
        assert printed_by(resuming, tmp_path, environment) == [], "the second run goes on behind the first"
        first, second = (printed_by(sharing, tmp_path, {**environment, "WORKER": number}) for number in "01")
        assert [line.split()[:2] for line in first] == [["0", "0"]] * 4
        assert second == []


def printed_by(program: str, directory: Path, environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=True, timeout=300)
    return ended.stdout.decode().splitlines()


def test_problems_have_their_statuses() -> None:
    problems = load_contract()["x-penstock-problems"]
    page = (PAGES / PAGE).read_text()
    for code in ("offset_below_log_start", "offset_above_high_watermark", "records_damaged", "store_unavailable"):
        assert f"{problems[code]['status']} `{code}`" in page
