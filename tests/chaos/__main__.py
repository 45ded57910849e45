"""`make chaos`: injects faults into a real cluster in network namespaces of this machine, under load, and prints
verdicts.

One cluster serves all runs of a fault, one after the other, or all faults that need no disks of their own. Exits with 1
if there is any finding.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable
from itertools import groupby, product
from pathlib import Path

import click

from tests.chaos.faults import FAULTS, Fault
from tests.chaos.judge import Verdict
from tests.chaos.machines.cluster import SESSION_TIMEOUT_MS, running_cluster
from tests.chaos.machines.hosts import ROOT
from tests.chaos.machines.namespaces import why_not
from tests.chaos.results import commit, line, record, table, write_page
from tests.chaos.run import run
from tests.replication.zookeeper_process import WHY_NOT, is_installed

EXIT_FOUND, EXIT_CANNOT = 1, 3
OUTPUT = ROOT / "chaos-output"


@click.command()
@click.option("--faults", default=",".join(FAULTS), help="Which, with commas between.  [default: all]")
@click.option("--runs", default=1, show_default=True, help="Runs of each fault.")
@click.option("--seconds-each", default=60.0, show_default=True, help="How long a run goes on injecting.")
@click.option("--session-timeout-ms", default=SESSION_TIMEOUT_MS, show_default=True, help="The nodes' setting.")
@click.option("--seed", default=1, show_default=True, help="Seed of the first run; each later run adds 1.")
@click.option("--one-cluster", "is_one_cluster", is_flag=True, help="For all faults, to save the starts.")
@click.option("--no-groups", "has_no_groups", is_flag=True, help="Without members and callers of groups.")
@click.option("--record", "is_recorded", is_flag=True, help="Write docs/internals/reliability.json and .md.")
@click.option("--source", type=click.Path(path_type=Path), default=ROOT, help="Source of the nodes.  [default: this]")
@click.option("--output", type=click.Path(path_type=Path), default=OUTPUT, help="Histories and logs of bad runs.")
def main(
    faults: str,
    runs: int,
    seconds_each: float,
    session_timeout_ms: int,
    seed: int,
    is_one_cluster: bool,
    has_no_groups: bool,
    is_recorded: bool,
    source: Path,
    output: Path,
) -> None:
    """Break a real cluster under load and judge the result."""
    if reason := cannot():
        click.echo(f"chaos: {reason}", err=True)
        sys.exit(EXIT_CANNOT)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(EXIT_CANNOT))
    if unknown := set(faults.split(",")) - FAULTS.keys():
        raise click.BadParameter(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    verdicts: list[Verdict] = []
    for together in _together(faults.split(","), is_one_cluster=is_one_cluster):
        with running_cluster(
            source=source,
            session_timeout_ms=session_timeout_ms,
            has_small_disks=together[0].has_small_disks,
            has_clocks=together[0].has_clocks,
        ) as cluster:
            for fault, number in product(together, range(seed, seed + runs)):
                evidence = output / f"{fault.name}-{number}"
                one_run = run(
                    cluster, fault, number, seconds_each, commit(source), evidence, has_groups=not has_no_groups
                )
                verdict = asyncio.run(one_run)
                _print_verdict(verdict, evidence)
                verdicts.append(verdict)
                if is_recorded:
                    record(verdict)
                    write_page()
    click.echo(f"\n{table(verdicts)}")
    sys.exit(EXIT_FOUND if any(verdict.findings for verdict in verdicts) else 0)


def _together(names: list[str], *, is_one_cluster: bool) -> list[list[Fault]]:
    """Return the faults of each cluster."""
    possible: list[Fault] = []
    for fault in map(FAULTS.__getitem__, names):
        if reason := fault.why_not():
            click.echo(f"{fault.name:20} left out: {reason}")
        else:
            possible.append(fault)
    if not is_one_cluster:
        return [[fault] for fault in possible]
    return [list(those) for _, those in groupby(possible, key=lambda fault: (fault.has_small_disks, fault.has_clocks))]


def cannot() -> str | None:
    return why_not() or (None if is_installed() else WHY_NOT)


def _print_verdict(verdict: Verdict, evidence: Path) -> None:
    click.echo(line(verdict))
    click.echo(f"{'':20} {_shown(verdict.codes.items())}")
    for finding in verdict.findings[:10]:
        click.echo(f"{'':20} {finding}")
    if verdict.findings:
        click.echo(f"{'':20} history and logs: {evidence}")


def _shown(codes: Iterable[tuple[str, int]]) -> str:
    return "; ".join(f"{code} x{count}" for code, count in list(codes)[:12]) or "no client got an error"


if __name__ == "__main__":
    main()
