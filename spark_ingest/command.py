"""The command that runs a job: `penstock ingest run`, and what spark-submit is given (job.py), with the same options.

Options become values here and stores are opened; the work is runner.py's.
"""

from __future__ import annotations

import secrets
import sys
import time
from typing import Any

import click

from engine.errors import EngineError
from engine.tiering.store.store import StoreUnusable
from spark_ingest.decode.event_time import path_of
from spark_ingest.decode.json_types import is_decodable
from spark_ingest.errors import IngestRefused
from spark_ingest.options import Pattern, job_option, json_option, output_option, store_option
from spark_ingest.output.stores import open_output, open_source
from spark_ingest.plan import EVENT_TIME_FALLBACKS, JSON, PAYLOADS, RECORD, Recipe
from spark_ingest.protocol.history import History
from spark_ingest.protocol.planner import (
    EARLIEST,
    FAIL_ON_LOSS,
    LATEST,
    PLAN_BYTES_MAX,
    SKIP_LOST,
    TASK_BYTES,
    Selection,
)
from spark_ingest.protocol.runner import Components, Job, run
from spark_ingest.report import Report, print_document, print_summary
from spark_ingest.spark.environment import demand_spark, is_submitted
from spark_ingest.spark.execute import SparkExecutor

EXIT_FAILED, EXIT_REFUSED, EXIT_LOST = 1, 2, 5
_REFUSALS = (IngestRefused, StoreUnusable)


@click.command("run")
@store_option
@output_option
@click.option("--topics", required=True, type=Pattern(), help="Which topics: a regular expression for the whole name.")
@click.option("--exclude", type=Pattern(), help="Which of them not.")
@click.option("--cluster", help="The cluster's id, if the store has several.")
@job_option
@click.option(
    "--payload",
    type=click.Choice(PAYLOADS),
    default=JSON,
    show_default=True,
    help="json: a column for each member. raw: the value as it is, in one column.",
)
@click.option("--event-time", metavar="FIELD", help="Member with the event's time: ts, meta.ts or /meta/ts.")
@click.option(
    "--event-time-fallback",
    type=click.Choice(EVENT_TIME_FALLBACKS),
    default=RECORD,
    show_default=True,
    help="What to do with a record that has no such time: take the record's own, set it aside, or stop.",
)
@click.option(
    "--dead-letter-max-percent",
    "bad_percent_max",
    type=click.FloatRange(0, 100),
    default=0.1,
    show_default=True,
    help="More records than this that make no row stop the commit.",
)
@click.option(
    "--start",
    type=click.Choice((EARLIEST, LATEST)),
    default=EARLIEST,
    show_default=True,
    help="Where to begin in a partition that the job has never seen.",
)
@click.option(
    "--on-lost",
    type=click.Choice((FAIL_ON_LOSS, SKIP_LOST)),
    default=FAIL_ON_LOSS,
    show_default=True,
    help="What to do if records were removed, by retention or with their topic, before they were ingested. "
    f"skip: go on, record the loss in the commit and end with {EXIT_LOST}.",
)
@click.option("--allow-no-topics", is_flag=True, help="Do nothing, without an error, if no topic matches --topics.")
@click.option(
    "--task-bytes",
    type=click.IntRange(1 << 10),
    default=TASK_BYTES,
    show_default=True,
    help="Log bytes of a task, whose rows are held in memory.",
)
@click.option(
    "--commit-bytes",
    "plan_bytes_max",
    type=click.IntRange(1 << 10),
    default=PLAN_BYTES_MAX,
    show_default=True,
    help="Log bytes of a commit; a larger backlog takes several.",
)
@click.option("--master", help="Spark's master.  [default: that of spark-submit, else local[*]]")
@json_option
def run_command(store: str, output: str, job_name: str, as_json: bool, master: str | None, **options: Any) -> None:
    """Write what is new in the store into Parquet tables, exactly once.

    Run it again after any failure or kill: it goes on where it was. A run that finds nothing adds 0 rows. Ends with 1
    if it failed, 2 if it cannot start as asked, 5 if it went on without records that are lost.
    """
    demand_spark()
    selection = Selection(
        **{name: options[name] for name in ("topics", "exclude", "cluster", "start", "on_lost")},
        **{name: options[name] for name in ("task_bytes", "plan_bytes_max", "allow_no_topics")},
    )
    demand_event_time(options["event_time"])
    recipe = Recipe(**{name: options[name] for name in ("payload", "event_time", "event_time_fallback")})
    job = Job(job_name, selection, recipe, options["bad_percent_max"])
    report = Report(recipe, is_quiet=as_json and is_submitted())
    document = run_on_spark(job, store, output, master, report)
    print_document(document) if as_json else print_summary(document)
    if document["lost"]:
        click.get_current_context().exit(EXIT_LOST)


def demand_event_time(field: str | None) -> None:
    """Raises IngestRefused for a path with a member that cannot be looked for."""
    unusable = [name for name in path_of(field or "") if not is_decodable(name)]
    if unusable:
        hint = "names with quotes, backslashes or control characters cannot be read; leave --event-time out"
        raise IngestRefused(f"--event-time names the member {unusable[0]!r}", hint=hint)


def run_on_spark(job: Job, store: str, output: str, master: str | None, report: Report) -> dict[str, Any]:
    """Run a job; what it did, as the JSON document."""
    target = open_output(output, is_written=True)
    executor = SparkExecutor(master, store, output, report.progress)
    parts = Components(
        source=open_source(store),
        output=target,
        execute=executor.execute,
        parallelism=executor.parallelism,
        watcher=report,
        new_id=secrets.token_hex,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )
    try:
        run(job, parts)
    finally:
        executor.close()
    return report.document(job.name, output, History(target, job.name).head())


def main() -> int:
    """For spark-submit: the command with its failures as one line."""
    try:
        return int(run_command.main(prog_name="penstock-ingest", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except EngineError as error:
        click.echo(f"penstock: {error}", err=True)
        return EXIT_REFUSED if is_refusal(error) else EXIT_FAILED


def is_refusal(error: EngineError) -> bool:
    """Whether the job could not even begin as asked: something has to be mended before it is run again."""
    return isinstance(error, _REFUSALS)


if __name__ == "__main__":
    sys.exit(main())
