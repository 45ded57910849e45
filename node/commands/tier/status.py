"""`penstock tier status --store`: shows what the store has of each topic and partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from engine.tiering.audit.examination import Depth
from engine.tiering.audit.findings import Kind, PartitionReport
from node.commands.tier.audit import StoreCommand, cluster_option, run_audit, store_failures, store_option
from penstock.cli.node import Node, node_options, shared_values
from penstock.cli.output import Column, format_bytes, format_time, print_facts, print_json, print_note, print_table

_Row = dict[str, Any]

_COUNTS = ("segments", "bytes", "manifests", "sub_manifests", "manifest_bytes", "orphans", "orphan_bytes", "foreign")
_FACTS = ("cluster", "topic", "topic_id", "partition", "log_start", "end_offset", "newest_record_ms")
_NOTHING: _Row = {**dict.fromkeys(_FACTS), **dict.fromkeys((*_COUNTS, "generation", "damage"), 0)}


@click.command(cls=StoreCommand)
@click.argument("topic", required=False)
@store_option
@cluster_option
@node_options
def status(topic: str | None, store_url: str, cluster: str | None, node: Node, as_json: bool) -> None:
    """Show what the store has: per topic, or per partition of one TOPIC."""
    with store_failures():
        audit = run_audit(store_url, topic, cluster, Depth.MANIFESTS)
    rows = [_row_of(report) for report in audit.reports]
    shared = shared_values(click.get_current_context())
    if shared["url"] or shared["context"]:
        rows = _with_lag(rows, node, topic)
    if as_json:
        print_json({"store": audit.store.url, "partitions": rows, "foreign": audit.foreign})
        return
    print_facts([("store", audit.store.url)])
    click.echo()
    _print(rows if topic is not None else _by_topic(rows), is_partition=topic is not None)
    damaged = sum(row["damage"] for row in rows)
    if damaged:
        print_note(f"{damaged:,} objects are missing or damaged: see penstock tier verify")


def _row_of(report: PartitionReport) -> _Row:
    """Return the facts of a partition for JSON."""
    manifest, partition = report.manifest, report.partition
    return {
        **_NOTHING,
        "cluster": partition.cluster_id,
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "log_start": None if manifest is None else manifest.log_start,
        "end_offset": None if manifest is None else manifest.end_offset,
        "generation": report.generation,
        "leader_epoch": None if manifest is None else manifest.leader_epoch,
        **({} if manifest is None else {"segments": manifest.entry_count, "bytes": manifest.data_bytes}),
        "newest_record_ms": report.newest_record_ms,
        "newest_object_ms": report.newest_object_ms,
        "manifests": report.roots,
        "sub_manifests": report.sub_manifests,
        "manifest_bytes": report.manifest_bytes,
        "orphans": report.orphans,
        "orphan_bytes": report.orphan_bytes,
        "foreign": sum(finding.kind is Kind.FOREIGN for finding in report.findings),
        "damage": len(report.damage),
    }


def _with_lag(rows: list[_Row], node: Node, topic: str | None) -> list[_Row]:
    """Add how far the node is ahead of the store, and the partitions that only the node has."""
    client = node.once()
    names = [topic] if topic is not None else [topic["topic"] for topic in client.list_topics()["topics"]]
    by_partition = {
        (name, status["partition"]): status for name in names for status in client.tier_status(name)["partitions"]
    }
    stored = {(row["topic"], row["partition"]) for row in rows}
    only_there = [key for key in by_partition if key not in stored]
    ids = {row["topic"]: row["topic_id"] for row in rows}
    rows = rows + [
        {**_NOTHING, "topic": name, "topic_id": ids.get(name), "partition": number} for name, number in only_there
    ]
    for row in rows:
        status = by_partition.get((row["topic"], row["partition"]))
        row["high_watermark"] = status and status["high_watermark"]
        row["lag_records"] = status and status["high_watermark"] - max(row["end_offset"] or 0, status["log_start"])
        row["pending_bytes"] = status and status["pending_bytes"]
        row["last_error"] = status and status["last_error"]
    return sorted(rows, key=lambda row: (row["topic"], row["topic_id"] or "", row["partition"]))


def _by_topic(rows: Iterable[_Row]) -> list[_Row]:
    """Return a row for each topic, with the sums of its partitions."""
    topics: dict[tuple[str, str | None], _Row] = {}
    for row in rows:
        key = (row["topic"], row["topic_id"])
        whole = topics.get(key)
        records = (row["end_offset"] or 0) - (row["log_start"] or 0)
        if whole is None:
            topics[key] = {**row, "records": records, "partition": 1}
            continue
        whole["partition"] += 1
        whole["records"] += records
        for name in _COUNTS:
            whole[name] += row[name]
        whole["newest_record_ms"] = max(whole["newest_record_ms"] or 0, row["newest_record_ms"] or 0) or None
        if row.get("lag_records") is not None:
            whole["lag_records"] = (whole["lag_records"] or 0) + row["lag_records"]
    return list(topics.values())


def _print(rows: list[_Row], *, is_partition: bool) -> None:
    has_lag = any("lag_records" in row for row in rows)
    of_range = [Column("log\nstart"), Column("end\noffset")] if is_partition else [Column("records")]
    lag = [Column("lag\nrecords")] if has_lag else []
    print_table(
        [
            Column("partition") if is_partition else Column("topic", is_text=True),
            *([] if is_partition else [Column("partitions")]),
            *of_range,
            Column("segments"),
            Column("stored"),
            Column("newest\nrecord", is_text=True),
            Column("manifests"),
            Column("orphans"),
            Column("foreign"),
            *lag,
        ],
        [
            (
                row["partition"] if is_partition else row["topic"],
                *([] if is_partition else [row["partition"]]),
                *((row["log_start"], row["end_offset"]) if is_partition else (row["records"],)),
                row["segments"],
                format_bytes(row["bytes"]),
                None if row["newest_record_ms"] is None else format_time(row["newest_record_ms"]),
                f"{row['manifests']:,} ({format_bytes(row['manifest_bytes'])})",
                row["orphans"],
                row["foreign"],
                *([row.get("lag_records")] if has_lag else []),
            )
            for row in rows
        ],
    )
