"""`penstock ingest publish`: adds committed files to Iceberg tables, without Spark."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.output import print_json, print_note
from spark_ingest.options import job_option, json_option, output_option


@click.command()
@output_option
@job_option
@click.option(
    "--tables",
    "tables_file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A TOML file with the catalog and the names of tables.",
)
@json_option
def publish(output: str, job_name: str, tables_file: Path, as_json: bool) -> None:
    """Add committed files to Iceberg tables, each commit once, as one snapshot.

    `ingest run --tables` does the same after its commits. Ends with 1 if a table is not up to date.

    \f
    Raises the error of the tables that are not up to date.
    """
    from spark_ingest.tables.job_tables import JobTables, print_tables

    tables, failure = JobTables(tables_file, output, job_name).publish()
    if as_json:
        print_json({"job": job_name, "tables": tables})
    else:
        print_tables(tables)
        if not tables:
            print_note("No commit has a table yet.")
    if failure:
        raise failure
