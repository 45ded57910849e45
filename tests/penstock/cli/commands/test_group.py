"""`penstock group` against a real node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    listed = on_node("group", "ls").out
    assert any(line.split()[:3] == ["shown", "empty", "0"] for line in listed.splitlines()), listed
    described = on_node("group", "describe", "shown").out
    assert "600" in described
    row = next(line.split() for line in described.splitlines() if line.startswith("grouped"))
    assert row[:6] == ["grouped", "0", "-", "400", "1,000", "600"]
    explanation = on_node("group", "explain", "shown").out.splitlines()
    assert any(line.split()[:3] == ["no_members", "600", "records"] for line in explanation)
    watched = on_node("group", "watch", "shown", "--count", 2, "--interval-ms", 100, "--json").out.splitlines()
    assert [orjson.loads(line)["explanation"]["findings"][0]["cause"] for line in watched] == ["no_members"] * 2
    assert "no_members" in on_node("group", "watch", "shown", "--count", 1).out
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
    in_seconds = on_node("group", "reset", "shown", "--to-time", "1385053862", "--dry-run")
    assert "--to-time 1385053862 is a time in 1970: give milliseconds" in in_seconds.err
    assert on_node("group", "reset", "shown").code == 2
    assert "\nreset " in on_node("group", "explain", "shown").out
    assert on_node("topic", "lag", "grouped").out.splitlines()[1].split()[:3] == ["shown", "empty", "1,000"]
    assert on_node("topic", "lag", "grouped", "--json").json()["groups"][0]["lag"] == 1000  # type: ignore[index]
    assert on_node("topic", "lag", "nowhere").code == 4
    assert on_node("group", "delete", "shown").code == 2
    assert on_node("group", "rm", "shown", "--yes").out == "Deleted group shown.\n"
    assert on_node("group", "describe", "shown").code == 4
    assert on_node("group", "explain", "shown").code == 4


def test_a_record_that_kills_its_workers_is_found(on_node: Run, node_url: str, lines_file: Path) -> None:
    on_node("topic", "create", "killing", "--partitions", "1")
    on_node("produce", "killing", lines_file)
    with Client(node_url) as client:
        for number in range(4):  # each worker dies of the first record
            with client.consumer(group="killed", topics=["killing"], member_id=f"w{number}") as consumer:
                assert consumer.poll()[0].offset == 0
    causes = [line.split()[0] for line in on_node("group", "explain", "killed").out.splitlines() if line]
    assert {"no_members", "poison_record"} <= set(causes)
    explanation: Any = on_node("group", "explain", "killed", "--json").json()
    [poison] = [one for one in explanation["findings"] if one["cause"] == "poison_record"]
    assert (poison["topic"], poison["partition"]) == ("killing", 0)
    assert [one["cause"] for one in explanation["events"]][:2] == ["left", "joined"]
