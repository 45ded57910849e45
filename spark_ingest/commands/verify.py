"""`penstock ingest verify`: compares the files of a job with its commits, and reports what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import format_count, print_json
from spark_ingest.commands.findings import (
    completeness_of,
    missing_of,
    print_audit,
    print_completeness,
    print_held,
    print_ranges,
)
from spark_ingest.options import StoreUrl, job_option, json_option, output_option, tables_option

_PROBLEMS_SHOWN = 20


@click.command()
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
    from spark_ingest.inspection.audit import audit
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
    audits = audit(source, commits) if source and is_audited else {}
    complete = completeness_of(source, opened, job_name) if source and is_audited else {}
    findings.problems += [difference for topic in audits.values() for difference in topic.differences]
    findings.problems += missing_of(complete)
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


def _print_findings(document: dict[str, Any]) -> None:
    from spark_ingest.tables.job_tables import print_tables

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
        click.echo(f"{leftovers} not committed yet, blocked, retired or replaced")
    print_held(document["held"])
    print_tables(document["tables"])
    print_audit(document["audit"])
    print_completeness(document.get("completeness", {}))
    for problem in document["problems"][:_PROBLEMS_SHOWN]:
        click.echo(f"problem: {problem}")
    if len(document["problems"]) > _PROBLEMS_SHOWN:
        click.echo(f"and {len(document['problems']) - _PROBLEMS_SHOWN:,} more; --json has all")
    print_ranges("lost", document["lost"])
    print_ranges("repeated", document["repeated"])
    print_ranges("not ingested", document["unseen"])
    if not document["problems"]:
        click.echo("what was ingested is sound" if document["lost"] else "sound")
