"""`penstock doctor`: checks this machine and a running node. Prints a line per check, and remedies for failures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

import click

from penstock.cli.doctor.bundle import collect_bundle, write_bundle
from penstock.cli.doctor.kafka import check_kafka
from penstock.cli.doctor.machine import read_machine
from penstock.cli.doctor.machine_checks import FAIL, OK, WARN, Finding, check_machine
from penstock.cli.doctor.node_checks import check_node
from penstock.cli.doctor.readiness import check_local_readiness, check_readiness
from penstock.cli.doctor.sizing import Workload, check_plan, parse_workload, plan_node
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.node import Node, names_node, node_options
from penstock.cli.output import format_bytes, print_json
from penstock.errors import ConnectionFailed

PORT_MAX = 65_535


def check_address(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Returns the text if it is HOST:PORT. Raises click.BadParameter."""
    if text is not None:
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > PORT_MAX:
            raise click.BadParameter("give HOST:PORT")
    return text


def check_workload(ctx: click.Context, option: click.Parameter, text: str | None) -> Workload | None:
    """Returns the workload, or None without one. Raises click.BadParameter."""
    try:
        return None if text is None else parse_workload(text.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@click.command()
@click.option(
    "--data-dir",
    envvar="PENSTOCK_DATA_DIR",
    default="penstock-data",
    metavar="DIR",
    help="The data directory, or where it will be.  [env: PENSTOCK_DATA_DIR; default: penstock-data]",
)
@click.option(
    "--kafka",
    "kafka_address",
    metavar="HOST:PORT",
    callback=check_address,
    help="Check a listener of Kafka's protocol too, and each address that it advertises, from here.",
)
@click.option(
    "--bundle",
    "bundle_path",
    metavar="FILE",
    help="Write the findings and descriptions of the cluster into a new archive (.tar.gz) for support.",
)
@click.option("--log", "log_path", metavar="FILE", help="Add the last lines of this log of a node to the bundle.")
@click.option(
    "--plan",
    "workload",
    metavar="WORKLOAD",
    callback=check_workload,
    help="Compute what a workload needs, beside what this machine has: "
    "records_per_s=5000,record_bytes=300,retention=7d, and request_records, readers, reads (json or batch), "
    "times_smaller, partitions, replicas, nodes.",
)
@click.option("--ready", "is_health_check", is_flag=True, help="Only check that the node is ready.")
@node_options
@click.pass_context
def doctor(
    ctx: click.Context,
    data_dir: str,
    kafka_address: str | None,
    bundle_path: str | None,
    log_path: str | None,
    workload: Workload | None,
    is_health_check: bool,
    node: Node,
    as_json: bool,
) -> None:
    """Check this machine, and a running node.

    Writes a little to the data directory's disk to measure it, and leaves nothing there. Ends with 1 if a point failed.
    If --url, PENSTOCK_URL or a context names a node, it checks that running node too. Without such a name --ready and
    --bundle ask the node of this machine. --bundle has no records and no secrets.

    \f
    Raises Failure if the node is not ready, or the bundle cannot be written; UsageError for --log alone.
    """
    if log_path and not bundle_path:
        raise click.UsageError("--log needs --bundle", ctx)
    is_named = names_node(ctx) or bundle_path is not None  # an archive without the node is of little use
    if is_health_check:
        reason = check_readiness(node) if is_named else check_local_readiness(os.environ)
        if reason:
            raise Failure(reason)
        if as_json:
            print_json({"ready": True})
        return
    machine = read_machine(data_dir)
    findings = check_machine(machine) if workload is None else []
    if workload is not None:
        findings += check_plan(plan_node(workload), machine)
    elif is_named:
        try:
            findings += check_node(node)
        except ConnectionFailed as error:
            if not bundle_path:
                raise
            findings.append(Finding("node", FAIL, str(error), "start it, or correct --url"))
    if kafka_address:
        findings += check_kafka(kafka_address, node)
    if bundle_path:
        size_bytes = _write_bundle(bundle_path, node, findings, log_path)
    if as_json:
        print_json({"level": _worst(findings), "findings": [finding._asdict() for finding in findings]})
    else:
        _print(findings)
        if bundle_path:
            click.echo(f"Wrote {bundle_path}: {format_bytes(size_bytes)}. It has names of topics, groups and hosts.")
    ctx.exit(ExitCode.FAILED if _worst(findings) == FAIL else ExitCode.OK)


def _write_bundle(path: str, node: Node, findings: Sequence[Finding], log_path: str | None) -> int:
    try:
        return write_bundle(path, collect_bundle(node, findings, log_path))
    except FileExistsError:
        raise Failure(f"{path} exists: name a new file") from None
    except OSError as error:
        raise Failure(f"{error.filename or path}: {error.strerror or error}") from error


def _worst(findings: Iterable[Finding]) -> str:
    levels = {finding.level for finding in findings}
    return FAIL if FAIL in levels else WARN if WARN in levels else OK


def _print(findings: Sequence[Finding]) -> None:
    """Prints each finding, and its remedy on a line of its own: never wrapped, so that it can be copied."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        level = click.style(finding.level.ljust(4), fg=_COLOURS[finding.level], bold=finding.level != OK)
        click.echo(f"{level}  {finding.name.ljust(width)}  {finding.found}")
        if finding.remedy:
            click.echo(f"{'':{width + 6}}  {click.style(finding.remedy, dim=True)}")
    counts = Counter(finding.level for finding in findings)
    click.echo(f"\n{counts[OK]} ok, {counts[WARN]} warned, {counts[FAIL]} failed")
