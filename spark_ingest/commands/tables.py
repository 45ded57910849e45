"""The tables of a job: `penstock ingest publish` adds files to catalogs, `ddl` prints statements (docs/iceberg.md)."""

from __future__ import annotations

import re
from pathlib import Path

import click

from penstock.cli.failures import Failure
from penstock.cli.output import print_json, print_note
from spark_ingest.options import Pattern, job_option, json_option, output_option


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


@click.command()
@output_option
@job_option
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics of the job to print.")
@click.option("--database", default="", metavar="NAME", help="The database of the tables.  [default: the current one]")
@click.option("--partitions", is_flag=True, help="Name each directory, instead of letting Hive look for them.")
def ddl(output: str, job_name: str, topics: re.Pattern[str], database: str, partitions: bool) -> None:
    """Print CREATE EXTERNAL TABLE and the partitions of each table, for Hive, Athena and Spark.

    Columns are those of the newest commit. Changes nothing. Goes on past a table that a catalog cannot have, names it
    and ends with 1.

    \f
    Raises Failure.
    """
    from spark_ingest.errors import IngestRefused
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.protocol.history import History
    from spark_ingest.tables.described import described, files_of_table, location_of
    from spark_ingest.tables.hive import can_repair, directories_of, repair, statements

    history = History(open_output_store(output, is_written=False), job_name)
    head = history.head()
    left_out: list[str] = []
    for topic in sorted(head.schemas if head else ()):
        if not topics.fullmatch(topic):
            continue
        try:
            table = described(history, topic)
        except IngestRefused as error:
            print_note(f"left out: {error}")
            left_out.append(topic)
            continue
        is_named = partitions or not can_repair(table.layout)
        directories = directories_of(file.key for file in files_of_table(history, topic)) if is_named else []
        for statement in statements(table, database, location_of(history, topic), directories):
            click.echo(statement)
        if table.partitions and not is_named:
            click.echo(repair(table, database))
        click.echo()
    if left_out:
        raise Failure(f"{len(left_out)} tables were left out: {', '.join(left_out)}")
