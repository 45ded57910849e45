"""`python -m loadtests.bench.__main__`: measures a fresh node beside a bare function, and checks what was stored.

The composition root: starts both servers on free loopback ports with temporary data, runs the plan, prints one table,
removes everything. Exits with 1 if the log does not hold exactly what was acknowledged. See docs/internals/bench.md.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from loadtests.bench.cases import PLANS, Group, Plan, groups_of
from loadtests.bench.figures import Row, row_of
from loadtests.bench.open_rounds import Deliveries, prove
from loadtests.bench.profiler import HOW_TO_GET, Profiler, py_spy
from loadtests.bench.recovery import measure_recovery, recovery_lines
from loadtests.bench.report import Report, print_report, to_json, to_markdown
from loadtests.bench.rounds import RoundHook, Rounds, no_hook
from loadtests.bench.shards import run_shards
from loadtests.generators import h2load
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed
from loadtests.generators.percentiles import median
from loadtests.host import servers
from loadtests.host.machine import inspect_machine, source_version
from loadtests.host.pinning import pin_processes

EXIT_WRONG, EXIT_FAILED = 1, 2
DELIVERY, RECOVERY = "delivery", "recovery"
HALF_OF = "single-acks-1"


@click.command()
@click.option("--quick", "plan_name", flag_value="quick", help="At most a minute: shows differences of a factor.")
@click.option("--default", "plan_name", flag_value="default", default=True, hidden=True)
@click.option(
    "--full", "plan_name", flag_value="full", help="Longer rounds and more cases: shows differences of a tenth."
)
@click.option(
    "--only", default="", help="Measure groups whose key contains this text: single, json, batch, fetch, delivery …"
)
@click.option("--rounds", type=click.IntRange(1, 100), default=None, help="Rounds of each case.")
@click.option("--round-s", type=click.FloatRange(0.01, 600), default=None, help="Seconds of a round of a case.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all measurements to a file.")
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path), help="Write the table to a file.")
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="Directory for temporary data.")
@click.option(
    "--profile",
    "profile_to",
    type=click.Path(path_type=Path),
    help="Sample the node and write stacks to this directory.",
)
@click.option("--no-h2load", is_flag=True, help="Use the built-in HTTP/1.1 generator instead of h2load.")
@click.option("--shards", type=click.IntRange(2, 64), help="Measure a node of this many shards beside one process.")
@click.option("--pin", "pins", is_flag=True, help="Give the generator and each server process cores of their own.")
def main(
    plan_name: str,
    only: str,
    rounds: int | None,
    round_s: float | None,
    json_file: Path | None,
    markdown_file: Path | None,
    directory: Path | None,
    profile_to: Path | None,
    no_h2load: bool,
    shards: int | None,
    pins: bool,
) -> None:
    """Measure a fresh node beside a bare Granian function in the same run.

    Raises UsageError without py-spy if --profile is given.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_FAILED))  # so that the servers are stopped too
    console = Console()
    if not no_h2load and not h2load.is_installed():
        console.print(f"{h2load.HOW_TO_GET}; a slower built-in generator is used", style="yellow")
    if profile_to is not None and py_spy() is None:
        raise click.UsageError(HOW_TO_GET)
    plan = _plan(plan_name, rounds, round_s)
    round_hook = no_hook if profile_to is None else Profiler(profile_to, console).round_hook
    generators = Generators(use_h2load=not no_h2load and h2load.is_installed())
    try:
        with _temporary_directory(directory) as data, console.status("starting") as status:
            if shards is not None:
                measured = run_shards(plan, only, Path(data), shards, pins, generators, status.update)
            else:
                report = run(plan, only, Path(data), generators, status.update, round_hook, pins=pins)
    except (servers.ServerFailed, GeneratorFailed) as error:
        console.print(f"bench: {error}", style="red", markup=False)
        sys.exit(EXIT_FAILED)
    finally:
        generators.close()
    if shards is not None:
        text = "\n".join(measured.lines) + "\n"
        console.print(text, markup=False, soft_wrap=True)
        if markdown_file is not None:
            markdown_file.write_text(text)
        sys.exit(0 if measured.is_correct else EXIT_WRONG)
    print_report(report, console)
    for path, write in ((json_file, to_json), (markdown_file, to_markdown)):
        if path is not None:
            path.write_text(write(report))
    sys.exit(0 if report.is_correct else EXIT_WRONG)


