import io
import json

import pytest
from rich.console import Console

from loadtests.bench.figures import Round, open_row, row_of
from loadtests.bench.report import Report, print_report, to_json, to_markdown
from loadtests.generators.load import Outcome
from loadtests.host.machine import Machine

MACHINE = Machine(2, "a processor", 8 << 30, "6.1", "3.11", "2.8.7", "ext4", 0.05, 0.07, 1.5)


def measured(good=1000, seconds=0.1, server_cpu_s=0.2, generator_cpu_s=0.01):
    outcome = Outcome(good, 0, seconds, list(range(1000, 1000 + good)), 0, generator_cpu_s)
    return Round(outcome, 1000, 100_000, server_cpu_s, 50_000_000, 0.25)


def report(*rows, mismatches=()):
    return Report(
        "quick", "2026-01-01", "abc", MACHINE, "h2load", rows, ("proved.",), ("recovered.",), 7, mismatches, 12.0
    )


def drawn(one):
    console = Console(file=io.StringIO(), width=60)
    print_report(one, console)
    return console.file.getvalue()


def test_a_row_is_the_median_of_rounds_and_the_latency_of_all():
    rounds = [measured(), measured(good=2000), measured(good=4000)]
    row = row_of("json", "JSON", "penstock", "1", rounds, [])
    assert row.requests_per_s == 20_000
    assert row.records_per_s == 20_000_000
    assert row.megabytes_per_s == pytest.approx(2000)
    assert row.cpu_us_per_request == pytest.approx(100)
    assert row.latency.count == 7000
    assert row.ratio_to_bare is None


def test_a_ratio_is_taken_within_each_round():
    """The machine was ten times slower in the second round, for both."""
    rounds, bare = [measured(), measured(seconds=1.0)], [measured(good=2000), measured(good=2000, seconds=1.0)]
    row = row_of("json", "JSON", "penstock", "1", rounds, bare)
    assert row.ratio_to_bare == pytest.approx(0.5)


def test_a_generator_at_its_limit_is_marked():
    row = row_of("json", "JSON", "penstock", "1", [measured(generator_cpu_s=0.095)], [])
    assert row.is_generator_bound
    assert "10,000†" in drawn(report(row))


def test_the_table_shows_every_figure_whole_however_narrow_the_terminal():
    bare = row_of("json-bare", "1000 x 100 B as JSON", "bare", "", [measured(good=2000)], [measured(good=2000)])
    node = row_of("json-acks-1", "1000 x 100 B as JSON", "penstock", "1", [measured()], [measured(good=2000)])
    way = open_row(row_of("delivery-1", "produce to delivery", "penstock", "all", [measured()], []), 1000, [5, 6])
    text = drawn(report(bare, node, way))
    for expected in ("bare function", "acks=1", "acks=all, 1,000/s asked", "10.00 M", "1,000", "50%", "p99.9"):
        assert expected in text
    assert "…" not in text
    assert "fdatasync can take 0.05 ms" in text
    assert "stored is exactly what was acknowledged" in text


def test_a_mismatch_is_shouted():
    text = drawn(report(mismatches=("json: log end is 4, acknowledged were 5",)))
    assert "1 of 7 checks FAILED" in text
    assert "log end is 4" in text


def test_markdown_has_a_column_for_every_cell():
    row = row_of("json", "JSON", "penstock", "1", [measured()], [measured()])
    lines = to_markdown(report(row)).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert any(line.startswith("| acks=1 | 10,000 | 10.00 M |") for line in table)


def test_json_holds_everything_but_single_durations():
    row = row_of("json", "JSON", "penstock", "1", [measured()], [])
    document = json.loads(to_json(report(row)))
    assert document["rows"][0]["latency"]["p99_ms"] == row.latency.p99_ms
    assert document["machine"]["cores"] == 2
