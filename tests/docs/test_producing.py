"""docs/producing.md: its sessions run as they are shown."""

import os
from pathlib import Path

from tests.docs.console import blocks, run_step, steps_of
from tests.e2e.node_process import running_process


def test_the_sessions_go_as_the_page_shows(tmp_path: Path) -> None:
    steps = [step for session in blocks("producing.md", "console") for step in steps_of(session)]
    assert len(steps) == 6
    with running_process(tmp_path / "node") as node:
        environment = {**os.environ, "PENSTOCK_URL": node.url}
        for step in steps:
            run_step(step, tmp_path, environment)
