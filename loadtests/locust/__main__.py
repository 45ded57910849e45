"""`make loadtest`: starts a node, lets locust run a scenario against it headless, and prints one screen.

The composition root: the node is a fresh `penstock serve` on a free loopback port with temporary data. The HTML report
and the CSV files stay in the output directory. Exits with 1 if a request failed. See docs/internals/bench.md.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from loadtests.generators import h2load
from loadtests.generators.bodies import RAW_TYPE, json_values
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed, Load, ended_children_cpu_s
from loadtests.host import servers
from loadtests.host.admin_client import AdminClient
from loadtests.locust.node_samples import NodeSamples
from loadtests.locust.screen import TOTAL, GeneratorCost, LoadReport, render, rows_of

EXIT_FAILURES, EXIT_FAILED = 1, 2
ROOT = Path(__file__).parents[2]
LOCUSTFILES = ("loadtests.locust.hot_paths", "loadtests.locust.shapes")
SPARE_S = 60.0  # for locust's start and end
H2LOAD_REQUESTS = 10_000
H2LOAD_TOPIC = "h2load"


@dataclass(frozen=True, slots=True)
class Scenario:
    """User classes, or all of hot_paths.py if there are none, and the shape of their number."""

    shape: str
    users: tuple[str, ...] = ()


PRODUCERS = ("KeyedJson", "UnkeyedJson", "Ndjson", "Raw", "StoredBatch")
SCENARIOS = {
    "mixed": Scenario("soak"),
    "ramp": Scenario("ramp", PRODUCERS),
    "spike": Scenario("spike", PRODUCERS),
    "soak": Scenario("soak", (*PRODUCERS, "JsonPoll", "NdjsonPoll", "EventStream")),
    "slow-consumers": Scenario("soak", ("Ndjson", "StoredBatch", "SlowReader", "EventStream")),
    "herd": Scenario("herd", ("Raw", "JsonPoll", "EventStream", "Reconnecting")),
}


@click.command()
@click.option("--scenario", type=click.Choice(list(SCENARIOS)), default="mixed", help="Which users, and their shape.")
@click.option("--users", type=click.IntRange(1, 10_000), default=22, help="The most users at a time.")
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=30.0, help="Seconds of the scenario.")
@click.option("--shards", type=click.IntRange(1, 64), default=1, help="Shards of the node.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("bench-output/loadtest"), help="Report and CSV."
)
def main(scenario: str, users: int, seconds: float, shards: int, output: Path) -> None:
    """Run locust against a fresh node and print one screen."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_FAILED))  # so that the node is stopped too
    console = Console()
    output.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-loadtest-") as directory, console.status("running"):
            report = run(scenario, users, seconds, shards, Path(directory), output)
    except (servers.ServerFailed, GeneratorFailed) as error:
        console.print(f"loadtest: {error}", style="red", markup=False)
        sys.exit(EXIT_FAILED)
    console.print(render(report))
    sys.exit(EXIT_FAILURES if report.failures else 0)


def run(scenario: str, users: int, seconds: float, shards: int, directory: Path, output: Path) -> LoadReport:
    """Raises ServerFailed, GeneratorFailed."""
    flags = ("--shards", str(shards)) if shards > 1 else ()
    with servers.penstock(directory, *flags) as node:
        samples = NodeSamples(node.pid, node.url)
        samples.start()
        cpu_before, started = ended_children_cpu_s(), time.monotonic()
        _locust(SCENARIOS[scenario], users, seconds, node.url, output)
        elapsed, cpu_s = time.monotonic() - started, ended_children_cpu_s() - cpu_before
        usage = samples.stop()
        node.check_alive()
        rows = rows_of((output / f"{_STEM}_stats.csv").read_text())
        costs = [_cost_of_locust(rows, elapsed, cpu_s), *_cost_of_h2load(node.url, directory)]
    return LoadReport(
        title=f"Scenario {scenario}: {users} users, {seconds:g} s, {shards} shard{'s' if shards > 1 else ''}",
        rows=rows,
        node=usage,
        costs=tuple(costs),
        files=(str(output / f"{_STEM}.html"), str(output / f"{_STEM}_stats.csv")),
    )


_STEM = "load"


def _locust(scenario: Scenario, users: int, seconds: float, url: str, output: Path) -> None:
    """Raises GeneratorFailed if locust did not run; failed requests are in its statistics."""
    files = ",".join(str(ROOT / f"{name.replace('.', '/')}.py") for name in LOCUSTFILES)
    command = [sys.executable, "-m", "locust", "-f", files, "--headless", "--only-summary", "--host", url]
    command += ["--shape", scenario.shape, "--shape-users", str(users), "--shape-s", str(seconds)]
    command += ["--csv", str(output / _STEM), "--html", str(output / f"{_STEM}.html"), *scenario.users]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + SPARE_S, check=False)
    except subprocess.TimeoutExpired:
        raise GeneratorFailed(f"locust was not over {SPARE_S:.0f} s after the scenario") from None
    if done.returncode not in (0, 1):
        raise GeneratorFailed(f"locust ended with {done.returncode}: {done.stderr[-1000:]}")


def _cost_of_locust(rows: tuple[dict[str, str], ...], seconds: float, cpu_s: float) -> GeneratorCost:
    requests = next(int(row["Request Count"]) for row in rows if row["Name"] == TOTAL)
    return GeneratorCost("locust, this mix", requests / seconds, cpu_s * 1e6 / max(1, requests))


def _cost_of_h2load(url: str, directory: Path) -> list[GeneratorCost]:
    """Returns what h2load reaches with single records at the same node; nothing if it is not installed."""
    if not h2load.is_installed():
        return []
    AdminClient(url).create_topic(H2LOAD_TOPIC, {})
    body = directory / "single.body"
    body.write_bytes(json_values(1)[0])
    target = f"/v1/topics/{H2LOAD_TOPIC}/records?acks=1"
    load = Load(url, (target,), H2LOAD_REQUESTS, 4, 16, body, (("content-type", RAW_TYPE),))
    generators = Generators(use_h2load=True)
    try:
        outcome = generators.run_closed(load, SPARE_S)
    finally:
        generators.close()
    cost = GeneratorCost(
        "h2load, single records", outcome.good / outcome.seconds, outcome.generator_cpu_s * 1e6 / max(1, outcome.good)
    )
    return [cost]


if __name__ == "__main__":
    main()
