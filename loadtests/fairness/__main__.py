"""Measures nine clients of a fresh node, with and without a tenth; each has a token, a topic and an h2load of its own.

Rounds alternate. A machine whose generators and node share cores shows in all latencies: compare ratios, and the
smallest p99 rather than its median. The exit status is 1 if the smallest ratio of p99 is above --most.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from loadtests.generators import h2load
from loadtests.generators.load import GeneratorFailed, Load
from loadtests.generators.percentiles import median, percentile
from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import penstock

CLIENTS = 10
WARM_S = 1  # of the tenth, before the nine begin
TOKEN_S = 60.0


class Scenario(NamedTuple):
    """Connections of each of the nine and of the tenth. `rate_per_s`: of each of the nine; None: as fast as it can."""

    connections: int
    greedy_connections: int
    rate_per_s: int | None = None


SCENARIOS = {
    "one": Scenario(1, 100),
    "few": Scenario(4, 400),
    "many": Scenario(10, 1000),
    "paced": Scenario(1, 1000, 100),
}


class Latencies(NamedTuple):
    """Percentiles of the nine in a round, in microseconds."""

    p50: float
    p99: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fairness", description=__doc__)
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="this scenario (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of a round")
    parser.add_argument("--most", type=float, default=1.2, help="the ratio that the smallest p99 may have")
    options = parser.parse_args(arguments)
    if not h2load.is_installed():
        sys.exit(h2load.HOW_TO_GET)
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="fairness-") as name:
        directory = Path(name)
        tokens = _make_tokens(directory)
        with penstock(directory, "--tokens-file", str(directory / "tokens.toml")) as server:
            clients = _make_clients(directory, server.url, tokens)
            for scenario in options.only or SCENARIOS:
                worst = max(worst, _compare(scenario, clients, directory, options.rounds, options.seconds))
            server.check_alive()
    return int(worst > options.most)


def _make_tokens(directory: Path) -> list[str]:
    tokens = []
    environment = os.environ | {"PENSTOCK_TOKENS_FILE": str(directory / "tokens.toml")}
    for number in range(CLIENTS):
        prefix = f"client{number}."
        command = [sys.executable, "-m", "penstock.cli.main", "token", "create", f"client{number}"]
        command += ["--read", prefix, "--write", prefix, "--admin", prefix]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TOKEN_S, check=True)
        tokens.append(made.stdout.split()[0])
    return tokens


def _make_clients(directory: Path, url: str, tokens: Sequence[str]) -> list[Load]:
    body = directory / "body"
    body.write_bytes(b"x" * 100)
    clients = []
    for number, token in enumerate(tokens):
        authorization = f"Bearer {token}"
        topic = f"client{number}.t"
        AdminClient(url).request("PUT", f"/v1/topics/{topic}", b"{}", Authorization=authorization)
        headers = (("Authorization", authorization), ("Content-Type", "application/octet-stream"))
        target = f"/v1/topics/{topic}/records?acks=1"
        clients.append(Load(url, (target,), 0, 1, 1, body, headers, is_http1=True))
    return clients


def _compare(name: str, clients: Sequence[Load], directory: Path, rounds: int, seconds: int) -> float:
    """Prints each round, and returns the smallest p99 with the tenth client by the smallest without it."""
    without: list[Latencies] = []
    beside: list[Latencies] = []
    for number in range(rounds):
        for has_greedy in (False, True) if number % 2 == 0 else (True, False):
            measured = _measure(SCENARIOS[name], clients, directory, seconds, has_greedy=has_greedy)
            (beside if has_greedy else without).append(measured)
        before, after = without[-1], beside[-1]
        print(
            f"{name}: p50 {before.p50:.0f} -> {after.p50:.0f}, p99 {before.p99:.0f} -> {after.p99:.0f} µs", flush=True
        )
    p50 = median([with_it.p50 / alone.p50 for alone, with_it in zip(without, beside, strict=True)])
    ratio = min(one.p99 for one in beside) / min(one.p99 for one in without)
    print(f"{name}: p50 {p50:.2f} (median of the ratios), p99 {ratio:.2f} (smallest by smallest)", flush=True)
    return ratio


def _measure(
    scenario: Scenario, clients: Sequence[Load], directory: Path, seconds: int, *, has_greedy: bool
) -> Latencies:
    with contextlib.ExitStack() as stack:
        if has_greedy:
            greedy = replace(clients[-1], connections=scenario.greedy_connections)
            _begin(stack, greedy, WARM_S + seconds + WARM_S, directory / "greedy", None)
            time.sleep(WARM_S)
        logs = [directory / f"client{number}" for number in range(CLIENTS - 1)]
        running = [
            _begin(stack, replace(client, connections=scenario.connections), seconds, log, scenario.rate_per_s)
            for client, log in zip(clients, logs, strict=False)
        ]
        for process in running:
            process.wait(seconds + TOKEN_S)
    durations_us = sorted(one for log in logs for one in h2load.parse_log((log / "requests.tsv").read_text()))
    p50, p99 = percentile(durations_us, 50), percentile(durations_us, 99)
    if p50 is None or p99 is None:
        raise GeneratorFailed(f"{len(durations_us)} requests were answered in a round: too few for a p99")
    return Latencies(p50, p99)


def _begin(
    stack: contextlib.ExitStack, load: Load, seconds: int, directory: Path, rate_per_s: int | None
) -> subprocess.Popen[bytes]:
    directory.mkdir(exist_ok=True)
    (directory / "requests.tsv").unlink(missing_ok=True)
    process = h2load.begin(load, seconds, directory / "requests.tsv", rate_per_s)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


if __name__ == "__main__":
    sys.exit(main())
