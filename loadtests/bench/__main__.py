"""`python -m loadtests.bench`: measures Penstock beside a bare function, Kafka, NATS JetStream and Redis streams.

The composition root: finds or fetches the servers, starts all of them on free loopback ports with temporary data, runs
the rounds, prints the tables, ends what it started. Exits with 1 if a log does not hold what was acknowledged, with 2
if something could not be measured. See docs/internals/bench.md.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from loadtests.bench import report as reports
from loadtests.bench.entrants.bare import BareEntrant
from loadtests.bench.entrants.kafka import KafkaEntrant
from loadtests.bench.entrants.nats import NatsEntrant
from loadtests.bench.entrants.penstock import PenstockEntrant
from loadtests.bench.entrants.redis import RedisEntrant
from loadtests.bench.entrants.session import Entrant
from loadtests.bench.figures import rows_of
from loadtests.bench.recovery import measure_recovery, recovery_lines
from loadtests.bench.report import Report
from loadtests.bench.rounds import FAILURES, Rounds
from loadtests.bench.works import (
    BARE,
    BESIDE_PEERS,
    KAFKA,
    NATS,
    PENSTOCK,
    PLANS,
    REDIS,
    SHARDS,
    SLOW,
    TITLES,
    WORKS,
    Plan,
    cells_of,
)
from loadtests.generators import h2load
from loadtests.generators.generators import Generators
from loadtests.host import servers
from loadtests.host.machine import inspect_machine, source_version
from loadtests.peers.downloads import Programs, default_cache, find_programs, kafka_version
from loadtests.peers.kafka_server import kafka
from loadtests.peers.nats_server import nats, nats_version
from loadtests.peers.redis_server import redis, redis_version

EXIT_WRONG, EXIT_FAILED = 1, 2
WIDTH_MIN = 150


@click.command()
@click.option("--quick", "plan_name", flag_value="quick", help="About three minutes: shows differences of a factor.")
@click.option("--full", "plan_name", flag_value="full", default=True, help="Five rounds, about half an hour (default).")
@click.option("--only", default="", help="Measure these works: batch,single,read … (default: all).")
@click.option("--servers", "names", default=",".join(BESIDE_PEERS), help="Measure these servers: penstock,bare.")
@click.option("--recovery", "recovery_bytes", type=click.IntRange(1), help="Time starts after kill -9 with such a log.")
@click.option("--rounds", type=click.IntRange(1, 100), default=None, help="Rounds of each cell.")
@click.option("--round-s", type=click.FloatRange(0.05, 600), default=None, help="Seconds of a round of a cell.")
@click.option(
    "--minutes", type=click.FloatRange(0.1, 600), default=60.0, help="Begin no further round after this time."
)
@click.option("--cache", type=click.Path(path_type=Path), default=None, help="Directory of the downloaded servers.")
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="Directory for temporary data.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all measurements to a file.")
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path), help="Write the tables to a file.")
@click.option("--page", type=click.Path(path_type=Path, exists=True), help="Write the tables into a page with marks.")
def main(
    plan_name: str,
    only: str,
    names: str,
    recovery_bytes: int | None,
    rounds: int | None,
    round_s: float | None,
    minutes: float,
    cache: Path | None,
    directory: Path | None,
    json_file: Path | None,
    markdown_file: Path | None,
    page: Path | None,
) -> None:
    """Measure Penstock beside other servers by the CPU time of the servers.

    Raises UsageError for an unknown server or work.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_FAILED))  # so that the servers are stopped too
    console = Console()
    chosen = _parse_names(names, "servers", list(TITLES))
    keys = _parse_names(only, "works", [work.key for work in WORKS])
    if not h2load.is_installed():
        console.print(f"bench: {h2load.HOW_TO_GET}; Penstock cannot be measured without it", style="red")
        sys.exit(EXIT_FAILED)
    plan = _plan(plan_name, rounds, round_s)
    generators = Generators(use_h2load=True)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-peers-", dir=directory) as data, console.status("") as status:
            status.update("finding the servers; fetching them takes minutes the first time")
            programs = find_programs(cache or default_cache(), chosen)
            for line in programs.missing:
                console.print(line, style="yellow", markup=False)
            deadline = time.monotonic() + 60 * minutes
            report = run(plan, keys, chosen, programs, Path(data), generators, deadline, status.update)
            if recovery_bytes is not None:
                recovery = measure_recovery(Path(data), recovery_bytes, generators, status.update)
                problems = (*report.problems, recovery.mismatch) if recovery.mismatch else report.problems
                report = replace(report, facts=(*report.facts, *recovery_lines(recovery)), problems=problems)
    except (servers.ServerFailed, *FAILURES) as error:
        console.print(f"bench: {error}", style="red", markup=False)
        sys.exit(EXIT_FAILED)
    finally:
        generators.close()
    show(report, console)
    for path, write in ((json_file, reports.to_json), (markdown_file, reports.to_markdown)):
        if path is not None:
            path.write_text(write(report))
    if page is not None:
        page.write_text(reports.into_page(page.read_text(), report))
    sys.exit(0 if report.is_correct else EXIT_WRONG)


