"""`penstock top`, `metrics`, and what explains a topic and a cluster, against a real node."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios

import pytest

from penstock.cli.explaining import explain_findings, print_silent
from penstock.cli.live import in_order
from tests.penstock.cli.conftest import Run

pytestmark = pytest.mark.e2e


def test_top_prints_topics_once_and_as_json(on_node: Run) -> None:
    assert on_node("topic", "create", "busy").code == 0
    ran = on_node("top", "--once", "--sort", "name", "--limit", 1000)
    assert (ran.code, "busy" in ran.out) == (0, True)
    document = on_node("top", "--json").json()
    assert {"overview", "topics"} == document.keys()  # type: ignore[union-attr]


def test_metrics_lists_series_and_names_one_that_is_not_there(on_node: Run) -> None:
    assert "records_in_per_s" in on_node("metrics").out
    assert on_node("metrics", "nothing").code != 0


def test_a_healthy_topic_has_no_findings_and_a_missing_one_is_an_error(on_node: Run) -> None:
    assert on_node("topic", "create", "well").code == 0
    assert on_node("topic", "explain", "well").out == "Nothing is wrong with well.\n"
    assert on_node("topic", "explain", "absent").code != 0
    assert on_node("cluster", "explain", "--json").code == 0


def test_silent_parts_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    class Tenant:
        """A node as a token of a tenant sees it."""

        def once(self) -> Tenant:
            return self

        def send(self, _: object) -> Tenant:
            return self

        def json(self) -> dict[str, object]:
            return {"findings": []}

    explain_findings(Tenant(), None, as_json=False)  # type: ignore[arg-type]
    assert "Nothing is wrong" not in capsys.readouterr().out
    print_silent({"nodes_missing": [3]})
    assert "Node 3 did not answer" in capsys.readouterr().out


def test_topics_are_listed_by_prefix_in_pages(on_node: Run) -> None:
    for name in ("page-1", "page-2", "page-3"):
        assert on_node("topic", "create", name).code == 0
    ran = on_node("topic", "list", "--prefix", "page-", "--limit", 2)
    assert ("page-2" in ran.out, "page-3" in ran.out) == (True, False)
    assert [row["topic"] for row in on_node("topic", "list", "--prefix", "page-", "--json").json()["topics"]] == [  # type: ignore[index]
        "page-1",
        "page-2",
        "page-3",
    ]


def test_rows_keep_their_order_and_new_ones_come_last() -> None:
    assert in_order(["c", "a", "d"], ["a", "b", "c"]) == ["a", "c", "d"]


def test_the_live_view_ends_by_a_key_and_leaves_the_terminal_as_it_was(on_node: Run, node_url: str) -> None:
    assert on_node("topic", "create", "lively").code == 0
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (200, 120))
    before = termios.tcgetattr(its)
    command = [sys.executable, "-m", "penstock.cli.main", "top", "--url", node_url, "--limit", "1000"]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its) as process:
        try:
            shown = b""
            while b"lively" not in shown:
                assert select.select([ours], [], [], 60)[0], shown
                shown += os.read(ours, 65536)
            assert not termios.tcgetattr(its)[3] & termios.ICANON
            os.write(ours, b"s")
            while b"by log_bytes" not in shown:
                assert select.select([ours], [], [], 60)[0], shown
                shown += os.read(ours, 65536)
            os.write(ours, b"q")
            for _ in range(1200):  # what is not read would hold it up
                if process.poll() is not None:
                    break
                if select.select([ours], [], [], 0.05)[0]:
                    os.read(ours, 65536)
            assert process.returncode == 0
        finally:
            process.kill()
    assert termios.tcgetattr(its) == before
    os.close(ours)
    os.close(its)
