"""`penstock ingest compact`: small files of tables become large ones (docs/ingest-operate.md, small files)."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import click

from penstock.cli.failures import Failure
from penstock.cli.output import format_bytes, format_count, print_json, print_note
from spark_ingest.options import Pattern, Seconds, job_option, json_option, output_option, tables_option

_MIB = 1 << 20
_HOUR, _DAY = "hour", "day"
_DAY_S = 24 * 3600


@click.command()
@output_option
@job_option
@click.option(
    "--topics", type=Pattern(), default=".*", show_default=True, help="Topics of the job, as a regular expression."
)
@click.option(
    "--file-bytes",
    type=click.IntRange(1 << 10),
    default=128 * _MIB,
    show_default=True,
    help="The size of a file to aim at. A file of half of it or more stays as it is.",
)
@click.option(
    "--min-files",
    "files_min",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    help="How many small files to wait for.",
)
@click.option(
    "--older-than",
    "older_s",
    type=Seconds(),
    metavar="DURATION",
    help="Only hours that ended at least this long before the newest commit.",
)
@click.option(
    "--to",
    "period",
    type=click.Choice((_HOUR, _DAY)),
    default=_HOUR,
    show_default=True,
    help="hour: files of one hour become one. day is refused for tables with directories of hours.",
)
@click.option(
    "--deduplicate",
    "distinct",
    metavar="COLUMN",
    default="",
    help="Keep only the newest of the rows of an hour with the same value of a column: _key, or an event id.",
)
@click.option(
    "--widen",
    "widens",
    is_flag=True,
    help="Also rewrite large files of older columns: with the types of now, and values of _extra that fit a column.",
)
@click.option(
    "--grace",
    "grace_s",
    type=Seconds(),
    metavar="DURATION",
    help="Remove replaced files this long after their replacement.  [default: at once, with --tables after 1d]",
)
@tables_option("Also replace the files in Iceberg tables. Required if the job adds files to any.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Change nothing; report what the first step would do.")
@json_option
def compact(
    output: str,
    job_name: str,
    topics: re.Pattern[str],
    file_bytes: int,
    files_min: int,
    older_s: float | None,
    period: str,
    distinct: str,
    widens: bool,
    grace_s: float | None,
    tables_file: Path | None,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Make large files of the small files of each hour. No row is added or lost.

    The new files have the columns that the table has now: values of _extra that fit one move there.

    After a kill, run it again. Runs of the job go on at the same time.

    \f
    Raises Failure, IngestRefused.
    """
    from spark_ingest.errors import IngestRefused
    from spark_ingest.execution.arrow_setup import set_up_arrow
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.tables.job_tables import JobTables
    from spark_ingest.upkeep.compact import Compaction
    from spark_ingest.upkeep.compact import compact as compact_files

    if period == _DAY:
        text = "--to day: files of these tables are in directories of hours, and a file of a day has no such directory"
        raise IngestRefused(text)
    set_up_arrow()
    older_ms = None if older_s is None else int(older_s * 1000)
    compaction = Compaction(topics, file_bytes, files_min, older_ms, distinct, widens=widens)
    grace_s = grace_s if grace_s is not None else _DAY_S * (tables_file is not None)
    done = compact_files(
        open_output_store(output, is_written=not is_dry),
        job_name,
        compaction,
        int(grace_s * 1000),
        new_id=secrets.token_hex,
        publish=JobTables(tables_file, output, job_name).publisher,
        is_dry=is_dry,
    )
    if as_json:
        print_json(
            {
                "job": job_name,
                "is_dry_run": is_dry,
                "rewrites": done.rewrites,
                "files_replaced": done.replaced,
                "bytes_replaced": done.replaced_bytes,
                "files": done.files,
                "bytes": done.size_bytes,
                "rows": done.rows,
                "dropped_rows": done.dropped,
                "files_removed": done.removed,
                "files_to_remove_later": done.waiting,
                "left": done.left,
                "unfit": done.unfit,
            }
        )
    else:
        would = "would become" if is_dry else "became"
        replaced = (
            f"{format_count(done.replaced, 'file')}, {format_bytes(done.replaced_bytes)}, {would} {done.files:,}."
        )
        print_note(replaced if done.replaced else "Nothing to compact.")
        if done.removed:
            print_note(f"{format_count(done.removed, 'replaced file')} removed.")
        if done.waiting:
            print_note(f"To be removed after --grace: {format_count(done.waiting, 'replaced file')}.")
        for topic, count in sorted(done.dropped.items()):
            print_note(f"{topic}: {count:,} rows had the {distinct} of a newer row and were dropped.")
        for directory, why in sorted(done.left.items()):
            print_note(f"left: {directory}: {why}")
        for prefix, form in sorted(done.unfit.items()):
            print_note(f"{prefix}: its files are {form}; only Parquet files are compacted.")
    if done.left:
        directories = format_count(len(done.left), "directory", "directories")
        raise Failure(f"{directories} of job {job_name} not compacted")