def run(
    plan: Plan,
    keys: list[str],
    names: list[str],
    programs: Programs,
    directory: Path,
    generators: Generators,
    deadline: float,
    show_status: Callable[[str], None],
) -> Report:
    """Starts the servers, runs the rounds, ends the servers. Raises the errors of servers and generators."""
    started, now = time.monotonic(), datetime.now(UTC)
    machine = inspect_machine(directory)
    with ExitStack() as stack:
        show_status("starting the servers")
        entrants = _entrants(stack, names, programs, plan, directory, generators)
        works = [cells_of(work, list(entrants)) for work in WORKS if work.key in keys]
        measured = Rounds(plan, entrants).run(works, deadline, show_status)
        facts = dict.fromkeys(fact for entrant in entrants.values() for fact in entrant.facts())
    return Report(
        plan=plan.name,
        started=f"{now:%Y-%m-%d %H:%M} UTC",
        machine=machine,
        facts=(*facts, *programs.missing),
        rows=tuple(rows_of([cell for cells in works for cell in cells], measured.rounds)),
        checked=measured.checked,
        problems=measured.problems,
        took_s=time.monotonic() - started,
    )


def show(report: Report, console: Console) -> None:
    """Prints the tables; a narrow terminal gets them at full width, so that no figure is cut."""
    if console.width < WIDTH_MIN:
        console = Console(width=WIDTH_MIN, file=console.file)
    console.print("\nPenstock beside other servers", style="bold cyan")
    for line in reports.head(report):
        console.print(line, style="dim", markup=False, highlight=False)
    for title, names, lines in reports.tables(report):
        table = Table(*names, title=title, box=box.SIMPLE_HEAD, title_justify="left", header_style="bold")
        for cells in lines:
            table.add_row(*cells)
        console.print(table)
    for line in reports.notes(report):
        console.print(line, style="dim", markup=False, highlight=False)
    style = "bold green" if report.is_correct else "bold red"
    for line in (reports.verdict_line(report), *report.problems):
        console.print(line, style=style, markup=False, highlight=False)


def _entrants(
    stack: ExitStack, names: list[str], programs: Programs, plan: Plan, directory: Path, generators: Generators
) -> dict[str, Entrant]:
    """Starts the servers that were asked for and are here."""
    nodes = {}
    for name in (PENSTOCK, SHARDS, *SLOW):
        if name in names:
            data = directory / name
            data.mkdir()
            flags = ("--shards", "2") if name == SHARDS else ()
            nodes[name] = stack.enter_context(servers.penstock(data, *flags, flush_delay_ms=SLOW.get(name, 0)))
    entrants: dict[str, Entrant] = {}
    if nodes:
        penstock_entrant = PenstockEntrant(nodes, source_version(), plan, generators, directory)
        entrants.update(dict.fromkeys(nodes, penstock_entrant))
    if BARE in names:
        bare = stack.enter_context(servers.bare_append(directory))
        entrants[BARE] = BareEntrant(bare, servers.bare_file(directory), generators, directory)
    if KAFKA in names and programs.kafka_jars is not None:
        broker = stack.enter_context(kafka(programs.kafka_jars, directory / KAFKA))
        entrants[KAFKA] = KafkaEntrant(broker, kafka_version(), plan, generators, directory)
    if NATS in names and programs.nats_server is not None and programs.nats_cli is not None:
        program, cli = programs.nats_server, programs.nats_cli
        unsynced = stack.enter_context(nats(program, directory / NATS, is_fsync=False))
        synced = stack.enter_context(nats(program, directory / f"{NATS}-fsync", is_fsync=True))
        entrants[NATS] = NatsEntrant(unsynced, synced, nats_version(program), cli, plan, generators, directory)
    if REDIS in names and programs.redis_server is not None:
        server = stack.enter_context(redis(programs.redis_server, directory / REDIS))
        entrants[REDIS] = RedisEntrant(server, redis_version(programs.redis_server), plan, generators)
    return entrants


def _parse_names(names: str, kind: str, available: list[str]) -> list[str]:
    """Returns the names of an option, or all that are known. Raises UsageError for others."""
    chosen = [name for name in names.split(",") if name] or available
    if unknown := sorted(set(chosen) - set(available)):
        raise click.UsageError(f"unknown {kind}: {', '.join(unknown)}; known are {', '.join(available)}")
    return chosen


def _plan(name: str, rounds: int | None, round_s: float | None) -> Plan:
    plan = PLANS[name]
    if rounds is not None:
        plan = replace(plan, rounds=rounds)
    return plan if round_s is None else replace(plan, round_s=round_s, delivery_s=round_s)


if __name__ == "__main__":
    main()
