"""Parts of the output of both `penstock ingest status` and `verify`: lost ranges, held topics and audits.

An audit compares the counts of commits with those of the log and of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import format_count

if TYPE_CHECKING:
    from engine.tiering.store.store import ObjectStore
    from spark_ingest.inspection.audit import TopicAudit

_WHY = {
    "retention": "retention was faster",
    "topic_deleted": "topic {topic_id} was deleted",
    "not_tiered": "not in the store yet when topic {topic_id} was deleted",
    "unseen": "gone before this job first read the partition",
    "passed": "passed over by penstock ingest offsets set",
    "repeated": "ingested twice, by penstock ingest offsets set",
}


def completeness_of(
    source: ObjectStore, output: ObjectStore, job: str, is_wanted: Callable[[str], bool] | None = None
) -> dict[str, dict[str, Any]]:
    from spark_ingest.inspection.completeness import job_completeness

    return {
        topic: completeness.document()
        for topic, completeness in job_completeness(source, output, job, is_wanted).items()
    }


def missing_of(topics: Mapping[str, dict[str, Any]]) -> list[str]:
    """Returns a line for each period with missing records."""
    return [
        f"{topic} {period['from']}: the nodes accepted {period['accepted']:,} records, "
        f"{period['ingested']:,} are ingested"
        for topic, counts in topics.items()
        for period in counts["periods"]
    ]


def print_completeness(topics: Mapping[str, dict[str, Any]]) -> None:
    for topic, counts in topics.items():
        text = f"{format_count(counts['accepted'], 'record')} accepted, {counts['ingested']:,} of them ingested"
        text += f", {counts['pending']:,} to come" if counts["pending"] else ""
        text += f", {counts['missing']:,} missing"
        text += f", {counts['not_of_job']:,} deleted before this job read the topic" if counts["not_of_job"] else ""
        text += "; the topic is deleted" if counts["is_deleted"] else ""
        if counts["unreadable_counts"]:
            text += f"; {format_count(counts['unreadable_counts'], 'object')} of counts cannot be read"
        click.echo(f"audit: {topic}: {text}")


def print_audit(topics: Mapping[str, TopicAudit]) -> None:
    for topic, audit_of_topic in topics.items():
        text = f"{format_count(audit_of_topic.records, 'record')} counted, {audit_of_topic.log_records:,} in the log"
        if audit_of_topic.not_compared:
            text += f"; {format_count(len(audit_of_topic.not_compared), 'commit')} cannot be compared"
        click.echo(f"audit: {topic}: {format_count(audit_of_topic.commits, 'commit')}, {text}")


def print_held(held: Mapping[str, str]) -> None:
    for topic, reason in sorted(held.items()):
        click.echo(f"blocked: {reason if topic in reason else f'{topic}: {reason}'}")


def print_ranges(word: str, ranges: list[dict[str, Any]]) -> None:
    for span in ranges:
        count = "an unknown number of" if span["records"] is None else f"{span['records']:,}"
        why = _WHY[span["reason"]].format(topic_id=span["topic_id"])
        title = f"{span['topic']} partition {span['partition']}"
        click.echo(f"{word}: {title}: {count} records from offset {span['start']} on ({why})")
