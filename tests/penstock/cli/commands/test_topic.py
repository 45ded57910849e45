"""Topics, tiers and the cluster from the command line, against a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.commands.topic import parse_settings
from tests.penstock.cli.conftest import Run


def test_create_says_whether_the_topic_is_new(on_node: Run) -> None:
    assert on_node("topic", "create", "made", "-p", 3).out == "Created topic made with 3 partitions.\n"
    assert on_node("topic", "create", "made", "-p", 3).out == "There is already topic made with 3 partitions.\n"
    assert on_node("topic", "create", "made", "-p", 2).code == 4


def test_settings_go_to_the_node_as_json(on_node: Run) -> None:
    ran = on_node("topic", "create", "set", "-c", "retention_ms=3600000", "-c", "compression=zstd", "--json")
    config = ran.json()["config"]  # type: ignore[index]
    assert (config["retention_ms"], config["compression"]) == (3_600_000, "zstd")
    altered = on_node("topic", "alter", "set", "--config", "flush_ms=50")
    assert altered.out.split() == ["setting", "value", "flush_ms", "50"]
    assert on_node("topic", "alter", "set", "--config", "no_such=1").code == 4
    assert on_node("topic", "alter", "set", "-c", "unclean_election=yes").out.split()[-1] == "yes"
    assert on_node("topic", "unset", "set", "unclean_election", "flush_ms").out.split()[-1:] == ["20"]
    config = on_node("topic", "describe", "set", "--json").json()["config"]
    assert (config["unclean_election"], config["flush_ms"]) == (False, 20)
    assert "no_such" in on_node("topic", "unset", "set", "no_such").err


def test_a_topic_is_altered_to_have_more_partitions(on_node: Run) -> None:
    on_node("topic", "create", "grown")
    assert on_node("topic", "alter", "grown", "--partitions", 3).out == "Topic grown has 3 partitions.\n"
    assert len(on_node("topic", "describe", "grown", "--json").json()["partitions"]) == 3  # type: ignore[index]
    refused = on_node("topic", "alter", "grown", "-p", 2)
    assert refused.code == 4
    assert "can only grow" in refused.err


def test_retention_is_an_option(on_node: Run) -> None:
    created = on_node("topic", "create", "kept", "--retention", "7d", "--json").json()
    assert created["config"]["retention_ms"] == 604_800_000  # type: ignore[index]
    assert on_node("topic", "alter", "kept", "--retention", "50GiB").out.split()[2:4] == [
        "retention_bytes",
        "53,687,091,200",
    ]


def test_records_are_deleted_before_an_offset_a_time_and_an_age(on_node: Run, lines_file: Path) -> None:
    def log_starts(*arguments: object) -> list[int]:
        ran = on_node("topic", "delete-records", "cut", *arguments, "--yes", "--json")
        return [entry["log_start"] for entry in ran.json()["partitions"]]  # type: ignore[index]

    on_node("topic", "create", "cut", "--partitions", 2)
    on_node("produce", "cut", lines_file, "--partition", 1)
    assert on_node("topic", "delete-records", "cut", "--before", 5, "--yes").code == 2, "the partition is not named"
    refused = on_node("topic", "delete-records", "cut", "--before", "yesterday", "--yes")
    assert (refused.code, "--before is 'yesterday'" in refused.err) == (4, True)
    assert log_starts("--before", 5, "--partition", 1) == [5]
    assert log_starts("--before", "1h") == [0, 5]
    assert on_node("consume", "cut", "--from", "1h", "--count", 1, "--format", "values").out == '{"n":5,"tail":"N5"}\n'
    assert on_node("consume", "cut", "--until", "1h").out == ""
    assert log_starts("--before", "latest") == [0, 1000]


def test_settings_are_numbers_words_or_nothing() -> None:
    pairs = ("a=1", "b=-1", "c=true", "d=false", "e=null", "f=zstd", "g=a=b", "h=")
    expected = {"a": 1, "b": -1, "c": True, "d": False, "e": None, "f": "zstd", "g": "a=b", "h": ""}
    assert parse_settings(pairs) == expected


def test_list_and_describe_show_what_there_is(on_node: Run, lines_file: Path) -> None:
    on_node("topic", "create", "shown", "-p", 2)
    on_node("produce", "shown", lines_file, "--partition", 1)
    listed = on_node("topic", "list").out.splitlines()
    assert listed[0].split() == ["topic", "partitions", "replication", "factor"]
    assert any(line.split()[:3] == ["shown", "2", "1"] for line in listed)
    described = on_node("topic", "describe", "shown").out
    assert "records             1,000" in described
    row = next(line.split() for line in described.splitlines() if line.strip().startswith("1 "))
    assert row[:6] == ["1", "1", "1/1", "0", "1,000", "1,000"]


def test_roll_and_tier_status_show_positions(on_node: Run, lines_file: Path) -> None:
    on_node("topic", "create", "rolled")
    on_node("produce", "rolled", lines_file)
    assert on_node("topic", "roll", "rolled").out.split() == ["partition", "sealed", "end", "0", "1,000"]
    assert "rolled" in on_node("tier", "status").out
    one = on_node("tier", "status", "rolled")
    assert one.code == 0
    assert one.out.splitlines()[-1].split()[4:6] == ["1,000", "1,000"]
    assert on_node("tier", "status", "rolled", "--json").json()["topic"] == "rolled"  # type: ignore[index]
    assert on_node("tier", "status", "--json").json()["topics"]  # type: ignore[index]


def test_erase_writes_a_tombstone_and_refuses_a_topic_that_is_not_compacted(on_node: Run) -> None:
    on_node("topic", "create", "profiles", "-p", 2, "-c", "cleanup_policy=compact")
    written = on_node("topic", "erase", "profiles", "--key", "user-17")
    assert written.out.startswith("Wrote a tombstone at offset 0 of partition ")
    assert on_node("topic", "erase", "profiles", "--key", "user-17", "--json").json()["offset"] == 1  # type: ignore[index]
    assert on_node("table", "get", "profiles", "user-17").code == 4
    on_node("topic", "create", "clicks")
    refused = on_node("topic", "erase", "clicks", "--key", "user-17")
    assert refused.code == 4
    assert "is not compacted" in refused.err


def test_delete_needs_yes_without_a_terminal(on_node: Run) -> None:
    on_node("topic", "create", "gone")
    assert on_node("topic", "delete", "gone").code == 2
    assert on_node("topic", "delete", "gone", "--yes").out == "Deleted topic gone.\n"
    assert on_node("topic", "describe", "gone").code == 4


def test_cluster_status_shows_the_node(on_node: Run, node_url: str) -> None:
    ran = on_node("cluster", "status")
    assert ran.out.startswith("cluster ")
    assert node_url in ran.out
    assert on_node("cluster", "status", "--json").json()["nodes"][0]["url"] == node_url  # type: ignore[index]


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["topic", "describe", "j"], ["topic", "create", "j"], ["topic", "roll", "j"],
     ["topic", "alter", "j", "-c", "flush_ms=30"], ["topic", "delete", "j", "--yes"]],
)  # fmt: skip
def test_json_is_one_document(on_node: Run, arguments: list[str]) -> None:
    on_node("topic", "create", "j")
    assert isinstance(on_node(*arguments, "--json").json(), dict)


def test_a_schema_is_set_changed_by_force_and_removed(on_node: Run, tmp_path: Path) -> None:
    wide, narrow = tmp_path / "wide.json", tmp_path / "narrow.json"
    wide.write_text('{"type":"object"}\n')
    narrow.write_text('{"type":"object","required":["id"]}\n')
    on_node("topic", "create", "ruled")
    assert "has no schema" in on_node("topic", "schema", "ruled").err
    said = on_node("topic", "schema", "ruled", "--set", wide, "--force").out
    assert said == "Values of topic ruled must follow version 1 of its schema.\n"
    refused = on_node("topic", "schema", "ruled", "--set", narrow)
    assert (refused.code, "at /id, it is required now" in refused.err) == (4, True)
    assert "version 2" in on_node("topic", "schema", "ruled", "--set", narrow, "--force").out
    assert on_node("topic", "schema", "ruled").out == narrow.read_text()
    assert on_node("topic", "schema", "ruled", "--unset", "--json").json() == {
        "topic": "ruled",
        "value_schema": "",
        "value_schema_version": 3,
    }
    narrow.write_text(" \n")
    assert on_node("topic", "schema", "ruled", "--set", narrow).code == 1
    assert on_node("topic", "schema", "ruled", "--force").code == 2
