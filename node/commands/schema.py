"""`penstock schema check`: tries a JSON Schema and records of a file as a node would, without a node."""

from __future__ import annotations

from typing import BinaryIO

import click

from engine.errors import InvalidConfig
from engine.schemas.changes import find_narrowing
from engine.schemas.schema_text import read_schema
from engine.schemas.value_schema import ValueSchema
from penstock.cli.failures import Failure
from penstock.cli.output import print_note

SHOWN_MAX = 20  # lines that do not follow the schema


@click.group()
def schema() -> None:
    """Try JSON Schemas before a topic requires them."""


@schema.command()
@click.argument("schema_file", metavar="SCHEMA", type=click.File("rb"))
@click.argument("records_file", metavar="[RECORDS]", type=click.File("rb"), required=False)
@click.option("--after", "earlier_file", type=click.File("rb"), help="Also compare with this earlier schema.")
def check(schema_file: BinaryIO, records_file: BinaryIO | None, earlier_file: BinaryIO | None) -> None:
    """Check that a topic can have SCHEMA, and that each line of RECORDS is a value that follows it.

    A topic's present schema comes from `penstock topic schema`, its values from `penstock consume`.

    \f
    Raises Failure if the schema cannot be used, may refuse earlier values, or a line does not follow it.
    """
    text = _read_text(schema_file)
    try:
        compiled = ValueSchema(text)
        narrowing = None
        if earlier_file is not None:
            narrowing = find_narrowing(read_schema(_read_text(earlier_file)), read_schema(text))
    except InvalidConfig as error:
        raise Failure(str(error)) from None
    click.echo(f"{schema_file.name}: a topic can have this schema.")
    if earlier_file is not None and narrowing is None:
        click.echo(f"Values that follow {earlier_file.name} follow it too.")
    failed = 0 if records_file is None else _check_lines(compiled, records_file)
    if narrowing is not None:
        place = narrowing.pointer or "the top"
        raise Failure(
            f"a value of {earlier_file.name if earlier_file else ''} may be refused: at {place}, {narrowing.text}"
        )
    if failed:
        raise Failure(f"{failed} lines do not follow the schema")


def _check_lines(compiled: ValueSchema, file: BinaryIO) -> int:
    """Prints the first lines that do not follow the schema, and returns how many do not."""
    checked = failed = 0
    for number, line in enumerate(file, 1):
        if not (value := line.strip()):
            continue
        checked += 1
        violation = compiled.find_violation((value,), is_null_allowed=False)
        if violation is None:
            continue
        failed += 1
        if failed <= SHOWN_MAX:
            click.echo(f"line {number}: {violation.pointer or 'the whole value'}: {violation.text}")
    if failed > SHOWN_MAX:
        print_note(f"{failed - SHOWN_MAX} more lines do not follow it.")
    click.echo(f"{checked - failed} of {checked} lines follow it.")
    return failed


def _read_text(file: BinaryIO) -> str:
    """Returns the text of a file. Raises Failure."""
    try:
        return file.read().decode()
    except UnicodeDecodeError:
        raise Failure(f"{file.name} is not UTF-8") from None
