"""Measures the start of a node after kill -9, for a log of a given size. Three starts are timed.

An empty node; a node after kill -9, which scans segments past its recovery points; and a node without recovery points,
which scans all unsealed segments and writes them again. The last one depends on the disk, so the write rate of the disk
is measured too. The scanned bytes come from the node's metrics. The log end must be the same after each start.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench.works import TOPIC_CONFIG
from loadtests.generators.bodies import batch_body, json_values
from loadtests.generators.generators import Generators
from loadtests.generators.load import Load
from loadtests.host import servers
from loadtests.host.admin_client import AdminClient

TOPIC, PARTITIONS = "bench-recovery", 4
RECORDS, RECORD_BYTES = 1000, 1000
FILL_TIMEOUT_S = 120.0
DISK_PIECE_BYTES, DISK_PIECES = 1 << 20, 512
_NUMBER = r"^penstock_%s(?:\{[^}]*\})? ([0-9.e+-]+)$"
_SCANNED = re.compile(_NUMBER % "recovered_bytes", re.MULTILINE)
_RECOVERY_S = re.compile(_NUMBER % "recovery_seconds", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Start:
    """The time from the start of the process to its ready line, and the recovery metrics of the node."""

    seconds: float
    scanned_bytes: int = 0
    recovery_s: float = 0.0

    @property
    def bytes_per_s(self) -> float:
        """Returns the rate of the recovery alone, without the start of Python."""
        return self.scanned_bytes / max(1e-3, self.recovery_s)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The three starts, and whether all records were present after each."""

    stored_bytes: int
    empty: Start
    killed: Start
    without_points: Start
    disk_bytes_per_s: float
    mismatch: str = ""


def measure_recovery(
    directory: Path, size_bytes: int, generators: Generators, show_status: Callable[[str], None]
) -> Recovery:
    """Fills a separate node below the directory, kills it and starts it, twice. Raises ServerFailed."""
    workdir = directory / "recovery"
    workdir.mkdir()
    show_status("recovery: filling a node")
    empty, stored = _fill(workdir, size_bytes, generators)
    show_status("recovery: after kill -9")
    killed, first_end = _restart(workdir)
    (workdir / "penstock-data" / "recovery-points").unlink(missing_ok=True)  # a node that has run for a second has them
    show_status("recovery: the disk alone")
    disk_bytes_per_s = _write_rate(workdir / "disk")
    show_status("recovery: without recovery points")
    without_points, second_end = _restart(workdir)
    expected = stored * RECORDS
    mismatch = ""
    if (first_end, second_end) != (expected, expected):
        mismatch = f"recovery: {expected} records were acknowledged, {first_end} and {second_end} were there"
    return Recovery(stored * RECORDS * RECORD_BYTES, empty, killed, without_points, disk_bytes_per_s, mismatch)


def _fill(workdir: Path, size_bytes: int, generators: Generators) -> tuple[Start, int]:
    body = batch_body(json_values(RECORDS, RECORD_BYTES), time.time_ns() // 1_000_000)
    file = workdir / "batch.body"
    file.write_bytes(body.data)
    began = time.perf_counter()
    with servers.penstock(workdir) as node:
        empty = Start(time.perf_counter() - began)
        AdminClient(node.url).create_topic(TOPIC, TOPIC_CONFIG, PARTITIONS)
        load = Load(
            url=node.url,
            targets=(f"/v1/topics/{TOPIC}/records?acks=1",),
            requests=max(1, size_bytes // len(body.data)),
            connections=4,
            streams=2,
            body_file=file,
            headers=(("content-type", body.media_type),),
        )
        outcome = generators.run_closed(load, FILL_TIMEOUT_S)
        _kill(node)
    return empty, outcome.good


def _restart(workdir: Path) -> tuple[Start, int]:
    began = time.perf_counter()
    with servers.penstock(workdir) as node:
        seconds = time.perf_counter() - began
        control = AdminClient(node.url)
        _, metrics = control.request("GET", "/metrics")
        _, described = control.request("GET", f"/v1/topics/{TOPIC}")
        _kill(node)
    scanned, recovery_s = (
        sum(float(value) for value in pattern.findall(metrics.decode())) for pattern in (_SCANNED, _RECOVERY_S)
    )
    end = sum(partition["log_end"] for partition in json.loads(described)["partitions"])
    return Start(seconds, round(scanned), recovery_s), end


def _write_rate(file: Path) -> float:
    """Returns the write rate of the disk in bytes a second: a new file in one stream, with its fdatasync."""
    piece = os.urandom(DISK_PIECE_BYTES)
    with file.open("wb", buffering=0) as out:
        began = time.perf_counter()
        for _ in range(DISK_PIECES):
            out.write(piece)
        os.fdatasync(out.fileno())
        seconds = time.perf_counter() - began
    file.unlink()
    return DISK_PIECE_BYTES * DISK_PIECES / seconds


def _kill(node: servers.Server) -> None:
    node.process.kill()
    node.process.wait()


def recovery_lines(recovery: Recovery) -> list[str]:
    """Returns the lines of the report."""
    killed, lost = recovery.killed, recovery.without_points
    after_kill = (
        f"Recovery of {recovery.stored_bytes / 1e9:.1f} GB after kill -9: ready in {killed.seconds:.2f} s, "
        f"{killed.scanned_bytes / 1e6:,.0f} MB scanned at {killed.bytes_per_s / 1e9:.1f} GB/s; an empty node takes "
        f"{recovery.empty.seconds:.2f} s."
    )
    of_disk = lost.bytes_per_s / recovery.disk_bytes_per_s
    without_points = (
        f"Without recovery points: ready in {lost.seconds:.2f} s, {lost.scanned_bytes / 1e6:,.0f} MB scanned and "
        f"written again at {lost.bytes_per_s / 1e9:.1f} GB/s, {of_disk:.0%} of the "
        f"{recovery.disk_bytes_per_s / 1e9:.1f} GB/s that the disk took from one writer."
    )
    return [after_kill, without_points]
