"""The audits of `penstock ingest status` and `verify`: counts of commits beside those of the log and of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from penstock.cli.output import format_count

if TYPE_CHECKING:
    from engine.tiering.store.store import ObjectStore
    from spark_ingest.inspection.audit import AuditDocument
    from spark_ingest.inspection.completeness import CompletenessDocument
    from spark_ingest.protocol.commit import Commit


def audits_of(source: ObjectStore, commits: list[Commit]) -> dict[str, AuditDocument]:
    from spark_ingest.inspection.audit import audit

    return {topic: one.document() for topic, one in audit(source, commits).items()}


def completeness_of(
    source: ObjectStore, output: ObjectStore, job: str, is_wanted: Callable[[str], bool] | None = None
) -> dict[str, CompletenessDocument]:
    from spark_ingest.inspection.completeness import job_completeness

    return {topic: one.document() for topic, one in job_completeness(source, output, job, is_wanted).items()}


def missing_of(topic: str, counts: CompletenessDocument) -> list[str]:
    return [
        f"{topic} {one['from']}: the nodes accepted {one['accepted']:,} records, {one['ingested']:,} are ingested"
        for one in counts["periods"]
    ]


def print_completeness(topics: Mapping[str, CompletenessDocument]) -> None:
    for topic, one in topics.items():
        text = f"{format_count(one['accepted'], 'record')} accepted, {one['ingested']:,} of them ingested"
        text += f", {one['pending']:,} to come" if one["pending"] else ""
        text += f", {one['missing']:,} missing"
        text += f", {one['not_of_job']:,} deleted before this job read the topic" if one["not_of_job"] else ""
        text += "; the topic is deleted" if one["is_deleted"] else ""
        if one["unreadable_counts"]:
            text += f"; {format_count(one['unreadable_counts'], 'object')} of counts cannot be read"
        click.echo(f"audit: {topic}: {text}")


def print_audit(topics: Mapping[str, AuditDocument]) -> None:
    for topic, one in topics.items():
        text = f"{format_count(one['records'], 'record')} counted, {one['log_records']:,} in the log"
        if one["not_compared"]:
            text += f"; {format_count(len(one['not_compared']), 'commit')} cannot be compared"
        click.echo(f"audit: {topic}: {format_count(one['commits'], 'commit')}, {text}")
