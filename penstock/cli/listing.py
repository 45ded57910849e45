"""The list commands: the options of their pages, and what they print. A page of the API is one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from penstock.cli.node import CommandT
from penstock.cli.output import Column, print_json, print_limits, print_note, print_table
from penstock.transport.exchange import Json

Page = dict[str, str | int]
_OPTIONS = (
    click.option("--prefix", metavar="TEXT", help="Only names, or ids, that begin with it."),
    click.option("--limit", type=click.IntRange(1, 1000), metavar="N", help="At most N of them.  [default: all]"),
    click.option("--after", metavar="NEXT", help="The page after the one that had this as `next`."),
)


def page_options(command: CommandT) -> CommandT:
    """Adds --prefix, --limit and --after. The command gets `page`, their values as query parameters."""

    @wraps(command)
    def with_page(*arguments: Any, **options: Any) -> Any:
        given = ((name, options.pop(name)) for name in ("prefix", "limit", "after"))
        return command(*arguments, page={name: value for name, value in given if value is not None}, **options)

    for option in reversed(_OPTIONS):
        with_page = option(with_page)
    return with_page  # type: ignore[return-value]


def print_page(
    document: Json,
    what: str,
    columns: Sequence[Column],
    row_of: Callable[[Json], Sequence[object]],
    empty: str,
    *,
    as_json: bool,
) -> None:
    """Prints the page of a list. `what` is the name of its member; `empty` is printed if it has none."""
    if as_json:
        print_json(document)
    elif not print_limits(document) and not document[what]:
        print_note(empty)
    else:
        print_table(columns, [row_of(item) for item in document[what]])
        if (following := document.get("next")) is not None:  # absent from an older node
            shown = f"{len(document[what])} of {document['total']}"
            print_note(f"These are {shown}. For the next ones, add: --after {following}")


def text_columns(*names: str) -> list[Column]:
    return [Column(name, is_text=True) for name in names]
