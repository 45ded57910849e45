"""The page about work queues: its worker and its sessions, in order against one node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.console import blocks, run_step, steps_of
from tests.docs.test_consume import printed_by
from tests.e2e.node_process import ROOT, running_process

PAGE = "work-queues.md"


@pytest.mark.e2e
def test_the_worker_and_the_sessions_do_what_the_page_says(tmp_path: Path) -> None:
    [worker] = blocks(PAGE, "bash")
    (tmp_path / "worker.sh").write_text(worker)
    with running_process(tmp_path / "node") as node:
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PENSTOCK_URL": node.url, "PYTHONPATH": str(ROOT), "PATH": paths}
        for step in (step for session in blocks(PAGE, "console") for step in steps_of(session)):
            run_step(step, tmp_path, environment)
        [program] = blocks(PAGE, "python")
        printed = printed_by(program, tmp_path, environment)
        assert [line.split()[0] for line in printed] == ["1"] * 4 + ["3"]
