"""`make bench-cluster`: measures three nodes and ZooKeeper on this machine. The composition root.

Exits with 1 if a target is missed and with 2 if something could not be measured. docs/internals/bench.md explains it.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from loadtests.cluster.nodes import NodeFailed
from loadtests.cluster.zookeeper import ZookeeperFailed, require_zookeeper
from loadtests.cluster_bench import leadership, many_partitions
from loadtests.cluster_bench.bench_cluster import BenchCluster, ClusterTimeout, running
from loadtests.cluster_bench.rates import Rates, wait_for_disk
from loadtests.cluster_bench.result import Result, as_json, as_markdown, mark
from loadtests.generators import h2load
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed
from loadtests.host import servers
from loadtests.host.machine import inspect_machine

EXIT_MISSED, EXIT_FAILED = 1, 2
PARTS = ("rates", "catch-up", "failover", "move", "many")


@click.command()
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Only these parts.  [default: all]")
@click.option("--shards", type=click.IntRange(1, 16), default=1, show_default=True, help="Processes of each node.")
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds of each rate.")
@click.option("--round-s", type=click.FloatRange(0.1, 600), default=2.0, show_default=True, help="Seconds of a round.")
@click.option("--times", type=click.IntRange(1, 100), default=5, show_default=True, help="Failovers and moves.")
@click.option("--partitions", type=click.IntRange(100, 30_000), default=3000, show_default=True)
@click.option("--session-timeout-ms", type=click.IntRange(1000, 60_000), default=6000, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all measurements to a file.")
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path), help="Write the table to a file.")
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="Directory for temporary data.")
def main(
    only: tuple[str, ...],
    shards: int,
    rounds: int,
    round_s: float,
    times: int,
    partitions: int,
    session_timeout_ms: int,
    json_file: Path | None,
    markdown_file: Path | None,
    directory: Path | None,
) -> None:
    """Measure three nodes of a cluster on this machine beside a single node."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_FAILED))  # so that the nodes are stopped too
    console = Console()
    generators = Generators(use_h2load=h2load.is_installed())
    results: list[Result] = []
    facts = [f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {shards} shard(s) a node, generator on the same machine"]
    failed = ""
    try:
        require_zookeeper()
        with tempfile.TemporaryDirectory(prefix="penstock cluster bench ", dir=directory) as workdir:
            machine = inspect_machine(Path(workdir))
            facts.append(
                f"{machine.cores} cores, {machine.cpu}, {machine.file_system}; fdatasync {machine.flush_p50_ms:.2f} ms"
            )
            with (
                console.status("starting") as status,
                running(Path(workdir, "cluster"), shards=shards, session_timeout_ms=session_timeout_ms) as cluster,
            ):
                for part in only or PARTS:
                    measured = _part(part, cluster, Path(workdir), generators, status.update)(
                        rounds, round_s, times, partitions, session_timeout_ms
                    )
                    results += measured
    except (ZookeeperFailed, NodeFailed, GeneratorFailed, ClusterTimeout, servers.ServerFailed, TimeoutError) as error:
        failed = f"{type(error).__name__}: {error}"
    finally:
        generators.close()
    _show(console, results, facts)
    for path, write in ((json_file, as_json), (markdown_file, as_markdown)):
        if path is not None:
            path.write_text(write(results, facts))
    if failed:
        console.print(f"bench-cluster: {failed}", style="red", markup=False)
        sys.exit(EXIT_FAILED)
    sys.exit(EXIT_MISSED if any(result.is_met is False for result in results) else 0)


Measure = Callable[[int, float, int, int, int], list[Result]]


def _part(
    part: str, cluster: BenchCluster, workdir: Path, generators: Generators, show_status: Callable[[str], None]
) -> Measure:
    def rates(rounds: int, round_s: float, *_: int) -> list[Result]:
        results = []
        with servers.penstock(workdir) as single:
            for group, connections in (("batch-1mib", 4), ("single", 16)):
                rate = Rates(cluster, single, generators, group, connections)
                compared, per_s = rate.compare(rounds, round_s, show_status)
                wait_for_disk()
                results += [*compared, rate.at_half_load(per_s, 2 * round_s, show_status)]
        return results

    parts: dict[str, Measure] = {
        "rates": rates,
        "catch-up": lambda *_: [leadership.catch_up(cluster, generators, show_status)],
        "failover": lambda _, __, times, ___, timeout_ms: [
            leadership.failover(cluster, times, timeout_ms, show_status)
        ],
        "move": lambda _, __, times, *___: [leadership.move(cluster, times, show_status)],
        "many": lambda _, __, ___, partitions, timeout_ms: many_partitions.many(
            cluster, partitions, timeout_ms, show_status
        ),
    }
    return parts[part]


def _show(console: Console, results: list[Result], facts: list[str]) -> None:
    for fact in facts:
        console.print(fact, style="dim")
    table = Table("what", "target", "measured", "more", pad_edge=False, show_edge=False)
    for result in results:
        style = {True: "green", False: "red", None: ""}[result.is_met]
        figure = f"[{style}]{result.figure}[/]" if style else result.figure
        table.add_row(result.what, result.target, figure, (mark(result) and "") or result.more)
    console.print(table)


if __name__ == "__main__":
    main()
