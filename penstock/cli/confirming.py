"""Asks before a command does what cannot be undone; a script says --yes."""

from __future__ import annotations

import sys

import click

from penstock.cli.failures import Failure

yes_option = click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, *, is_sure: bool) -> None:
    """Asks, unless --yes was given.

    Raises click.UsageError without a terminal to ask at, Failure if the answer is no.
    """
    if is_sure:
        return
    context = click.get_current_context()
    if not sys.stdin.isatty():
        raise click.UsageError(f"{context.info_name} needs --yes if standard input is not a terminal", context)
    if not click.confirm(question, err=True):
        raise Failure("nothing was changed")
