"""`penstock ingest`: writes topics into Parquet tables, shows the progress, and verifies the output.

Sends nothing to a node: it reads the object store that segments are tiered to. spark_ingest/ does all of the work. It
is imported when a command is called, because importing PyArrow takes longer than the other commands run.
"""

from __future__ import annotations

import re
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.errors import EngineError
from node.commands.ingest_check import check
from node.commands.ingest_clean import clean, retain
from node.commands.ingest_compact import compact
from node.commands.ingest_ddl import ddl
from node.commands.ingest_erase import erase
from node.commands.ingest_finalize import finalize
from node.commands.ingest_jobs import jobs, unregister
from node.commands.ingest_lag import lag
from node.commands.ingest_tables import publish
from node.commands.operate.again import backfill, replay
from node.commands.operate.audits import audits_of, completeness_of, missing_of, print_audit, print_completeness
from node.commands.operate.job_config import config_option, exclude_option, is_selected, raise_failed
from node.commands.operate.offsets import offsets
from node.commands.operate.print_records import print_records
from node.commands.operate.report import report
from node.commands.operate.schedule import schedule
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import Column, format_bytes, format_count, print_facts, print_json, print_note, print_table
from spark_ingest.options import Pattern, StoreUrl, job_option, json_option, output_option, store_option, tables_option

if TYPE_CHECKING:
    pass

# Commands whose modules are imported when they are called, with the first sentence of their help.
RUN_SUMMARY = "Write new records of the store into Parquet tables, exactly once."
_LATE = {
    "run": ("spark_ingest.command", "run_command", RUN_SUMMARY),
    "plan": ("spark_ingest.pending", "plan_command", "Show what the next run does: ranges, tasks, columns, losses."),
    "resume": ("spark_ingest.pending", "resume_command", "Finish the plan of a run that was killed."),
}
_PROBLEMS_SHOWN = 20
_WHY = {
    "retention": "retention was faster",
    "topic_deleted": "topic {topic_id} was deleted",
    "not_tiered": "not in the store yet when topic {topic_id} was deleted",
    "unseen": "gone before this job first read the partition",
    "passed": "passed over by penstock ingest offsets set",
    "repeated": "ingested twice, by penstock ingest offsets set",
}
_SPARK_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "py4j")  # not installed with the server alone


