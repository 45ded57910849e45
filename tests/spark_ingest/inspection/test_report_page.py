"""`ingest report`: the page has the figures of the commits, loads nothing, and escapes names."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from engine.tiering.store.store import open_store
from spark_ingest.inspection.figures import Age, Figures, figures_of, grouped, size_classes
from spark_ingest.inspection.report_page import report_page
from tests.spark_ingest.jobs import invoke, run_job
from tests.spark_ingest.tiered import TieredLog, json_rows, row


def test_the_page_has_the_figures_of_the_commits(tmp_path: Path) -> None:
    source, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "output").as_uri())
    log = TieredLog(source)
    log.add(0, json_rows(50))
    log.add(1, [row(b'{"id":"<script>","n\\u003cb\\u003e":1}'), row(b"bad")])
    run_job(source, output, bad_percent_max=100)
    log.add(0, [row(b'{"id":1.5}')])
    run_job(source, output)
    log.add(1, json_rows(9))
    path = tmp_path / "report.html"
    given = ["report", "--output", output.url, "--store", source.url, "--to", str(path)]
    done = invoke(*given)
    assert done.exit_code == 0, done.output
    page = path.read_text()
    assert "<b>52</b><span>rows</span>" in page
    assert "<b>9</b><span>not ingested yet</span>" in page
    assert "undecodable_json" in page or "invalid" in page or "dead letter" in page
    assert not re.search(r"<script|<link|src=|href=|url\(", page)
    assert page.count("<section>") == 8
    for plot in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(plot)
    assert invoke(*given, "--commits", "1").exit_code == 0
    assert "<b>1</b><span>rows</span>" in path.read_text()
    assert "has no commit" in invoke(*given, "--job", "none").output


def test_names_are_escaped(tmp_path: Path) -> None:
    source, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "output").as_uri())
    TieredLog(source).add(0, json_rows(5))
    run_job(source, output)
    figures = figures_of(output, "default", None, None)
    assert figures is not None
    figures.of("flights").misfits["<b>&"] = 3
    figures.of("flights").held = "<i>"
    page = report_page(figures)
    assert "&lt;b&gt;&amp;" in page
    assert "<i>" not in page


def test_periods_and_sizes_are_grouped() -> None:
    minutes, found = grouped(Counter({0: 1, 5: 2, 600: 4}), 96)
    assert (minutes, len(found), sum(count for _, count in found)) == (180, 34, 7)
    assert grouped(Counter(), 96) == (10, [])
    assert size_classes([1, 4096, 5000, 300_000]) == [(4096, 2), (16384, 1), (65536, 0), (262144, 0), (1048576, 1)]


@pytest.mark.parametrize("step_ms", [1, 250, 1000, 20_000, 60_000, 3_600_000])
def test_no_two_labels_of_the_freshness_are_equal(step_ms: int) -> None:
    """Runs follow each other within a second, or for months."""
    figures = Figures("default", "file:///lake", 1, 20, 0, 20)
    figures.ages = [Age(number, 1_700_000_000_000 + number * step_ms, 30.0, 45.0) for number in range(20)]
    [plot] = re.findall(r"<h2>Freshness</h2>.*?</svg>", report_page(figures), re.DOTALL)
    labels = re.findall(r"<text [^>]*>([^<]+)</text>", plot)
    assert len(labels) == 10
    assert len({*labels}) == len(labels)
