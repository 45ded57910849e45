"""`penstock ingest erase`: rows of a key are dropped from the tables of a job (docs/ingest-operate.md)."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import click

from penstock.cli.failures import Failure
from penstock.cli.output import print_json, print_note
from spark_ingest.options import Pattern, StoreUrl, job_option, json_option, output_option, tables_option


@click.command()
@output_option
@job_option
@click.option("--key", required=True, help="The key of the records, as text.")
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics of the job to search.")
@click.option("--store", type=StoreUrl(), help="The store of segments, to report what it keeps.")
@tables_option("Also replace the files in Iceberg tables. Required if the job adds files to any.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Change nothing; report how many rows would be dropped.")
@json_option
def erase(
    output: str,
    job_name: str,
    key: str,
    topics: re.Pattern[str],
    store: str | None,
    tables_file: Path | None,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Drop all rows and dead letters of a key from the tables of a job. Reports what cannot be erased, and why.

    After a kill, run it again. Positions do not change.

    \f
    Raises Failure.
    """
    from spark_ingest.execution.arrow_setup import set_up_arrow
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.tables.job_tables import JobTables
    from spark_ingest.upkeep.erase import erase as erase_rows

    set_up_arrow()
    erased = erase_rows(
        open_output_store(output, is_written=not is_dry),
        job_name,
        key.encode(),
        topics,
        new_id=secrets.token_hex,
        source=open_source_store(store) if store else None,
        publish=JobTables(tables_file, output, job_name).publisher,
        is_dry=is_dry,
    )
    done = erased.done
    if as_json:
        document = {"job": job_name, "is_dry_run": is_dry, "rows": erased.found, "rewrites": done.rewrites}
        files = {"files_replaced": done.replaced, "files_removed": done.removed}
        print_json({**document, **files, "left": done.left, "remains": erased.remains, "unsearched": erased.unsearched})
    else:
        would = "would be dropped" if is_dry else "dropped"
        for topic, count in sorted(erased.found.items()):
            print_note(f"{topic}: {count:,} rows {would}.")
        if not erased.found:
            print_note("No row of the searched files has this key." if erased.unsearched else "No row has this key.")
        for what in erased.remains:
            print_note(f"not erased: {what}")
        for directory, why in sorted(done.left.items()):
            print_note(f"left: {directory}: {why}")
    if done.left:
        raise Failure(f"{len(done.left)} directories of job {job_name} still have the key")
    if erased.unsearched:
        raise Failure(f"not searched, because only Parquet files are: {', '.join(erased.unsearched)}")
