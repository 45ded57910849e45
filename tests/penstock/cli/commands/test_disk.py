"""`penstock disk`: the directories of a node and moves between them, from the command line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli.commands.disk import _wait_ended
from penstock.cli.failures import Failure
from tests.penstock.cli.conftest import Run


def test_disks_are_listed_and_moves_are_checked_started_and_cancelled(on_node: Run, tmp_path: Path) -> None:
    assert on_node("topic", "create", "moved", "--partitions", 2).code == 0
    (tmp_path / "lines").write_text("1\n2\n")
    assert on_node("produce", "moved", tmp_path / "lines").code == 0
    document = cast(dict[str, Any], on_node("disk", "list", "--json").json())
    (disk,) = document["disks"]
    assert disk["online"] is True
    assert disk["path"] in on_node("disk", "list").out
    planned = on_node("disk", "move", "moved/0", "moved/1", "--to", disk["path"], "--dry-run")
    assert planned.code == 0
    assert "2 moves, 0 B to copy. Nothing is started." in planned.out + planned.err, "they are there already"
    moved = on_node("disk", "move", "moved/0", "--to", disk["path"], "--wait")
    assert (moved.code, "Moved." in moved.out + moved.err) == (0, True), "it is there already"
    refused = on_node("disk", "move", "moved/0", "--to", "/elsewhere")
    assert (refused.code != 0, "is not a data directory of this node" in refused.err) == (True, True)
    assert "is not like flights/3" in on_node("disk", "move", "moved", "--to", "/x").err
    assert "no partition" in on_node("disk", "move", "moved/9", "--to", disk["path"]).err
    assert "the disks are balanced" in (ran := on_node("disk", "balance", "--apply")).out + ran.err
    assert "moved/0 is not being moved" in (ran := on_node("disk", "cancel", "moved/0")).out + ran.err
    assert "is not there" in on_node("disk", "list", "--node", 7).err
    assert on_node("topic", "delete", "moved", "--yes").code == 0


def test_a_move_that_a_restart_has_forgotten_is_not_called_done() -> None:
    row = {"topic": "t", "partition": 0, "from": "/a", "to": "/b"}
    admin = SimpleNamespace(disks=lambda _: {"moves": []}, move_partitions=lambda *_: {"moves": [row]})
    with pytest.raises(Failure, match=r"not moved, .*: t/0"):
        _wait_ended(cast(Any, SimpleNamespace(once=lambda: admin)), 1, [("t", 0, "/b")], as_json=True)
