"""The audits of `penstock ingest status` and `verify`: counts of commits beside those of the log and of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import format_count

if TYPE_CHECKING:
    from engine.tiering.store.store import ObjectStore
    from spark_ingest.protocol.commit import Commit


def audits_of(source: ObjectStore, commits: list[Commit]) -> dict[str, dict[str, Any]]:
    from spark_ingest.inspection.audit import audit

    return {topic: one.document() for topic, one in audit(source, commits).items()}


def completeness_of(source: ObjectStore, output: ObjectStore, job: str) -> dict[str, dict[str, Any]]:
    from spark_ingest.inspection.completeness import job_completeness

    return {topic: one.document() for topic, one in job_completeness(source, output, job).items()}


def missing_of(topic: str, counts: dict[str, Any]) -> list[str]:
    return [
        f"{topic} {one['from']}: the nodes accepted {one['accepted']:,} records, {one['ingested']:,} are ingested"
        for one in counts["periods"]
    ]


def print_completeness(document: dict[str, Any]) -> None:
    for topic, one in document.get("completeness", {}).items():
        text = f"{format_count(one['accepted'], 'record')} accepted, {one['ingested']:,} of them ingested"
        text += f", {one['pending']:,} to come" if one["pending"] else ""
        click.echo(f"audit: {topic}: {text}, {one['missing']:,} missing")


def print_audit(document: dict[str, Any]) -> None:
    for topic, one in document["audit"].items():
        text = f"{format_count(one['records'], 'record')} counted, {one['log_records']:,} in the log"
        if one["not_compared"]:
            text += f"; {format_count(len(one['not_compared']), 'commit')} cannot be compared"
        click.echo(f"audit: {topic}: {format_count(one['commits'], 'commit')}, {text}")
