"""Metrics of runs: the text for Prometheus, packets for statsd, and that neither changes a run."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.statsd import datagrams
from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import StoreUnavailable
from spark_ingest.protocol.status import lag
from spark_ingest.run_metrics import (
    METRICS,
    PREFIX,
    MetricTargets,
    measured,
    metrics_of,
    prometheus_text,
    send,
    write_file,
)
from spark_ingest.spark.context import ROOT
from tests.spark_ingest.jobs import run_job
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows

NOW_MS = 1_800_000_000_000
TOPIC: dict[str, Any] = {"rows": 5, "bytes": 700, "files": 2, "reasons": {"not_json": 1}, "misfits": {'a"b\\c\nd': 3}}
DOCUMENT: dict[str, Any] = {"seconds": 1.5, "lost_records": 0, "topics": {"flights": TOPIC}, "failed": {"rides": "bad"}}
LAG: dict[str, Any] = {
    "head": 7,
    "committed_ms": NOW_MS - 1,
    "topics": {
        "flights": {"lag_records": 0, "lag_bytes": 0, "oldest_ms": None},
        "rides": {"lag_records": 9, "lag_bytes": 90, "oldest_ms": NOW_MS - 61_000},
    },
}
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)')


def read_lag() -> dict[str, Any]:
    return LAG


def targets(file: Path | None = None, statsd: tuple[str, int] | None = None) -> MetricTargets:
    return MetricTargets("default", file, statsd, read_lag, lambda: NOW_MS)


def test_the_text_has_every_metric_once_described() -> None:
    text = prometheus_text(metrics_of("default", DOCUMENT, LAG, NOW_MS))
    assert re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE) == [PREFIX + name for name in METRICS]
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    assert 'penstock_ingest_run_misfits{job="default",topic="flights",column="a\\"b\\\\c\\nd"} 3' in samples
    assert 'penstock_ingest_lag_seconds{job="default",topic="rides"} 61' in samples
    assert 'penstock_ingest_run_success{job="default"} 1' in samples


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "ingest-operate.md").read_text().split("\n## Metrics\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    documented = [name for cell in cells for name in re.findall(r"`(.*?)`", cell)]
    assert sorted(documented) == sorted(PREFIX + name for name in METRICS)


def test_the_file_is_replaced_also_after_a_failed_run(tmp_path: Path) -> None:
    def fails() -> Any:
        raise StoreUnavailable("away")

    file, notes = tmp_path / "job.prom", []
    run = measured(lambda: (DOCUMENT, None), targets(file), notes.append)
    assert run() == (DOCUMENT, None)
    assert "run_success" in file.read_text()
    with pytest.raises(StoreUnavailable):
        measured(fails, targets(file), notes.append)()
    assert 'run_success{job="default"} 0' in file.read_text()
    assert "run_rows" not in file.read_text()
    measured(lambda: (DOCUMENT, StoreUnavailable("a catalog")), targets(file), notes.append)()
    assert 'run_success{job="default"} 0' in file.read_text()
    assert notes == []
    assert [one.name for one in tmp_path.iterdir()] == ["job.prom"]


def test_what_does_not_work_is_named_and_fails_nothing(tmp_path: Path) -> None:
    def unreadable() -> Any:
        raise StoreUnavailable("away")

    notes: list[str] = []
    wanted = MetricTargets("default", tmp_path / "none" / "x", ("no host", 1), unreadable, lambda: NOW_MS)
    assert measured(lambda: (DOCUMENT, None), wanted, notes.append)() == (DOCUMENT, None)
    assert [note.split(":")[0].split(" ")[0] for note in notes] == ["metrics", "--metrics-file", "--statsd"]


@pytest.mark.parametrize("place", ["a_file/x", "a_directory", "/", "."])
def test_a_place_that_is_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("")
    (tmp_path / "a_directory").mkdir()
    problem = write_file(Path(place), metrics_of("default", DOCUMENT, None, NOW_MS))
    assert problem.startswith(f"--metrics-file {Path(place)} was not written: ")
    assert {one.name for one in tmp_path.iterdir()} == {"a_file", "a_directory"}


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "h\N{LATIN SMALL LETTER O WITH DIAERESIS}." * 40])
def test_a_host_that_is_no_name_is_named(host: str) -> None:
    assert send((host, 8125), []).startswith(f"--statsd {host}:8125 was not reached: ")


def test_the_file_is_utf_8_in_any_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("io.text_encoding", lambda encoding, *_: encoding or "ascii")
    assert write_file(tmp_path / "x", metrics_of("j\N{LATIN SMALL LETTER O WITH DIAERESIS}b", {}, None, 0)) == ""
    assert "j\N{LATIN SMALL LETTER O WITH DIAERESIS}b" in (tmp_path / "x").read_bytes().decode()


def test_without_targets_the_lag_is_not_read() -> None:
    def unreadable() -> Any:
        raise AssertionError

    assert MetricTargets("default", None, None, unreadable, lambda: NOW_MS).publish(DOCUMENT) == []


def test_statsd_gets_gauges_in_packets() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(60)
        assert targets(statsd=server.getsockname()).publish(DOCUMENT) == []
        lines = server.recv(65536).decode().splitlines()
    assert "penstock_ingest_run_rows.default.flights:5|g" in lines
    assert "penstock_ingest_run_misfits.default.flights.a_b_c_d:3|g" in lines
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+:[0-9.e+]+\|g", line) for line in lines)


def test_packets_are_bounded_and_lose_no_line() -> None:
    lines = [f"{'x' * (at % 90)}{at}" for at in range(500)]
    packets = datagrams(lines, 100)
    assert b"\n".join(packets).decode().splitlines() == lines
    assert max(map(len, packets)) <= 100
    assert len(packets) < 400


def test_the_lag_of_a_job() -> None:
    source, output = MemoryStore(), MemoryStore()
    log, other = TieredLog(source), TieredLog(source, topic="rides")
    log.add(0, json_rows(5))
    other.add(0, json_rows(2))
    run_job(source, output)
    log.add(0, json_rows(3, first=10))
    log.add(1, json_rows(4, first=20))
    found = lag(source, output, "default", lambda _: True, None)
    assert found["head"] == 1
    assert {topic: (one["lag_records"], one["oldest_ms"]) for topic, one in found["topics"].items()} == {
        "flights": (7, START_MS + 10_000),
        "rides": (0, None),
    }
    assert found["topics"]["flights"]["lag_bytes"] > 0
