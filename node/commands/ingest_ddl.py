"""`penstock ingest ddl`: prints the tables of a job as statements of Hive (docs/iceberg.md, Hive)."""

from __future__ import annotations

import re

import click

from penstock.cli.failures import Failure
from penstock.cli.output import print_note
from spark_ingest.options import Pattern, job_option, output_option


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
        directories = directories_of(one.key for one in files_of_table(history, topic)) if is_named else []
        for statement in statements(table, database, location_of(history, topic), directories):
            click.echo(statement)
        if table.partitions and not is_named:
            click.echo(repair(table, database))
        click.echo()
    if left_out:
        raise Failure(f"{len(left_out)} tables were left out: {', '.join(left_out)}")
