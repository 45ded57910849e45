"""`penstock subscription` against a node that allows push."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.node_process import running_process
from tests.penstock.cli.conftest import Run

pytestmark = pytest.mark.e2e

DISCARD = "http://127.0.0.1:9/"  # nothing listens there


def test_a_subscription_is_created_shown_paused_replayed_and_deleted(run: Run, tmp_path: Path) -> None:
    with running_process(tmp_path, push_targets="127.0.0.0/8", push_http=True, push_unconfirmed=True) as node:
        at = ("--url", node.url)
        assert run("topic", "create", "alerts", *at).code == 0
        made = run(
            "subscription", "create", "pager", "--to", DISCARD, "--topic", "alerts", "--config", "form=batch", *at
        )
        first, secret = made.out.splitlines()
        assert (first, secret[:6]) == ("Subscription pager is running.", "whsec_")
        again = run("subscription", "create", "pager", "--to", DISCARD, "--topic", "alerts", *at)
        assert again.out == "Subscription pager is running.\n"
        assert run("subscription", "ls", *at).out.splitlines()[1].split() == ["pager", "running", "alerts", DISCARD]
        assert "state          paused" in run("subscription", "pause", "pager", *at).out
        assert secret not in run("subscription", "describe", "pager", "--json", *at).out
        assert run("subscription", "resume", "pager", *at).code == 0
        replayed = run("subscription", "replay", "pager", "earliest", "--json", *at).json()
        assert replayed["offsets"] == [{"topic": "alerts", "partition": 0, "offset": 0}]  # type: ignore[index]
        assert (
            run("subscription", "create", "pager", "--to", DISCARD, "--topic", "alerts", "--config", "x", *at).code == 2
        )
        changes = ("--config", "timeout_ms=500", "--filter", "key=a")
        changed = run("subscription", "update", "pager", *changes, "--json", *at).json()
        assert changed["filter"] == ["key=a"]  # type: ignore[index]
        assert changed["delivery"]["timeout_ms"] == 500  # type: ignore[index]
        limits = ("--config", "deliveries_max=null", "--config", "dead_letter_topic=null")
        changed = run("subscription", "update", "pager", "--no-filter", *limits, "--json", *at).json()
        assert (changed["filter"], changed["offsets"]) == ([], replayed["offsets"])  # type: ignore[index]
        assert run("subscription", "update", "pager", *at).code == 2
        assert run("subscription", "update", "pager", "--filter", "key=a", "--no-filter", *at).code == 2
        assert run("subscription", "delete", "pager", *at).code == 2
        assert run("subscription", "rm", "pager", "--yes", *at).out == "Deleted subscription pager.\n"
        assert run("subscription", "describe", "pager", *at).code == 4
