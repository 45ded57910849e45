"""The settings of a job, in the section [job] of a job file. Most are options of `penstock ingest run` too."""

from __future__ import annotations

from spark_ingest.config.setting import NUMBER, SWITCH, TEXT, WHOLE, Setting, is_expression
from spark_ingest.options import duration_s
from spark_ingest.output.names import JOB_NAME
from spark_ingest.protocol.planner import EARLIEST, FAIL_ON_LOSS, LATEST, PLAN_BYTES_MAX, SKIP_LOST, TASK_BYTES

SPARK, LOCAL = "spark", "local"
ENGINES = (SPARK, LOCAL)
YEAR_S = 366 * 86_400


def _job_name(value: str) -> str | None:
    return None if JOB_NAME.fullmatch(value) else "is not a job name; write letters, digits, '.', '_' and '-'"


def _start(value: str) -> str | None:
    is_right = value in (EARLIEST, LATEST) or duration_s(value) is not None
    return None if is_right else f"is {value!r}; write earliest, latest, or an age such as 12h or 7d"


_SETTINGS = (
    Setting("name", TEXT, "default", "A job keeps its own plans and commits, under this name.", check=_job_name),
    Setting("store", TEXT, None, "The store with the tiered segments: a URL or a path.", is_required=True),
    Setting("output", TEXT, None, "Tables, plans and commits are written there: a URL or a path.", is_required=True),
    Setting(
        "topics",
        TEXT,
        None,
        "Each run ingests all topics whose whole name matches this regular expression, also new ones.",
        is_required=True,
        check=is_expression,
    ),
    Setting("exclude", TEXT, None, "Leaves out topics whose whole name matches.", check=is_expression),
    Setting("cluster", TEXT, None, "The id of the cluster; required if the store has several."),
    Setting(
        "start",
        TEXT,
        EARLIEST,
        "Where a topic starts that is new to the job: its first record (`earliest`), records from now on "
        "(`latest`), or the first segment with records of this age (`7d`).",
        check=_start,
    ),
    Setting(
        "on_lost",
        TEXT,
        FAIL_ON_LOSS,
        "For records that were removed before they were ingested: hold the topic back, or record the loss and go on.",
        choices=(FAIL_ON_LOSS, SKIP_LOST),
    ),
    Setting("register", SWITCH, True, "Topics with `retention_waits_for_jobs` wait for a registered job."),
    Setting("allow_no_topics", SWITCH, False, "Ends without an error if no topic matches."),
    Setting(
        "task_bytes",
        WHOLE,
        TASK_BYTES,
        "Log bytes of one task. A task writes one file for each hour of data, so larger tasks write fewer files.",
        minimum=1 << 10,
        maximum=1 << 40,
    ),
    Setting(
        "commit_bytes",
        WHOLE,
        PLAN_BYTES_MAX,
        "Log bytes of one commit. A larger backlog takes several commits; a kill repeats at most one.",
        minimum=1 << 10,
        maximum=1 << 50,
    ),
    Setting("tables", TEXT, None, "A TOML file with a catalog: committed files are also added to Iceberg tables."),
    Setting("engine", TEXT, SPARK, "Where tasks run: on Spark, or on this machine.", choices=ENGINES),
    Setting("master", TEXT, None, "Where Spark runs; without it spark-submit's master, else `local[*]`."),
    Setting(
        "workers",
        WHOLE,
        None,
        "Tasks of the engine `local` that run at once; without it the cores. Each takes up to 1 GB of memory.",
        minimum=1,
        maximum=4096,
    ),
    Setting(
        "every_s",
        NUMBER,
        None,
        "One process starts a run every so many seconds, until SIGTERM; needs the engine `local`.",
        minimum=1,
        maximum=YEAR_S,
    ),
    Setting(
        "follow",
        SWITCH,
        False,
        "One process looks for new segments every minute, or every `every_s`, until SIGTERM; needs the engine `local`.",
    ),
    Setting(
        "run_records_max",
        WHOLE,
        None,
        "A run ends after this number of records; the next one goes on there.",
        minimum=1,
        maximum=1 << 50,
    ),
    Setting("run_bytes_max", WHOLE, None, "The same for bytes of the log.", minimum=1 << 10, maximum=1 << 50),
    Setting(
        "run_span_max_s",
        WHOLE,
        None,
        "A run takes of each partition segments that begin within this time of the first one, so partitions go on "
        "together in time; it makes one plan.",
        minimum=1,
        maximum=YEAR_S,
    ),
    Setting(
        "run_max_s",
        NUMBER,
        None,
        "A run makes no further plan after this time; it finishes the plan under way.",
        minimum=1,
        maximum=YEAR_S,
    ),
)
JOB_SETTINGS = {setting.name: setting for setting in _SETTINGS}

FILE_ONLY = ("run_records_max", "run_bytes_max", "run_max_s", "run_span_max_s")  # no options
# The option of `run` that a setting gives, where its name differs.
_PARAMETERS = {"name": "job_name", "commit_bytes": "plan_bytes_max", "tables": "tables_file"}


def parameters_of(job: dict[str, object]) -> dict[str, object]:
    """Returns the settings of a checked section as values of the options of `run`."""
    parameters = {_PARAMETERS.get(name, name): value for name, value in job.items() if name not in FILE_ONLY}
    if "register" in parameters:
        parameters["no_register"] = not parameters.pop("register")
    if "every_s" in parameters:
        parameters["every_s"] = f"{parameters['every_s']:g}s"
    return parameters
