"""The page about consumer groups: its worker, its sessions and its programs, in order against one node."""

import pytest

from penstock.sync import Client
from tests.docs.console import PAGES, blocks, environment_of, printed_by, run_sessions
from tests.e2e.node_process import running_process
from tests.workers.languages import WORKERS

PAGE = "consumer-groups.md"


@pytest.mark.e2e
def test_the_worker_the_sessions_and_the_programs_do_what_the_page_says(tmp_path):
    with running_process(tmp_path / "node") as node:
        environment = environment_of(PAGE, node.url)
        run_sessions(PAGE, tmp_path, environment)
        automatic, by_hand = (printed_by(one, tmp_path, environment) for one in blocks(PAGE, "python"))
        assert sorted(automatic) == [f"visits {n}" for n in range(1, 7)]
        assert "".join(by_hand).count(",") == 6 - len(by_hand)
        with Client(node.url) as client:
            for group in ("mail", "ledger"):
                assert sum(one["offset"] for one in client.group_offsets(group)["offsets"]) == 6
                assert client.describe_group(group)["members"] == []


def test_the_page_has_the_workers_of_all_languages():
    page = (PAGES / PAGE).read_text()
    for source in (path for path in WORKERS.rglob("*") if path.suffix in (".py", ".mjs", ".go", ".java", ".rs")):
        assert f"]({source.relative_to(PAGES)})" in page
