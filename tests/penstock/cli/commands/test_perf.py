"""`penstock perf` against a real node: a run that is whole, and what is said of one that is not."""

from __future__ import annotations

from pathlib import Path

from tests.penstock.cli.conftest import Run


def test_a_run_is_sent_read_and_verified(on_node: Run) -> None:
    on_node("topic", "create", "load", "-p", 2)
    sent = on_node("perf", "produce", "load", "--records", 3000, "--keys", 50, "--rate", 100_000, "--json").json()
    assert (sent["records"], sent["failed"], sent["delivery"]["count"] > 0) == (3000, 0, True)  # type: ignore[index]
    run = sent["run"]  # type: ignore[index]
    shown = on_node("perf", "produce", "load", "--records", 10)
    assert "p99" in shown.out
    read = on_node("perf", "consume", "load", "--verify", run, "--expect", 3000, "--json")
    verified = read.json()["verified"]  # type: ignore[index]
    assert (read.code, verified["records"], verified["others"], verified["missing_count"]) == (0, 3000, 10, 0)
    assert on_node("perf", "consume", "load").out.split()[:2] == ["records", "3,010"]


def test_a_node_that_is_not_there_is_named_at_once(run: Run) -> None:
    ran = run("perf", "produce", "t", "--records", "1", "--url", "http://127.0.0.1:1")
    assert (ran.code, ran.err) == (3, "penstock: cannot reach http://127.0.0.1:1: connection refused\n")


def test_lost_doubled_and_unordered_records_are_named(on_node: Run, tmp_path: Path) -> None:
    on_node("topic", "create", "broken")
    lines = tmp_path / "lines.ndjson"
    lines.write_text("".join(f'{{"run":"r","number":{number},"pad":""}}\n' for number in (0, 3, 1, 3)))
    on_node("produce", "broken", lines)
    read = on_node("perf", "consume", "broken", "--verify", "r", "--expect", 5)
    assert (read.code, "run r is not as it was sent" in read.err) == (1, True)
    facts = dict(line.split(maxsplit=1) for line in read.out.splitlines())
    assert facts["missing"] == "2 (first: 2, 4)"
    assert (facts["twice"], read.out.count("order")) == ("1", 1)
    assert on_node("perf", "consume", "broken", "--verify", "absent").code == 1
    assert on_node("perf", "consume", "broken", "--expect", 4).code == 2
