"""`penstock ingest plan` shows what the next run does and writes nothing; `resume` finishes a plan and makes no other.

Both take options of `run`, with the same meaning.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

import click

from spark_ingest.commands.clock import now_ms
from spark_ingest.commands.run import choices_of, run_command, selection_of
from spark_ingest.config.job_file import JobFile
from spark_ingest.output import names
from spark_ingest.output.schema_object import table_ddl
from spark_ingest.output.stores import open_output_store, open_source_store
from spark_ingest.plan import Plan
from spark_ingest.protocol.failures import Failures
from spark_ingest.protocol.history import History
from spark_ingest.protocol.lost import counted, lost_of, rows_of
from spark_ingest.protocol.planner import next_plan
from spark_ingest.protocol.runner import within
from spark_ingest.report import format_bytes, print_document
from spark_ingest.source.discovery import resolve_cluster
from spark_ingest.source.known import KnownManifests
from spark_ingest.source.slices import Range

EXIT_FAILED = 1
_OF_PLAN = (
    *("file", "store", "output", "topics", "exclude", "cluster", "job_name", "payload", "event_time", "schema_file"),
    *("on_misfit", "misfit_max_percent", "event_time_fallback", "start", "on_lost", "allow_no_topics", "task_bytes"),
    *("plan_bytes_max", "workers", "tables_file"),
    "as_json",
)
_OF_RESUME = (
    *("file", "store", "output", "job_name", "bad_percents_max", "on_misfit", "misfit_max_percent", "tables_file"),
    *("engine", "master", "workers", "as_json"),
)


def _show(file: JobFile, store: str, output: str, job_name: str, workers: int | None, **options: Any) -> None:
    source, target = open_source_store(store), open_output_store(output, is_written=False)
    history = History(target, job_name)
    head = history.head()
    plan, failures, is_pending = history.pending(head), dict[str, Any](), True
    if plan is None:
        choices = choices_of(file, options)
        at_ms = now_ms()
        selection = within(selection_of(options, choices), file.run_limits.begin(at_ms))
        planned = next_plan(
            source,
            resolve_cluster(source, selection.cluster, head.cluster if head else None),
            head,
            job_name,
            selection,
            choices.defaults.recipe,
            left_out=(),
            known_topics=KnownManifests(target, names.known_manifests_key(job_name), source.url).load,
            claim=_take_no_table,
            parallelism=workers or len(os.sched_getaffinity(0)),
            new_id=secrets.token_hex,
            now_ms=at_ms,
        )
        plan, failures, is_pending = planned.plan, planned.failures, False
    document = document_of(job_name, plan, failures, is_pending=plan is not None and is_pending)
    print_document(document) if options["as_json"] else _print(document)
    if failures:
        click.get_current_context().exit(EXIT_FAILED)


def _take_no_table(topic: str) -> None:
    """No-op: the run records which job owns a table."""


def document_of(job: str, plan: Plan | None, failures: Failures, *, is_pending: bool) -> dict[str, Any]:
    """Returns the JSON document of `plan`. `pending`: the plan is stored and not committed."""
    ranges = _ranges(plan) if plan else {}
    lost = [*lost_of(plan.skipped, plan.positions), *plan.deleted] if plan else []
    tasks = plan.tasks if plan else ()
    return {
        "job": job,
        "plan": plan.number if plan else None,
        "pending": is_pending,
        "partial": plan.is_partial if plan else False,
        "offsets": sum(task.record_range for task in tasks),
        "bytes": sum(piece.weight_bytes for task in tasks for piece in task.slices),
        "tasks": len(tasks),
        "topics": {topic: _topic(plan, topic, some) for topic, some in ranges.items()} if plan else {},
        "lost_records": counted(lost),
        "lost": rows_of(lost),
        "failed": {topic: str(error) for topic, error in sorted(failures.items())},
    }


def _ranges(plan: Plan) -> dict[str, dict[int, Range]]:
    """Returns the range of each partition, by topic."""
    by_topic: dict[str, dict[int, Range]] = {}
    for task in plan.tasks:
        for span in task.ranges:
            merged = by_topic.setdefault(task.topic, {}).get(span.partition, span)
            whole = Range(span.partition, min(merged.start, span.start), max(merged.end, span.end))
            by_topic[task.topic][span.partition] = whole
    return by_topic


def _topic(plan: Plan, topic: str, ranges: dict[int, Range]) -> dict[str, Any]:
    mine = [task for task in plan.tasks if task.topic == topic]
    return {
        "tasks": len(mine),
        "offsets": sum(task.record_range for task in mine),
        "bytes": sum(piece.weight_bytes for task in mine for piece in task.slices),
        "columns": table_ddl(plan.recipe_of(topic).payload, plan.schemas[topic]),
        "partitions": [span._asdict() for _, span in sorted(ranges.items())],
        "mixed": [{"path": column.path, "text": str(column)} for column in plan.mixed.get(topic, ())],
    }


def _print(document: dict[str, Any]) -> None:
    for topic, problem in document["failed"].items():
        click.echo(f"failed: {problem if topic in problem else f'{topic}: {problem}'}")
    if document["plan"] is None:
        click.echo("no new records: the next run adds 0 rows")
        return
    what = "is not committed: the next run resumes it" if document["pending"] else "is what the next run does"
    size = f"{document['offsets']:,} offsets, {format_bytes(document['bytes'])}"
    click.echo(f"plan {document['plan']} {what}: {size}, tasks: {document['tasks']}")
    if document["partial"]:
        click.echo("more records remain for further plans")
    if document["lost"]:
        click.echo(f"{document['lost_records']:,} records or more are lost; --json names them")
    for topic, plan_of_topic in document["topics"].items():
        for partition in plan_of_topic["partitions"]:
            count = partition["end"] - partition["start"]
            offsets = f"{count:,} offsets, {partition['start']} to {partition['end'] - 1}"
            click.echo(f"{topic} partition {partition['partition']}: {offsets}")
        for mixed in plan_of_topic["mixed"]:
            click.echo(f"{topic}: {mixed['text']}")


def _resume(**options: Any) -> None:
    """Calls `run` with the defaults of its other options."""
    needed = ["--store", options["store"], "--output", options["output"], "--topics", ".*"]
    default_map = click.get_current_context().default_map
    others = run_command.make_context("run", needed, default_map=default_map).params
    once = {"every_s": None, "follow": False, "upkeep_s": None}
    assert run_command.callback is not None
    run_command.callback(**{**others, **options, **once, "is_resuming": True})


plan_command = click.Command(
    "plan",
    params=[param for param in run_command.params if param.name in _OF_PLAN],
    callback=_show,
    help="""Show what the next run does: ranges, tasks, columns, losses. Writes nothing.

    Ends with 1 if a topic cannot be planned.""",
)
resume_command = click.Command(
    "resume",
    params=[param for param in run_command.params if param.name in _OF_RESUME],
    callback=_resume,
    help="""Finish the plan of a run that was killed, without new records; 0 rows if there is none.

    A plan keeps the settings that it was made with.""",
)
