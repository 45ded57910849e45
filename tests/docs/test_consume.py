"""docs/consume.md: its sessions print what the page shows, and its programs run and resume."""

import pytest

from openapi import load_contract
from tests.docs.console import PAGES, blocks, environment_of, printed_by, run_sessions, steps_of
from tests.e2e.node_process import running_process

PAGE = "consume.md"


@pytest.mark.e2e
def test_the_sessions_and_programs_run_as_shown(tmp_path):
    assert sum(len(steps_of(session)) for session in blocks(PAGE, "console")) == 10
    with running_process(tmp_path / "node") as node:
        environment = environment_of(PAGE, node.url)
        run_sessions(PAGE, tmp_path, environment)
        resuming, sharing = blocks(PAGE, "python")
        assert printed_by(resuming, tmp_path, environment) == ["0 0 a", "0 1 b", "0 2 c", "0 3 d"]
        assert printed_by(resuming, tmp_path, environment) == [], "the second run goes on behind the first"
        first, second = (printed_by(sharing, tmp_path, {**environment, "WORKER": number}) for number in "01")
        assert [line.split()[:2] for line in first] == [["0", "0"]] * 4
        assert second == []


def test_problems_have_their_statuses():
    problems = load_contract()["x-penstock-problems"]
    page = (PAGES / PAGE).read_text()
    for code in ("offset_below_log_start", "offset_above_high_watermark", "records_damaged", "store_unavailable"):
        assert f"{problems[code]['status']} `{code}`" in page