class IngestGroup(click.Group):
    """Imports some commands when they are called, and reports a failure in one line. Lists them without Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_LATE, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LATE:
            return super().get_command(ctx, cmd_name)
        try:
            return _late_command(cmd_name)
        except ModuleNotFoundError:
            if ctx.resilient_parsing:  # completion in a shell: no error
                return click.Command(cmd_name)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        others = [(name, command.get_short_help_str(100)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl([*((name, text) for name, (_, _, text) in _LATE.items()), *others])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises Failure."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _SPARK_PACKAGES:
                raise
            text = f"{error.name} is not installed: pip install --find-links dist 'penstock-server[spark]'"
            text += ", or 'penstock-server[ingest]' for --engine local, or make setup in a clone"
            raise Failure(text, ExitCode.USAGE) from error
        except EngineError as error:
            from spark_ingest.command import is_usage_error

            raise Failure(str(error), ExitCode.USAGE if is_usage_error(error) else ExitCode.FAILED) from error


@click.group(cls=IngestGroup)
def ingest() -> None:
    """Write topics into Parquet tables."""


ingest.add_command(publish)


@ingest.command()
@config_option
@store_option
@output_option
@job_option
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics to show.")
@exclude_option
@click.option("--cluster", help="The cluster's id, if the store has several.")
@click.option(
    "--audit",
    "is_audited",
    is_flag=True,
    help="Also compare the records of each topic with those that the nodes accepted, by ten minutes.",
)
@tables_option("Also show the tables of this file, and the commits that they do not have yet.")
@json_option
def status(
    store: str,
    output: str,
    job_name: str,
    topics: re.Pattern[str],
    exclude: re.Pattern[str] | None,
    cluster: str | None,
    is_audited: bool,
    tables_file: Path | None,
    as_json: bool,
) -> None:
    """Show how far a job is, and how much of the store it has not read yet.

    Ends with 5 if records are gone that were never ingested, until a run with --on-lost skip has recorded them; with 1
    if a topic cannot be read.

    \f
    Raises Failure.
    """
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.protocol.status import status as status_of
    from spark_ingest.tables.job_tables import JobTables

    is_wanted = is_selected(topics, exclude)
    source, opened = open_source_store(store), open_output_store(output, is_written=False)
    document = status_of(source, opened, job_name, is_wanted, cluster)
    if is_audited:
        document["completeness"] = completeness_of(source, opened, job_name, is_wanted)
    document["tables"] = JobTables(tables_file, output, job_name).status()
    print_json(document) if as_json else _print_status(document)
    raise_failed(document["failed"])
    if document["lost"]:
        click.get_current_context().exit(ExitCode.LOST)


@ingest.command()
@output_option
@job_option
@click.option("--deep", is_flag=True, help="Read every file again, too.")
@click.option("--store", type=StoreUrl(), help="Also look for records that the store lost before they were ingested.")
@click.option(
    "--audit",
    "is_audited",
    is_flag=True,
    help="With --store: also read the log again, and compare its records by ten minutes with the counts of commits.",
)
@tables_option("Also compare the files that the tables of this file list with those of the commits.")
@json_option
def verify(
    output: str,
    job_name: str,
    deep: bool,
    store: str | None,
    is_audited: bool,
    tables_file: Path | None,
    as_json: bool,
) -> None:
    """Check that every committed offset is in the tables exactly once.

    Ends with 1 when anything is missing, doubled, damaged or foreign; with 5 when records were lost before they could
    be ingested: those that commits recorded and, with --store, those that the next run will meet.

    \f
    Raises Failure.
    """
    from spark_ingest.output.retained import load_retained
    from spark_ingest.output.rewrites import Rewrites
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.protocol.history import History
    from spark_ingest.protocol.lost import counted, pending_losses, rows_of
    from spark_ingest.protocol.verify import verify as verify_files
    from spark_ingest.protocol.verify_deep import verify_deep
    from spark_ingest.tables.job_tables import JobTables

    if is_audited and store is None:
        raise Failure("--audit needs --store, whose log it reads", ExitCode.USAGE)
    opened = open_output_store(output, is_written=False)
    findings, commits = verify_files(opened, job_name)
    source = open_source_store(store) if store else None
    head = History(opened, job_name).head() if source else None
    pending = pending_losses(source, head.cluster, head.progress) if source and head else []
    audits = audits_of(source, commits) if source and is_audited else {}
    complete = completeness_of(source, opened, job_name) if source and is_audited else {}
    findings.problems += [one for topic in audits.values() for one in topic["differences"]]
    findings.problems += [one for topic, counts in complete.items() for one in missing_of(topic, counts)]
    if deep:
        retained, effect = load_retained(opened, job_name), Rewrites(opened, job_name).effect()
        findings.problems += verify_deep(opened, commits, retained.covers, effect)
    tables, differences = JobTables(tables_file, output, job_name).verify(commits)
    findings.problems += differences
    lost = findings.lost + pending
    document = {
        "job": job_name,
        "commits": findings.commits,
        "files": findings.files,
        "rows": findings.rows,
        "dead_letters": findings.dead_letters,
        "leftovers": findings.leftovers,
        "retired": findings.retired,
        "rewrites": findings.rewrites,
        "rewritten_files": findings.rewritten,
        "replaced_files": findings.replaced,
        "dropped_rows": findings.dropped,
        "is_deep": deep,
        "problems": findings.problems,
        "held": findings.held,
        "lost_records": counted(lost),
        "lost": rows_of(lost),
        "repeated_records": counted(findings.repeated),
        "repeated": rows_of(findings.repeated),
        "unseen_records": counted(findings.unseen),
        "unseen": rows_of(findings.unseen),
        "tables": tables,
        "audit": audits,
        "completeness": complete,
    }
    print_json(document) if as_json else _print_findings(document)
    if findings.problems:
        raise Failure(f"{format_count(len(findings.problems), 'problem')} in the output of job {job_name}")
    if lost:
        click.get_current_context().exit(ExitCode.LOST)


@ingest.command()
@output_option
@job_option
@json_option
def abandon(output: str, job_name: str, as_json: bool) -> None:
    """Give up a plan that cannot be finished; its files are removed, its records come with the next run.

    Needed when a plan holds an option that turned out wrong, or a segment that is gone.
    """
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.protocol.runner import abandon as abandon_plan

    done = abandon_plan(open_output_store(output, is_written=True), job_name, time.time_ns() // 1_000_000)
    number, removed = (done[0].number, len(done[1])) if done else (None, 0)
    if as_json:
        print_json({"job": job_name, "abandoned_plan": number, "files_removed": removed})
    else:
        print_note(
            "There is no plan to abandon." if done is None else f"Plan {number} is abandoned, {removed} files removed."
        )


ingest.add_command(check)
ingest.add_command(clean)
ingest.add_command(compact)
ingest.add_command(ddl)
ingest.add_command(erase)
ingest.add_command(finalize)
ingest.add_command(jobs)
ingest.add_command(lag)
ingest.add_command(offsets)
ingest.add_command(print_records)
ingest.add_command(report)
ingest.add_command(backfill)
ingest.add_command(replay)
ingest.add_command(retain)
ingest.add_command(schedule)
ingest.add_command(unregister)


def _late_command(name: str) -> click.Command:
    """Raises ModuleNotFoundError. Does not import PyArrow: a run without new records does not need it."""
    for library in ("pyarrow", "numpy"):
        if find_spec(library) is None:
            raise ModuleNotFoundError(name=library)
    module, attribute, _ = _LATE[name]
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


def _print_status(document: dict[str, Any]) -> None:
    pending = document["pending_plan"]
    print_facts(
        [
            ("job", document["job"]),
            ("cluster", document["cluster"]),
            ("commit", document["head"]),
            ("to do", f"{document['lag_records']:,} records, {format_bytes(document['lag_bytes'])}"),
        ]
    )
    _print_held(document)
    for topic, counts in sorted(document["misfits"].items()):
        text = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        click.echo(f"values of another type than their column, in _extra: {topic}: {text}")
    _print_lost(document)
    for topic, count in sorted(document["unseen_records"].items()):
        click.echo(f"{topic}: {count:,} offsets were gone before this job first read their partition")
    if document["skipped_records"]:
        click.echo(f"{document['skipped_records']:,} lost records were skipped by earlier runs")
    _print_ranges("skipped", document["skipped"])
    if pending is not None:
        print_note(f"Plan {pending} is not committed: a run is under way, or the next one resumes it.")
    if document["incomplete_replay"] is not None:
        print_note("A replay is not complete: penstock ingest replay --resume drops the earlier rows.")
    complete = document.get("completeness", {})
    print_completeness(complete)
    for line in [line for topic, one in complete.items() for line in missing_of(topic, one)]:
        click.echo(f"missing: {line}")
    _print_tables(document)
    click.echo()
    print_table(
        [
            Column("topic", is_text=True),
            Column("partition"),
            Column("log\nstart"),
            Column("committed\nend"),
            Column("tiered\nend"),
            Column("lag\nrecords"),
            Column("lag\nseconds"),
        ],
        [
            (
                *(one["topic"], one["partition"], one["log_start"], one["committed_end"], one["tiered_end"]),
                *(one["lag_records"], round(one["lag_ms"] / 1000)),
            )
            for one in document["partitions"]
        ],
    )


def _print_findings(document: dict[str, Any]) -> None:
    how = "read again" if document["is_deep"] else "listed"
    click.echo(
        f"{format_count(document['commits'], 'commit')}, {format_count(document['files'], 'file')} {how}, "
        f"{format_count(document['rows'], 'row')}, {format_count(document['dead_letters'], 'dead letter')}"
    )
    if document["retired"]:
        click.echo(f"retired: {format_count(document['retired'], 'file')} of these")
    if document["rewrites"]:
        rewritten, replaced = document["rewritten_files"], document["replaced_files"]
        rewrites = format_count(document["rewrites"], "rewrite")
        click.echo(f"{rewrites} made {format_count(rewritten, 'file')} of {replaced:,}")
    for table, count in document["dropped_rows"].items():
        click.echo(f"rewrites dropped {format_count(count, 'row')} of {table}")
    if document["leftovers"]:
        leftovers = format_count(document["leftovers"], "file")
        click.echo(f"{leftovers} not committed yet, held back, retired or replaced")
    _print_held(document)
    _print_tables(document)
    print_audit(document["audit"])
    print_completeness(document.get("completeness", {}))
    for problem in document["problems"][:_PROBLEMS_SHOWN]:
        click.echo(f"problem: {problem}")
    if len(document["problems"]) > _PROBLEMS_SHOWN:
        click.echo(f"and {len(document['problems']) - _PROBLEMS_SHOWN:,} more; --json has all")
    _print_lost(document)
    _print_ranges("repeated", document["repeated"])
    _print_ranges("not ingested", document["unseen"])
    if not document["problems"]:
        click.echo("what was ingested is sound" if document["lost"] else "sound")


def _print_tables(document: dict[str, Any]) -> None:
    from spark_ingest.tables.job_tables import print_tables

    print_tables(document["tables"])


def _print_held(document: dict[str, Any]) -> None:
    for topic, reason in sorted(document["held"].items()):
        click.echo(f"held back: {reason if topic in reason else f'{topic}: {reason}'}")


def _print_lost(document: dict[str, Any]) -> None:
    _print_ranges("lost", document["lost"])


def _print_ranges(word: str, ranges: list[dict[str, Any]]) -> None:
    for one in ranges:
        count = "an unknown number of" if one["records"] is None else f"{one['records']:,}"
        why = _WHY[one["reason"]].format(topic_id=one["topic_id"])
        place = f"{one['topic']} partition {one['partition']}"
        click.echo(f"{word}: {place}: {count} records from offset {one['start']} on ({why})")
