"""The page about guarantees: its sessions and its program, in order against one node."""

import pytest

from penstock.sync import Client
from tests.docs.console import blocks, environment_of, printed_by, run_sessions
from tests.e2e.node_process import running_process

PAGE = "guarantees.md"


@pytest.mark.e2e
def test_the_sessions_and_the_program_do_what_the_page_says(tmp_path):
    with running_process(tmp_path / "node") as node:
        environment = environment_of(PAGE, node.url)
        run_sessions(PAGE, tmp_path, environment)
        [program] = blocks(PAGE, "python")
        assert printed_by(program, tmp_path, environment) == ["2"]
        with Client(node.url) as client:
            found = [record.json() for record in client.consume("totals", follow=False) if record.key]
            assert sorted(one["total"] for one in found) == [11.9, 23.8]
