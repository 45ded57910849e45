"""Closed loops by h2load, nghttp2's generator in C: HTTP/2 with prior knowledge, one thread.

Only this file knows its options and its output. It sends a number of requests, never for a duration: at the end of a
duration it drops requests in flight, and the number of stored records would be unknown.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from loadtests.generators.load import GeneratorFailed, Load, Outcome, ended_children_cpu_s

HOW_TO_GET = "h2load is not installed: `apt-get install nghttp2-client` (Debian, Ubuntu) gives it"
WINDOW_BITS = "30"  # stream windows must not limit the rate

_FINISHED = re.compile(r"^finished in ([\d.]+)(us|ms|s|m|h)?,", re.MULTILINE)
_REQUESTS = re.compile(r"^requests: (\d+) total,", re.MULTILINE)
_STATUSES = re.compile(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", re.MULTILINE)
_DATA = re.compile(r"^traffic: .*\((\d+)\) data", re.MULTILINE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class Printed(NamedTuple):
    """The totals that h2load prints."""

    seconds: float
    total: int
    good: int
    answer_bytes: int
    statuses: str


def is_installed() -> bool:
    return shutil.which("h2load") is not None


def run(load: Load, timeout_s: float) -> Outcome:
    """Runs one closed loop. Raises GeneratorFailed."""
    with tempfile.TemporaryDirectory(prefix="h2load-") as directory:
        log = Path(directory, "requests.tsv")
        command = [*_command(load, Path(directory)), "-n", str(load.requests), f"--log-file={log}"]
        cpu_before = ended_children_cpu_s()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise GeneratorFailed(f"{load.requests} requests were not answered within {timeout_s:.0f} s") from None
        if done.returncode != 0:
            raise GeneratorFailed(f"h2load ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
        printed = parse_printed(done.stdout)
        durations_us = parse_log(log.read_text())
        return Outcome(
            good=printed.good,
            bad=printed.total - printed.good,
            seconds=printed.seconds,
            durations_us=durations_us,
            answer_bytes=printed.answer_bytes,
            generator_cpu_s=ended_children_cpu_s() - cpu_before,
            what_went_wrong="" if printed.good == printed.total else printed.statuses,
        )


def begin(load: Load, seconds: int, log: Path, rate_per_s: int | None = None) -> subprocess.Popen[bytes]:
    """Begins a loop that ends after some seconds, whose requests in flight are dropped then; `log` is for `parse_log`.

    `rate_per_s`: of each connection, at most.
    """
    command = [*_command(load, log.parent), "-D", str(seconds), f"--log-file={log}"]
    command += [] if rate_per_s is None else ["--rps", str(rate_per_s)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _command(load: Load, directory: Path) -> list[str]:
    uris = directory / "uris"
    uris.write_text("".join(f"{load.url}{target}\n" for target in load.targets))
    command = ["h2load", "-c", str(load.connections), "-m", str(load.streams), "-t", "1"]
    command += ["-w", WINDOW_BITS, "-W", WINDOW_BITS, "-i", str(uris)]
    command += [part for name, value in load.headers for part in ("-H", f"{name}: {value}")]
    command += [] if load.body_file is None else ["-d", str(load.body_file)]
    return [*command, "--h1"] if load.is_http1 else command


def parse_printed(text: str) -> Printed:
    """Parses the summary on standard output. Raises GeneratorFailed for an unknown form."""
    finished, requests = _FINISHED.search(text), _REQUESTS.search(text)
    statuses, data = _STATUSES.search(text), _DATA.search(text)
    if finished is None or requests is None or statuses is None or data is None:
        raise GeneratorFailed(f"h2load printed something unknown: {text[-500:]}")
    seconds = float(finished[1]) * _SECONDS[finished[2]]
    return Printed(seconds, int(requests[1]), int(statuses[1]), int(data[1]), statuses[0])


def parse_log(text: str) -> list[int]:
    """Returns the durations of 2xx in --log-file (start in us since 1970, status, duration in us, tab-separated)."""
    durations_us = []
    for line in text.splitlines():
        _, status, duration_us = line.split("\t")[:3]
        if status.startswith("2") and len(status) == 3:
            durations_us.append(int(duration_us))
    return durations_us
