"""The page about exactly once: its sessions and its program, in order against one node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.sync import Client
from tests.docs.console import blocks, run_step, steps_of
from tests.docs.test_consume import printed_by
from tests.e2e.node_process import ROOT, running_process

PAGE = "exactly-once.md"


@pytest.mark.e2e
def test_the_sessions_and_the_program_do_what_the_page_says(tmp_path: Path) -> None:
    with running_process(tmp_path / "node") as node:
        environment = {**os.environ, "PENSTOCK_URL": node.url, "PYTHONPATH": str(ROOT)}
        for step in (step for session in blocks(PAGE, "console") for step in steps_of(session)):
            run_step(step, tmp_path, environment)
        [program] = blocks(PAGE, "python")
        assert printed_by(program, tmp_path, environment) == ["2"]
        with Client(node.url) as client:
            found = [record.json() for record in client.consume("totals", follow=False) if record.key]
            assert sorted(one["total"] for one in found) == [11.9, 23.8]