def run(
    plan: Plan,
    only: str,
    directory: Path,
    generators: Generators,
    show_status: Callable[[str], None],
    round_hook: RoundHook,
    *,
    pins: bool = False,
) -> Report:
    """Runs the plan with both servers. Raises ServerFailed, GeneratorFailed."""
    started, deadline = time.monotonic(), time.monotonic() + plan.deadline_s
    now = datetime.now(UTC)
    machine = inspect_machine(directory)
    groups = groups_of(plan, only)
    recovery = None
    if plan.recovery_bytes and only in RECOVERY:
        recovery = measure_recovery(directory, plan.recovery_bytes, generators, show_status)
    with ExitStack() as stack:
        nodes = {
            delay_ms: stack.enter_context(servers.penstock(directory, flush_delay_ms=delay_ms))
            for delay_ms in sorted({0, *(cell.flush_delay_ms for group in groups for cell in group.cells)})
        }
        bare = stack.enter_context(servers.bare_append(directory))
        delivery_rows: list[Row] = []
        proofs: list[str] = []
        if pins:
            proofs.append(
                stack.enter_context(pin_processes([bare.pid, *(node.pid for node in nodes.values())], servers_max=1))
            )
        deliveries = Deliveries(plan, nodes[0], generators)
        if only in DELIVERY:
            show_status("proving the open-loop generator")
            proofs.append(prove(plan.delivery_rate, bare, generators))
            delivery_rows += deliveries.run(plan.delivery_rate, show_status)
        rounds = Rounds(plan, directory, nodes, bare, generators, round_hook)
        rounds.run(groups, deadline, show_status)
        if not only and (half := _half_of_full_load(rounds)) > plan.delivery_rate:
            proofs.append(prove(half, bare, generators))
            delivery_rows += deliveries.run(half, show_status, "-half")
    return Report(
        plan=plan.name,
        started=f"{now:%Y-%m-%d %H:%M} UTC",
        version=source_version(),
        machine=machine,
        generator=generators.closed_loop_name,
        rows=(*_rows(groups, rounds), *delivery_rows),
        proofs=tuple(proofs),
        recovery=tuple(recovery_lines(recovery) if recovery else ()),
        checked=rounds.checked + deliveries.checked,
        mismatches=(
            *rounds.mismatches,
            *deliveries.mismatches,
            *([recovery.mismatch] if recovery and recovery.mismatch else ()),
        ),
        took_s=time.monotonic() - started,
    )


def _half_of_full_load(rounds: Rounds) -> float:
    """Returns half of the rate of single records that a closed loop reached, rounded to hundreds; 0 if none was
    measured.
    """
    measured = rounds.measured.get(HALF_OF, [])
    return round(median([sample.requests_per_s for sample in measured]) / 2, -2) if measured else 0.0


def _temporary_directory(directory: Path | None) -> tempfile.TemporaryDirectory[str]:
    # the space in the name shows quoting errors
    return tempfile.TemporaryDirectory(prefix="penstock bench ", dir=directory)


def _plan(name: str, rounds: int | None, round_s: float | None) -> Plan:
    plan = PLANS[name]
    if rounds is not None:
        plan = dataclasses.replace(plan, rounds=rounds)
    return plan if round_s is None else dataclasses.replace(plan, round_s=round_s, delivery_s=round_s)


def _rows(groups: list[Group], rounds: Rounds) -> list[Row]:
    rows = []
    for group in groups:
        bare = next(rounds.measured[cell.key] for cell in group.cells if cell.peer == "bare")
        for cell in group.cells:
            rows.append(
                row_of(
                    cell.key, group.title, cell.peer, cell.acks, rounds.measured[cell.key], bare, cell.flush_delay_ms
                )
            )
    return rows


if __name__ == "__main__":
    main()
