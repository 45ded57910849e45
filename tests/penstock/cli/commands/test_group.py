"""`penstock group` against a real node."""

from __future__ import annotations

from pathlib import Path

import orjson

from penstock.sync import Client
from tests.penstock.cli.conftest import Run


def test_a_group_is_listed_described_reset_and_deleted(
    on_node: Run, node_url: str, lines_file: Path, tmp_path: Path
) -> None:
    on_node("topic", "create", "grouped")
    on_node("produce", "grouped", lines_file)
    with Client(node_url) as client:
        client.commit_offsets("shown", [{"topic": "grouped", "partition": 0, "offset": 400}])
    assert any(line.split() == ["shown", "empty", "0"] for line in on_node("group", "ls").out.splitlines())
    described = on_node("group", "describe", "shown").out
    assert "600" in described
    row = next(line.split() for line in described.splitlines() if line.startswith("grouped"))
    assert row[:6] == ["grouped", "0", "-", "400", "1,000", "600"]
    looked = on_node("group", "reset", "shown", "--shift", -100, "--dry-run")
    assert looked.out.splitlines()[-1].split() == ["grouped", "0", "400", "300"]
    file = tmp_path / "positions.json"
    file.write_bytes(orjson.dumps({"offsets": [{"topic": "grouped", "partition": 0, "offset": 7}]}))
    assert on_node("group", "reset", "shown", "--from-file", file).code == 0
    assert on_node("group", "reset", "shown", "--to-time", "0", "--json").json() == {
        "group": "shown",
        "dry_run": False,
        "offsets": [{"topic": "grouped", "partition": 0, "offset": 0, "previous_offset": 7}],
    }
    assert on_node("group", "reset", "shown").code == 2
    assert on_node("topic", "lag", "grouped").out.splitlines()[1].split()[:3] == ["shown", "empty", "1,000"]
    assert on_node("topic", "lag", "grouped", "--json").json()["groups"][0]["lag"] == 1000  # type: ignore[index]
    assert on_node("topic", "lag", "nowhere").code == 4
    assert on_node("group", "delete", "shown").code == 2
    assert on_node("group", "rm", "shown", "--yes").out == "Deleted group shown.\n"
    assert on_node("group", "describe", "shown").code == 4
