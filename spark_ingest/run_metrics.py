"""Metrics of a run, for Prometheus as a text file and for statsd as UDP packets.

A run ends before Prometheus could scrape it, so the file has the facts of the last run, and the node exporter's
textfile collector reads it. It is replaced by a rename. No metric fails a run: a failure is returned as text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import EngineError
from engine.runtime.statsd import datagrams, look_up, plain_name

PREFIX = "penstock_ingest_"
_HELP = {
    "run_success": "1 if the last run committed every topic, else 0.",
    "run_timestamp_seconds": "End of the last run.",
    "run_seconds": "Duration of the last run.",
    "run_rows": "Rows that the last run committed.",
    "run_bytes": "Bytes of the files that the last run committed.",
    "run_files": "Files that the last run committed.",
    "run_dead_letters": "Dead letters of the last run, by reason.",
    "run_misfits": "Values of another type than their column in the last run.",
    "run_lost_records": "Records that were lost before ingestion, as the last run recorded.",
    "topic_failed": "1 for a topic that the last run did not commit.",
    "commit": "Number of the newest commit.",
    "commit_timestamp_seconds": "Time of the newest commit.",
    "lag_records": "Records in the store that are not ingested.",
    "lag_bytes": "Stored bytes of the segments with records that are not ingested.",
    "lag_seconds": "Age of the oldest record that is not ingested; 0 without one.",
}
METRICS = tuple(_HELP)


class Metric(NamedTuple):
    name: str
    value: float
    labels: Mapping[str, str]


def metrics_of(job: str, document: Mapping[str, Any], lag: Mapping[str, Any] | None, now_ms: int) -> list[Metric]:
    """Returns the metrics of a run's document (report.py), with its `error`, and of the lag after it (status.py)."""
    labels = {"job": job}
    metrics = [
        Metric("run_success", 0.0 if document.get("error") else 1.0, labels),
        Metric("run_timestamp_seconds", now_ms / 1000, labels),
    ]
    if "seconds" in document:
        metrics.append(Metric("run_seconds", document["seconds"], labels))
        metrics.append(Metric("run_lost_records", document["lost_records"], labels))
    for topic, counts in sorted(document.get("topics", {}).items()):
        of_topic = labels | {"topic": topic}
        metrics += [Metric(f"run_{name}", counts[name], of_topic) for name in ("rows", "bytes", "files")]
        reasons = counts["reasons"].items()
        metrics += [Metric("run_dead_letters", count, of_topic | {"reason": why}) for why, count in reasons]
        metrics += [
            Metric("run_misfits", count, of_topic | {"column": name}) for name, count in counts["misfits"].items()
        ]
    metrics += [Metric("topic_failed", 1.0, labels | {"topic": topic}) for topic in sorted(document.get("failed", {}))]
    return metrics + (_lag(labels, lag, now_ms) if lag else [])


def _lag(labels: dict[str, str], lag: Mapping[str, Any], now_ms: int) -> list[Metric]:
    metrics = []
    if lag["head"] is not None:
        metrics.append(Metric("commit", lag["head"], labels))
        metrics.append(Metric("commit_timestamp_seconds", lag["committed_ms"] / 1000, labels))
    for topic, lag_of_topic in sorted(lag["topics"].items()):
        of_topic = labels | {"topic": topic}
        oldest = lag_of_topic["oldest_ms"]
        metrics.append(Metric("lag_records", lag_of_topic["lag_records"], of_topic))
        metrics.append(Metric("lag_bytes", lag_of_topic["lag_bytes"], of_topic))
        metrics.append(Metric("lag_seconds", 0.0 if oldest is None else max(0.0, (now_ms - oldest) / 1000), of_topic))
    return metrics


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Returns the text format of Prometheus, version 0.0.4."""
    lines = []
    for name, some in groupby(
        sorted(metrics, key=lambda metric: METRICS.index(metric.name)), lambda metric: metric.name
    ):
        lines += [f"# HELP {PREFIX}{name} {_HELP[name]}", f"# TYPE {PREFIX}{name} gauge"]
        for metric in some:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in metric.labels.items())
            lines.append(f"{PREFIX}{name}{{{labels}}} {metric.value:.15g}")
    return "\n".join(lines) + "\n"


def statsd_lines(metrics: Iterable[Metric]) -> list[str]:
    """Returns one gauge for each metric: `penstock_ingest_<name>.<job>.<topic>.<reason or column>:<value>|g`."""
    names = (
        (".".join([PREFIX + metric.name, *map(plain_name, metric.labels.values())]), metric.value) for metric in metrics
    )
    return [f"{name}:{value:.15g}|g" for name, value in names]


def write_file(path: Path, metrics: Iterable[Metric]) -> str:
    """Replaces the file; returns why that did not work, or an empty text."""
    if not path.name:
        return f"--metrics-file {path} was not written: it is a directory"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(prometheus_text(metrics), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # also if the directory is a file
            temporary.unlink()
        return f"--metrics-file {path} was not written: {error.strerror}"
    return ""


def send(address: tuple[str, int], metrics: Iterable[Metric]) -> str:
    """Sends packets to statsd; returns why that did not work, or an empty text. Nothing says whether they arrive."""
    host, port = address
    try:
        look_up(host, port).send(datagrams(statsd_lines(metrics)))
    except (OSError, UnicodeError) as error:
        return f"--statsd {host}:{port} was not reached: {getattr(error, 'strerror', None) or error}"
    return ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class MetricTargets(NamedTuple):
    """Where the metrics of a job's runs go. `read_lag` returns the document of `ingest lag`."""

    job: str
    file: Path | None
    statsd: tuple[str, int] | None
    read_lag: Callable[[], Mapping[str, Any]]
    now_ms: Callable[[], int]

    def publish(self, document: Mapping[str, Any]) -> list[str]:
        """Writes and sends the metrics of a run; returns what did not work."""
        if self.file is None and self.statsd is None:
            return []
        problems = []
        lag: Mapping[str, Any] | None = None
        try:
            lag = self.read_lag()
        except EngineError as error:
            problems.append(f"metrics without the lag: {error}")
        metrics = metrics_of(self.job, document, lag, self.now_ms())
        if self.file is not None:
            problems.append(write_file(self.file, metrics))
        if self.statsd is not None:
            problems.append(send(self.statsd, metrics))
        return [problem for problem in problems if problem]


Run = Callable[[], tuple[dict[str, Any], EngineError | None]]


def measured(run_once: Run, targets: MetricTargets, note: Callable[[str], None]) -> Run:
    """Returns the run, with its metrics published at its end, also after an error."""

    def run() -> tuple[dict[str, Any], EngineError | None]:
        try:
            document, failure = run_once()
        except EngineError as error:
            _publish(targets, {"error": str(error)}, note)
            raise
        _publish(targets, document | {"error": str(failure) if failure else None}, note)
        return document, failure

    return run


def _publish(targets: MetricTargets, document: Mapping[str, Any], note: Callable[[str], None]) -> None:
    for problem in targets.publish(document):
        note(problem)
