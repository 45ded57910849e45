import json

import pytest

from loadtests.bench.figures import Round, Row, ratio_of, rows_of
from loadtests.bench.report import (
    PAGE_BEGIN,
    PAGE_END,
    Report,
    columns,
    details,
    into_page,
    number,
    ratios,
    summary,
    to_json,
    to_markdown,
    verdict_line,
)
from loadtests.bench.targets import TARGETS, verdicts_of
from loadtests.bench.works import PLANS, TITLES, WORKS, cells_of, filled_records, key_of
from loadtests.host.machine import Machine
from tests.architecture.sources import ROOT

MACHINE = Machine(2, "a processor", 8 << 30, "6.1", "3.11", "ext4", 0.05, 0.07, 1.5)
ALL = [cell for work in WORKS for cell in cells_of(work, list(TITLES))]


def cell(key):
    (found,) = [one for one in ALL if one.key == key]
    return found


def round_(cpu_us=100.0, p99_ms=2.0, generator_share=0.2, compiler_share=0.0):
    return Round(1000, 0.5, cpu_us * 1000 / 1e6, 1.0, p99_ms, generator_share, 0.25, compiler_share)


def row(key, *cpus, **options):
    return Row(cell(key), tuple(round_(cpu, **options) for cpu in cpus))


def report(*rows, problems=()):
    return Report("quick", "2026-01-01", MACHINE, ("a fact",), rows, 7, problems, 12.0)


def test_figures_are_medians_of_rounds_with_their_spread():
    one = row("single/kafka", 50, 70, 60)
    assert one.cpu_us == pytest.approx(60)
    assert one.cpu_us_spread == pytest.approx((50, 70))
    assert one.records_per_s == 2000


def test_a_ratio_is_taken_within_each_round():
    """The machine was ten times slower in the second round, for both."""
    ratio = ratio_of(row("single/penstock/HTTP/2", 100, 1000).rounds, row("single/kafka", 50, 500).rounds, "cpu")
    assert (ratio.median, ratio.least, ratio.most) == pytest.approx((2, 2, 2))


def test_no_ratio_without_a_figure():
    assert ratio_of(row("single/kafka", 1, p99_ms=None).rounds, row("single/nats", 1).rounds, "p99") is None


def test_every_target_names_two_cells_that_are_measured():
    keys = {one.key for one in ALL}
    assert [target for target in TARGETS if not {target.cell, target.against} <= keys] == []
    assert len(keys) == len(ALL)


def test_a_target_is_met_up_to_its_bound():
    def verdict(cpu):
        (found,) = verdicts_of([row("single/penstock/HTTP/2", cpu), row("single/kafka", 100)])
        return found.is_met

    assert verdict(150)
    assert not verdict(151)


def test_a_target_is_not_judged_by_a_server_that_still_warms_up():
    cold = row("single/kafka", 1000, compiler_share=0.5)
    (found,) = verdicts_of([row("single/penstock/HTTP/2", 1), cold])
    assert (found.is_met, found.word) == (False, "not judged ‡")
    assert "‡ the JVM was not warm: its compiler took up to 50%" in to_markdown(report(cold))


def test_targets_without_their_cells_are_left_out():
    assert verdicts_of([row("single/penstock/HTTP/2", 1)]) == []


def test_the_table_has_a_line_for_each_work_and_a_column_for_each_server():
    one = report(
        row("single/penstock/HTTP/2", 250),
        row("single/penstock/HTTP/1.1", 260),
        row("single/kafka", 63),
        row("delivery/nats", 249),
    )
    assert summary(one) == [
        ["1 record of 100 B a request, 64 in flight", "HTTP/2 250, HTTP/1.1 260", "–", "63.0", "–", "–"],
        ["1,000 records/s one by one, produce to consumer", "–", "–", "–", "249; 1.00 / 2.00 ms", "–"],
    ]


def test_servers_other_than_the_page_s_have_columns_and_the_bare_function_is_what_they_are_compared_with():
    one = report(row("single/penstock/HTTP/2", 50), row("single/bare/HTTP/2", 25))
    assert columns(one) == ["penstock", "bare"]
    assert summary(one) == [["1 record of 100 B a request, 64 in flight", "HTTP/2 50.0", "HTTP/2 25.0"]]
    assert [line[4] for line in details(one)] == ["2.00", "–"]
    assert "A REST proxy" not in to_markdown(one)


def test_a_ratio_stands_beside_its_target():
    one = report(row("single/penstock/HTTP/2", 250), row("single/kafka", 100))
    (line,) = ratios(one)
    assert line[0].endswith("Penstock HTTP/2")
    assert line[3:] == ["2.50 (2.50 to 2.50)", "1.50", "not met, by 67%"]
    assert [line[4] for line in details(one)] == ["2.50", "–"]


def test_a_generator_at_its_limit_is_marked():
    one = report(row("single/redis", 9, generator_share=0.95))
    assert details(one)[0][5] == "2,000†"
    assert "† the generator used its whole core" in to_markdown(one)


def test_markdown_and_json_have_everything():
    one = report(row("single/penstock/HTTP/2", 250), row("single/kafka", 100), problems=("kafka: wrong",))
    text = to_markdown(one)
    assert all(part in text for part in ("a fact", "kafka: wrong", "1 of 7 checks FAILED"))
    assert verdict_line(report()) == "Checked after 7 sessions: each log has exactly the acknowledged records."
    assert json.loads(to_json(one))["rows"][0]["cell"]["work"]["key"] == "single"
    for block in text.split("\n\n"):
        counts = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(counts) <= 1


def test_a_page_gets_the_comparison_between_its_marks():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    before, after = page.split(PAGE_BEGIN)[0], page.split(PAGE_END, 1)[1]
    one = report(row("single/penstock/HTTP/2", 250))
    written = into_page(page, one)
    assert written.startswith(f"{before}{PAGE_BEGIN}\n\n- 2 cores, ")
    assert written.endswith(f"the acknowledged records.\n\n{PAGE_END}{after}")
    assert [title in written for title in ("### Server CPU", "### Ratios", "### Every cell")] == [True, False, False]
    assert into_page(written, one) == written
    with pytest.raises(ValueError, match="the page needs the lines"):
        into_page(PAGE_END + PAGE_BEGIN, one)


def test_only_cells_that_were_measured_have_rows():
    assert [one.cell.key for one in rows_of(ALL, {"single/kafka": [round_()]})] == ["single/kafka"]


def test_keys_and_sizes_of_logs():
    assert key_of("single", "kafka") == "single/kafka"
    by_key = {work.key: work for work in WORKS}
    assert filled_records(PLANS["full"], by_key["read"]) == 300_000
    assert filled_records(PLANS["full"], by_key["read-single"]) < 100_000


@pytest.mark.parametrize(("value", "text"), [(0.091, "0.09"), (12.34, "12.3"), (1234.5, "1,234")])
def test_numbers_have_three_digits(value, text):
    assert number(value) == text
