"""Repeated runs in one process: their times, their lines, and how a signal ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.tiering.store.store import StoreUnavailable, open_store
from spark_ingest.config.run_options import FOLLOW_EVERY_S, Repetition, repetition_of
from spark_ingest.errors import IngestRefused
from spark_ingest.repeat import Stop, repeat
from tests.spark_ingest.tiered import TieredLog, json_rows


class StopAfter(Stop):
    """A stop with a clock that only waits move; it is set after some waits."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.now = 0.0
        self.waited: list[float] = []
        self._waits = waits

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += max(0.0, seconds)
        if len(self.waited) == self._waits:
            os.kill(os.getpid(), signal.SIGTERM)


def repeated(
    stop: StopAfter, runs: list[Any], capsys: pytest.CaptureFixture[str], takes_s: float = 1, *, is_quiet: bool = False
) -> list[Any]:
    coming = iter(runs)

    def run_once() -> tuple[dict[str, Any], EngineError | None]:
        stop.now += takes_s
        found = next(coming)
        if isinstance(found, Exception):
            raise found
        return found, None

    repeat(run_once, Repetition(10, is_quiet), stop, lambda: stop.now, lambda: 7)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_runs_start_at_their_times_and_each_prints_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    stop = StopAfter(2)
    lines = repeated(stop, [{"rows": 5}, {"rows": 0}], capsys)
    assert lines == [{"started_ms": 7, "rows": 5, "error": None}, {"started_ms": 7, "rows": 0, "error": None}]
    assert stop.waited == [9, 9]


def test_follow_prints_runs_with_new_records_and_failures_only(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{"commits": []}, {"commits": [1]}, {"commits": [], "upkeep": {}}, StoreUnavailable("away"), {}]
    lines = repeated(StopAfter(5), runs, capsys, is_quiet=True)
    assert [(one.get("commits"), one["error"]) for one in lines] == [([1], None), (None, "away")]


def test_follow_is_an_interval_of_a_minute_unless_another_is_given() -> None:
    assert repetition_of(None, None, "local", follow=True) == Repetition(FOLLOW_EVERY_S, is_quiet=True)
    assert repetition_of(5, 60, "local", follow=True) == Repetition(5, is_quiet=True)
    assert repetition_of(None, None, "spark", follow=False) is None
    for every_s, upkeep_s, engine, follow in ((None, 60, "local", False), (None, None, "spark", True)):
        with pytest.raises(IngestRefused):
            repetition_of(every_s, upkeep_s, engine, follow=follow)


def test_a_run_that_takes_too_long_is_followed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    stop = StopAfter(2)
    repeated(stop, [{}, {}], capsys, takes_s=25)
    assert stop.waited == [-15, -15]


def test_a_failed_run_is_tried_again_at_its_next_time(capsys: pytest.CaptureFixture[str]) -> None:
    lines = repeated(StopAfter(3), [{"rows": 1}, StoreUnavailable("away"), IngestRefused("gone")], capsys)
    assert [one["error"] for one in lines] == [None, "away", "gone"]


def test_wrong_options_end_the_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(IngestRefused):
        repeated(StopAfter(1), [IngestRefused("no topic")], capsys)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_ends_a_run_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    reached: list[str] = []

    def run_once() -> tuple[dict[str, Any], EngineError | None]:
        reached.append("begun")
        os.kill(os.getpid(), signal.SIGTERM)
        reached.append("never")
        return {}, None

    repeat(run_once, Repetition(10, is_quiet=False), Stop(), lambda: 0.0, lambda: 7)
    assert reached == ["begun"]
    assert capsys.readouterr() == ("", "stopped; the next run resumes a plan that is not committed\n")


def test_the_command_follows_new_segments_and_ends_with_0_on_sigterm(tmp_path: Path) -> None:
    log = TieredLog(open_store((tmp_path / "store").as_uri()))
    log.add(0, json_rows(30))
    places = ["--store", str(tmp_path / "store"), "--output", str(tmp_path / "output"), "--topics", "flights"]
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "ingest",
        "run",
        "--engine",
        "local",
        "--follow",
        "--every",
        "1s",
        *places,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["rows"] == 30
        log.add(0, json_rows(7, first=30))
        assert json.loads(process.stdout.readline())["rows"] == 7
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err.endswith("stopped; the next run resumes a plan that is not committed\n")
