"""Sessions of docs pages: those of a page run in order against one node, and print what the page shows."""

import pytest

from tests.docs.console import blocks, environment_of, run_step, steps_of
from tests.e2e.node_process import running_process


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("page", "steps_min"),
    [("retention.md", 18), ("compaction.md", 5), ("quotas.md", 4)],
)
def test_the_sessions_print_what_the_page_shows(page, steps_min, tmp_path):
    steps = [step for session in blocks(page, "console") for step in steps_of(session)]
    assert len(steps) >= steps_min
    store = (tmp_path / "node" / "data" / "store").as_uri()
    with running_process(tmp_path / "node") as node:
        environment = environment_of(page, node.url) | ({"PENSTOCK_STORE": store} if page == "retention.md" else {})
        for step in steps:
            run_step(step, tmp_path, environment)
