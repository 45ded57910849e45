"""The command that runs a job: `penstock ingest run`, and the script for spark-submit (job.py) with the same options.

Parses options and opens stores; runner.py does the work.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore, StoreUnusable
from spark_ingest.choices import DEAD_LETTER_MAX_PERCENT, Choices
from spark_ingest.commands.clock import now_ms
from spark_ingest.config.choosing import OPTIONS_OF_TOPICS, TopicChoices, check_event_time
from spark_ingest.config.job_file import JobFile, read_job_file
from spark_ingest.config.job_settings import ENGINES, LOCAL, SPARK, parameters_of
from spark_ingest.config.job_topics import MISFIT_MAX_PERCENT, ON_MISFIT
from spark_ingest.config.run_options import repeating_options, repetition_of
from spark_ingest.decode.declared_columns import read_declared
from spark_ingest.errors import IngestRefused
from spark_ingest.execution.local import LocalExecutor
from spark_ingest.options import (
    Address,
    Pattern,
    PayloadName,
    Start,
    TopicPercent,
    duration_s,
    job_option,
    json_option,
    output_option,
    store_option,
    tables_option,
)
from spark_ingest.output.stores import open_output_store, open_source_store
from spark_ingest.plan import EVENT_TIME_FALLBACKS, FAIL, JSON, RECORD
from spark_ingest.protocol.failures import Limits
from spark_ingest.protocol.history import History, cluster_of_job
from spark_ingest.protocol.planner import (
    AGED,
    EARLIEST,
    FAIL_ON_LOSS,
    PLAN_BYTES_MAX,
    SKIP_LOST,
    TASK_BYTES,
    Selection,
)
from spark_ingest.protocol.runner import Components, Job, run
from spark_ingest.protocol.status import lag
from spark_ingest.repeat import Stop, repeat
from spark_ingest.report import Report, print_document, print_summary
from spark_ingest.run_metrics import MetricTargets, measured
from spark_ingest.spark.environment import is_submitted, require_spark
from spark_ingest.spark.execute import SparkExecutor
from spark_ingest.tables.job_tables import JobTables, name_rules, print_tables

if TYPE_CHECKING:
    from spark_ingest.protocol.commit import Commit
    from spark_ingest.upkeep.policy import Upkeep

EXIT_FAILED, EXIT_REFUSED, EXIT_LOST = 1, 2, 5
_USAGE_ERRORS = (IngestRefused, StoreUnusable)


def _read_config(context: click.Context, _: click.Parameter, path: Path | None) -> JobFile:
    """Makes the settings of the file the defaults of the options."""
    if path is None:
        return JobFile({}, {}, {})
    file = read_job_file(path)
    of_topics = {name: value for name, value in file.defaults.items() if name in OPTIONS_OF_TOPICS}
    context.default_map = parameters_of(dict(file.job)) | of_topics
    return file


@click.command("run")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    is_eager=True,
    callback=_read_config,
    help="A TOML file with the settings of the job and of its topics. Options override it.",
)
@store_option
@output_option
@click.option(
    "--topics",
    required=True,
    type=Pattern(),
    help="Topics to ingest: a regular expression that matches the whole name.",
)
@click.option("--exclude", type=Pattern(), help="Topics to leave out, as a regular expression.")
@click.option("--cluster", help="Id of the cluster; required if the store has several.")
@job_option
@click.option(
    "--payload",
    type=PayloadName(),
    default=JSON,
    show_default=True,
    help="json: one column for each member. raw: the value unchanged, in one column. Or another decoder; most of them "
    "need settings of --config.",
)
@click.option("--event-time", metavar="FIELD", help="Member that holds the event time: ts, meta.ts or /meta/ts.")
@click.option(
    "--event-time-fallback",
    type=click.Choice(EVENT_TIME_FALLBACKS),
    default=RECORD,
    show_default=True,
    help="For a record without an event time: use the record's timestamp, write a dead letter, or fail.",
)
@click.option(
    "--dead-letter-max-percent",
    "bad_percents_max",
    type=TopicPercent(),
    multiple=True,
    metavar="[TOPIC=]PERCENT",
    help="Do not commit a topic if a larger share of its new records than this are dead letters. TOPIC=PERCENT "
    "sets the limit of one topic; may be repeated. Ten are always allowed, unless PERCENT is 0.  "
    f"[default: {DEAD_LETTER_MAX_PERCENT}]",
)
@click.option(
    "--on-misfit",
    type=click.Choice(ON_MISFIT),
    default=FAIL,
    show_default=True,
    help="For a column with too many values of another type, which are in _extra and in no sum. fail: do not commit "
    "the topic. widen: a bigint column becomes decimal in new files; else fail. keep: commit.",
)
@click.option(
    "--misfit-max-percent",
    type=click.FloatRange(0, 100),
    default=MISFIT_MAX_PERCENT,
    show_default=True,
    help="The largest share of a column's values that may have another type. Ten are always allowed, unless it is 0.",
)
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(path_type=Path),
    help="A TOML file with the types of columns by topic and member.",
)
@click.option(
    "--start",
    type=Start(),
    default=EARLIEST,
    show_default=True,
    help="Where a topic that is new to the job starts: earliest, latest, or at segments with records of an age (7d).",
)
@click.option(
    "--on-lost",
    type=click.Choice((FAIL_ON_LOSS, SKIP_LOST)),
    default=FAIL_ON_LOSS,
    show_default=True,
    help="For records that retention or a topic deletion removed before they were ingested. fail: do nothing. "
    f"skip: continue, record the loss in the commit, exit with {EXIT_LOST}.",
)
@click.option(
    "--no-register",
    is_flag=True,
    help="Do not write into --store which records this job still needs. Topics with retention_waits_for_jobs then do "
    "not wait for it.",
)
@click.option("--allow-no-topics", is_flag=True, help="Exit with 0 if no topic matches --topics.")
@click.option(
    "--task-bytes",
    type=click.IntRange(1 << 10),
    default=TASK_BYTES,
    show_default=True,
    help="Log bytes for each task. A task holds its rows in memory.",
)
@click.option(
    "--commit-bytes",
    "plan_bytes_max",
    type=click.IntRange(1 << 10),
    default=PLAN_BYTES_MAX,
    show_default=True,
    help="Log bytes for each commit. A larger backlog takes several commits.",
)
@tables_option("Also add committed files to Iceberg tables: a TOML file with the catalog and the names of tables.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=SPARK,
    show_default=True,
    help="spark: run the tasks on a Spark master. local: run them on this machine, without Spark and Java. Both write "
    "the same files.",
)
@click.option("--master", help="Master of --engine spark.  [default: from spark-submit, else local[*]]")
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Tasks of --engine local that run at once; each takes up to 1 GB of memory.  [default: the cores]",
)
@repeating_options
@click.option(
    "--metrics-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Replace this file with the metrics of each run, in Prometheus's text format.",
)
@click.option("--statsd", metavar="HOST:PORT", type=Address(), help="Send the metrics of each run to statsd, by UDP.")
@json_option
def run_command(
    store: str,
    output: str,
    job_name: str,
    as_json: bool,
    engine: str,
    master: str | None,
    workers: int | None,
    every_s: float | None,
    follow: bool,
    metrics_file: Path | None,
    statsd: tuple[str, int] | None,
    upkeep_s: float | None,
    file: JobFile,
    *,
    is_resuming: bool = False,
    **options: Any,
) -> None:
    """Write new records of the store into Parquet tables, exactly once.

    After a failure or a kill, run it again: it resumes. A run without new records adds 0 rows. Exit codes: 1 failed,
    2 invalid options or environment, 5 continued without lost records.

    \f
    Raises the error of the topics that failed, IngestRefused.
    """
    repetition = repetition_of(every_s, upkeep_s, engine, follow=follow)
    check_engine(engine, master, workers)
    percents = dict(options["bad_percents_max"])
    choices = choices_of(file, options)
    selection = selection_of(options, choices)
    tables = JobTables(options["tables_file"], output, job_name)
    tables.check(widens=choices.may_widen, layouts=choices.layouts)
    job = Job(
        job_name,
        selection,
        choices.defaults.recipe,
        limits_of(percents, choices),
        file.run_limits,
        not options["no_register"],
        _plan_nothing if is_resuming else None,
    )
    source, target = open_source_store(store), open_output_store(output, is_written=False)
    cluster_of_job(source, target, job_name, selection.cluster)
    if engine == SPARK:
        require_spark()  # last, so that a wrong option is reported first
    target.probe()

    def run_once() -> tuple[dict[str, Any], EngineError | None]:
        report = Report(lambda topic: choices(topic).recipe, is_quiet=as_json and is_submitted())
        executor: SparkExecutor | LocalExecutor
        if engine == SPARK:
            executor = SparkExecutor(master, store, output, report.progress, report.note)
        else:
            executor = LocalExecutor(source, target, workers or len(os.sched_getaffinity(0)), report.progress)
        failure = execute_job(job, source, target, executor, report)
        document = report.document(job.name, output, History(target, job.name).head())
        document["tables"], unpublished = tables.publish()
        if unpublished is None and choices.gathers:
            from spark_ingest.upkeep.gather import gather  # with PyArrow

            document["gathered"] = gather(
                target, job.name, report.commits, choices, new_id=secrets.token_hex, publish=tables.publisher
            )
        return document, failure or unpublished

    def read_lag() -> dict[str, Any]:
        return lag(source, target, job.name, selection.wants, selection.cluster)

    targets = MetricTargets(job.name, metrics_file, statsd, read_lag, now_ms)
    run_and_measure = measured(run_once, targets, lambda text: click.echo(text, err=True))

    def run_and_keep_up() -> tuple[dict[str, Any], EngineError | None]:
        document, failure = run_and_measure()
        if upkeep is not None:
            document["upkeep"], problem = upkeep()
            failure = failure or problem
        return document, failure

    if repetition is not None:
        upkeep = _upkeep(target, job.name, upkeep_s, tables.publisher)
        repeat(run_and_keep_up, repetition, Stop(), time.monotonic, now_ms)
        return
    document, failure = run_and_measure()
    if as_json:
        print_document(document)
    elif document["commits"] or not failure:
        print_summary(document)
        print_tables(document["tables"])
    if failure:
        raise failure
    if document["lost"]:
        click.get_current_context().exit(EXIT_LOST)


def _plan_nothing(head: Commit | None, failed: Container[str]) -> None:
    """A step without plans of its own: only a stored plan is finished."""


def choices_of(file: JobFile, options: Mapping[str, Any]) -> TopicChoices:
    """Returns the choices of the options of topics and the job file. Raises IngestRefused."""
    check_event_time(options.get("event_time"))
    given = {name: options.get(name) for name in OPTIONS_OF_TOPICS}
    percents = dict(options.get("bad_percents_max", ()))
    if None in percents:
        given["dead_letter_max_percent"] = percents[None]
    declared = read_declared(options["schema_file"]) if options.get("schema_file") else {}
    choices = TopicChoices(file, given, declared)
    choices.check()
    return choices


def selection_of(options: Mapping[str, Any], choices: TopicChoices) -> Selection:
    options_used = (
        "topics",
        "exclude",
        "cluster",
        "start",
        "on_lost",
        "task_bytes",
        "plan_bytes_max",
        "allow_no_topics",
    )
    given: dict[str, Any] = {name: options[name] for name in options_used}
    given["names"] = name_rules(options.get("tables_file"))
    if (age_s := duration_s(options["start"])) is not None:
        given |= {"start": AGED, "start_age_ms": int(age_s * 1000)}
    return Selection(**given, choices=choices)


def _upkeep(output: ObjectStore, job: str, every_s: float | None, publish: Callable[[], None] | None) -> Upkeep | None:
    if every_s is None:
        return None
    from spark_ingest.upkeep.policy import Upkeep  # with PyArrow

    return Upkeep(output, job, every_s, time.monotonic, new_id=secrets.token_hex, publish=publish)


def check_engine(engine: str, master: str | None, workers: int | None) -> None:
    """Raises IngestRefused if an option belongs to the other engine."""
    if engine == LOCAL and master is not None:
        hint = "--workers sets the tasks of --engine local"
        raise IngestRefused("--master is an option of --engine spark", hint=hint)
    if engine == SPARK and workers is not None:
        raise IngestRefused("--workers is an option of --engine local", hint="use --master local[N], or --engine local")


def limits_of(percents: Mapping[str | None, float], choices: Choices | None = None) -> Limits:
    """Returns the limits of PERCENT and TOPIC=PERCENT, and those of the choices."""
    of_topics = {topic: percent for topic, percent in percents.items() if topic}
    return Limits(percents.get(None, DEAD_LETTER_MAX_PERCENT), of_topics, choices=choices)


def execute_job(
    job: Job, source: ObjectStore, output: ObjectStore, executor: SparkExecutor | LocalExecutor, report: Report
) -> EngineError | None:
    """Run a job; returns the error of topics that failed while others were committed. Raises any other error."""
    parts = Components(
        source=source,
        output=output,
        execute=executor.execute,
        parallelism=executor.parallelism,
        listener=report,
        new_id=secrets.token_hex,
        now_ms=now_ms,
    )
    try:
        run(job, parts)
    except EngineError as error:
        if not report.commits and not report.failures:
            raise
        return error
    finally:
        executor.close()
    return None


def main() -> int:
    """Runs the command for spark-submit; prints a failure as one line and returns the exit code."""
    try:
        return int(run_command.main(prog_name="penstock-ingest", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except EngineError as error:
        click.echo(f"penstock: {error}", err=True)
        return EXIT_REFUSED if is_usage_error(error) else EXIT_FAILED


def is_usage_error(error: EngineError) -> bool:
    """True if the job did not start because an option or the environment is wrong."""
    return isinstance(error, _USAGE_ERRORS)


if __name__ == "__main__":
    sys.exit(main())
