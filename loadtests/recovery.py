"""How long a node that was killed takes to be ready again, for so many bytes of log. Three starts are timed.

An empty node; one after kill -9, which scans what lies behind its recovery points; and one whose recovery points are
lost, which scans everything that is not sealed. What it says to have scanned is read from its metrics, and its log must
end where it ended.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtests import servers
from loadtests.bodies import batch_body, json_values
from loadtests.cases import TOPIC_CONFIG
from loadtests.control import Control
from loadtests.generators import Generators
from loadtests.load import Load

TOPIC, PARTITIONS = "bench-recovery", 4
RECORDS, RECORD_BYTES = 1000, 1000
FILL_TIMEOUT_S = 120.0
_SCANNED = re.compile(r"^penstock_recovered_bytes(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Start:
    """From the start of the process to the line that says it is ready."""

    seconds: float
    scanned_bytes: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """The three starts, and whether the records were all there after each."""

    stored_bytes: int
    empty: Start
    killed: Start
    without_points: Start
    mismatch: str = ""

    @property
    def bytes_per_s(self) -> float:
        """Of the scan alone: what an empty node's start takes is not recovery."""
        return self.without_points.scanned_bytes / max(1e-3, self.without_points.seconds - self.empty.seconds)


def measure_recovery(directory: Path, size_bytes: int, generators: Generators, tell: Callable[[str], None]) -> Recovery:
    """Fill a node of its own below the directory, kill it, start it, twice. Raises ServerFailed."""
    place = directory / "recovery"
    place.mkdir()
    tell("recovery: filling a node")
    empty, stored = _fill(place, size_bytes, generators)
    tell("recovery: after kill -9")
    killed, first_end = _restart(place)
    (place / "penstock-data" / "recovery-points").unlink(missing_ok=True)  # a node that lived a second has them
    tell("recovery: without recovery points")
    without_points, second_end = _restart(place)
    expected = stored * RECORDS
    mismatch = ""
    if (first_end, second_end) != (expected, expected):
        mismatch = f"recovery: {expected} records were acknowledged, {first_end} and {second_end} were there"
    return Recovery(stored * RECORDS * RECORD_BYTES, empty, killed, without_points, mismatch)


def _fill(place: Path, size_bytes: int, generators: Generators) -> tuple[Start, int]:
    body = batch_body(json_values(RECORDS, RECORD_BYTES), time.time_ns() // 1_000_000)
    file = place / "batch.body"
    file.write_bytes(body.data)
    began = time.perf_counter()
    with servers.penstock(place) as node:
        empty = Start(time.perf_counter() - began, 0)
        Control(node.url).create_topic(TOPIC, TOPIC_CONFIG, PARTITIONS)
        load = Load(
            url=node.url,
            targets=(f"/v1/topics/{TOPIC}/records?acks=1",),
            requests=max(1, size_bytes // len(body.data)),
            connections=4,
            streams=2,
            body_file=file,
            headers=(("content-type", body.media_type),),
        )
        outcome = generators.closed(load, FILL_TIMEOUT_S)
        _kill(node)
    return empty, outcome.good


def _restart(place: Path) -> tuple[Start, int]:
    began = time.perf_counter()
    with servers.penstock(place) as node:
        seconds = time.perf_counter() - began
        control = Control(node.url)
        _, metrics = control.request("GET", "/metrics")
        _, described = control.request("GET", f"/v1/topics/{TOPIC}")
        _kill(node)
    scanned = sum(float(found) for found in _SCANNED.findall(metrics.decode()))
    end = sum(partition["log_end"] for partition in json.loads(described)["partitions"])
    return Start(seconds, round(scanned)), end


def _kill(node: servers.Server) -> None:
    node.process.kill()
    node.process.wait()


def recovery_lines(recovery: Recovery) -> list[str]:
    """What a report says of it."""
    killed, lost = recovery.killed, recovery.without_points
    after_kill = (
        f"Recovery of {recovery.stored_bytes / 1e9:.1f} GB after kill -9: ready in {killed.seconds:.2f} s, "
        f"{killed.scanned_bytes / 1e6:,.0f} MB scanned; an empty node takes {recovery.empty.seconds:.2f} s."
    )
    without_points = (
        f"Without recovery points: ready in {lost.seconds:.2f} s, {lost.scanned_bytes / 1e6:,.0f} MB scanned at "
        f"{recovery.bytes_per_s / 1e9:.1f} GB/s."
    )
    return [after_kill, without_points]
