"""`penstock tier repair`: mends the objects of a store as far as the result is certain."""

from __future__ import annotations

import secrets
from typing import Any

import click

from engine.tiering.audit.examination import Depth
from engine.tiering.audit.findings import PartitionReport
from engine.tiering.audit.repair import Mend, Repairer
from engine.tiering.manifest.chain import Conflict
from engine.tiering.shipping.garbage_collection import GRACE_MS
from node.commands.tier.audit import Audit, StoreCommand, cluster_option, run_audit, store_option
from penstock.cli.failures import Failure
from penstock.cli.output import format_count, format_duration, print_json, print_note
from penstock.units import parse_quantity

_ATTEMPTS_MAX = 3
_SHOWN_MAX = 20


class Duration(click.ParamType[int]):
    """A duration with its unit, as milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            quantity = parse_quantity(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if quantity is None or quantity.kind != "ms":
            self.fail(f"{value!r} is not a duration such as 90s, 12h or 7d", param, ctx)
        return quantity.amount


@click.command(cls=StoreCommand)
@click.argument("topic", required=False)
@store_option
@cluster_option
@click.option("--apply", "is_applied", is_flag=True, help="Do it. Without this flag nothing is changed.")
@click.option("--deep", is_flag=True, help="Read every segment to find damage, too.")
@click.option(
    "--name-orphans",
    "names_orphans",
    is_flag=True,
    help="Also name sound objects that continue a manifest, or that have none.",
)
@click.option(
    "--grace",
    "grace_ms",
    type=Duration(),
    default=GRACE_MS,
    metavar="DURATION",
    help="Remove only objects that no manifest has named for this long.  [default: 24h]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def repair(
    topic: str | None,
    store_url: str,
    cluster: str | None,
    is_applied: bool,
    deep: bool,
    names_orphans: bool,
    grace_ms: int,
    as_json: bool,
) -> None:
    """Repair what can be repaired for certain; show the steps first.

    Changes nothing without --apply. Never removes an object that Penstock does not make, nor anything of a partition
    with damage that cannot be repaired. May run beside a node. Ends with 1 if damage is left.

    \f
    Raises Failure.
    """
    mends: list[tuple[PartitionReport, Mend]] = []

    def then(audit: Audit, report: PartitionReport) -> None:
        using = Repairer(audit.examiner, secrets.token_hex, "penstock tier repair", not is_applied, names_orphans)
        steps = _repair(using, report)
        mends.extend((report, step) for step in steps)
        audit.reports.append(audit.examiner.examine(report.partition) if steps and is_applied else report)

    if grace_ms < GRACE_MS:
        print_note(f"--grace is below {format_duration(GRACE_MS)}: a reader or an upload may still use an object")
    audit = run_audit(store_url, topic, cluster, Depth.BYTES if deep else Depth.AUX, grace_ms=grace_ms, then=then)
    left = [(report, finding) for report in audit.reports for finding in report.damage]
    if as_json:
        print_json(
            {
                "store": audit.store.url,
                "is_applied": is_applied,
                "steps": [
                    {
                        "topic": report.partition.topic,
                        "partition": report.partition.partition,
                        "action": mend.action.value,
                        "key": mend.key,
                        "detail": mend.detail,
                    }
                    for report, mend in mends
                ],
                "damage": len(left),
            }
        )
    else:
        _print(mends, is_applied=is_applied)
    if left:
        report, first = left[0]
        text = f"{format_count(len(left), 'problem')} {'left' if is_applied else 'before the repair'}"
        raise Failure(f"{text}; the first: {report.partition.name}: {first.kind.value}: {first.key}")


def _repair(using: Repairer, report: PartitionReport) -> list[Mend]:
    """Repair a partition; examine it again after a node has committed. Raises Conflict after several attempts."""
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            return using.repair(report)
        except Conflict:
            if attempt == _ATTEMPTS_MAX:
                raise
            report = using.examiner.examine(report.partition)
    raise AssertionError("the last attempt returns or raises")


def _print(mends: list[tuple[PartitionReport, Mend]], *, is_applied: bool) -> None:
    for report, mend in mends[:_SHOWN_MAX]:
        click.echo(f"{mend.action.value}  {report.partition.name}  {mend.key}\n    {mend.detail}")
    if len(mends) > _SHOWN_MAX:
        click.echo(f"and {len(mends) - _SHOWN_MAX:,} more")
    if not mends:
        click.echo("There is nothing that can be repaired.")
    elif is_applied:
        click.echo(f"{format_count(len(mends), 'step')} done")
    else:
        click.echo(f"{format_count(len(mends), 'step')}; nothing was changed: add --apply")
