"""The page about work queues: its worker and its sessions, in order against one node."""

import pytest

from tests.docs.console import blocks, environment_of, printed_by, run_sessions
from tests.e2e.node_process import running_process

PAGE = "work-queues.md"


@pytest.mark.e2e
def test_the_worker_and_the_sessions_do_what_the_page_says(tmp_path):
    with running_process(tmp_path / "node") as node:
        environment = environment_of(PAGE, node.url)
        run_sessions(PAGE, tmp_path, environment)
        [program] = blocks(PAGE, "python")
        printed = printed_by(program, tmp_path, environment)
        assert [line.split()[0] for line in printed] == ["1"] * 4 + ["3"]
