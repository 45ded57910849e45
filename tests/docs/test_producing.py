"""docs/producing.md: its session runs as it is shown."""

import os
from pathlib import Path

from tests.docs.console import blocks, run_step, steps_of
from tests.e2e.node_process import running_process


def test_the_session_goes_as_the_page_shows(tmp_path: Path) -> None:
    (session,) = blocks("producing.md", "console")
    with running_process(tmp_path / "node") as node:
        environment = {**os.environ, "PENSTOCK_URL": node.url}
        for step in steps_of(session):
            run_step(step, tmp_path, environment)
