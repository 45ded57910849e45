"""`penstock tier verify`: checks the objects of a store."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from engine.tiering.audit.examination import Depth
from engine.tiering.audit.findings import Finding, PartitionReport
from node.commands.tier.audit import Audit, StoreCommand, cluster_option, run_audit, store_option
from penstock.cli.failures import Failure
from penstock.cli.output import format_bytes, format_count, print_json

_SHOWN_MAX = 20


@click.command(cls=StoreCommand)
@click.argument("topic", required=False)
@store_option
@cluster_option
@click.option("--deep", is_flag=True, help="Read every segment and check each batch, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def verify(topic: str | None, store_url: str, cluster: str | None, deep: bool, as_json: bool) -> None:
    """Check that the store has every object that manifests name, and that their facts agree.

    Ends with 1 if anything is missing, damaged or contradictory. Orphans and foreign objects are reported and are no
    failure.

    \f
    Raises Failure.
    """
    audit = run_audit(store_url, topic, cluster, Depth.BYTES if deep else Depth.AUX)
    print_json(_document_of(audit, is_deep=deep)) if as_json else _print_findings(audit, is_deep=deep)
    damage = sum(len(report.damage) for report in audit.reports)
    if damage:
        raise Failure(f"{format_count(damage, 'problem')} in {audit.store.url}; see penstock tier repair")


def _document_of(audit: Audit, *, is_deep: bool) -> dict[str, Any]:
    reports = audit.reports
    return {
        "store": audit.store.url,
        "is_deep": is_deep,
        "partitions": len(reports),
        "segments": _segments(reports),
        "bytes": _bytes(reports),
        "damage": sum(len(report.damage) for report in reports),
        "findings": [_row(report, finding) for report in reports for finding in report.findings],
        "foreign": audit.foreign,
    }


def _print_findings(audit: Audit, *, is_deep: bool) -> None:
    """Damage first, then the counts of the other findings with an example of each."""
    for report in audit.reports:
        for finding in report.damage[:_SHOWN_MAX]:
            label = click.style(finding.kind.value, fg="red", bold=True)
            click.echo(f"{label}  {report.partition.name}  {finding.key}\n    {finding.detail}")
        if len(report.damage) > _SHOWN_MAX:
            click.echo(f"and {len(report.damage) - _SHOWN_MAX:,} more of {report.partition.name}")
    others = [finding for report in audit.reports for finding in report.findings if not finding.kind.is_damage]
    for kind, count in Counter(other.kind for other in others).items():
        example = next(other for other in others if other.kind is kind)
        click.echo(f"{kind.value}  {count:,}  {example.key}: {example.detail}")
    for key in audit.foreign[:_SHOWN_MAX]:
        click.echo(f"foreign  {key}: left alone")
    counts = f"{format_count(len(audit.reports), 'partition')}, {format_count(_segments(audit.reports), 'segment')}"
    how = "every batch was read" if is_deep else "sizes and aux objects were compared"
    click.echo(f"{counts}, {format_bytes(_bytes(audit.reports))}: {how}")


def _row(report: PartitionReport, finding: Finding) -> dict[str, Any]:
    return {
        "topic": report.partition.topic,
        "partition": report.partition.partition,
        "kind": finding.kind.value,
        "is_damage": finding.kind.is_damage,
        "key": finding.key,
        "offset": finding.offset,
        "detail": finding.detail,
    }


def _segments(reports: list[PartitionReport]) -> int:
    return sum(report.manifest.entry_count for report in reports if report.manifest is not None)


def _bytes(reports: list[PartitionReport]) -> int:
    return sum(report.manifest.data_bytes for report in reports if report.manifest is not None)
