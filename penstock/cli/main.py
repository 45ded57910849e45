"""The `penstock` command: a table of its commands, each imported only when it is called.

Knows nothing of what the commands do. Importing them all would cost more time than most of them take to run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import click
from click.shell_completion import shell_complete

from penstock.cli.endings import ExitCode, ending_of

_COMPLETION = "_PENSTOCK_COMPLETE"  # the shell sets it to ask for completions, as click's documentation tells


class Place(NamedTuple):
    module: str
    name: str
    summary: str  # what `penstock --help` shows, the same as the first sentence of the command's own help


PLACES = {
    "serve": Place("penstock.cli.commands.serve", "serve", "Run a node."),
    "topic": Place("penstock.cli.commands.topic", "topic", "Create, list, describe, alter, delete and roll topics."),
    "produce": Place("penstock.cli.commands.produce", "produce", "Send files or standard input to a topic."),
    "consume": Place("penstock.cli.commands.consume", "consume", "Print the records of a topic."),
    "token": Place("penstock.cli.commands.token", "token", "Make and list the tokens of a node."),
    "tier": Place("penstock.cli.commands.tier", "tier", "See what is in the object store."),
    "ingest": Place("penstock.cli.commands.ingest", "ingest", "Write topics into tables with Spark."),
    "segment": Place("penstock.cli.commands.segment", "segment", "Look into segment files."),
    "doctor": Place("penstock.cli.commands.doctor", "doctor", "Check this machine, and a running node."),
    "cluster": Place(
        "penstock.cli.commands.cluster", "cluster", "See the nodes of the cluster, and move partitions between them."
    ),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = PLACES.get(cmd_name)
        if place is None:
            return None
        command = getattr(import_module(place.module), place.name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in PLACES.items()])


def _print_version(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version  # slow, and needed by nobody else

        click.echo(f"penstock {version('penstock')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def penstock() -> None:
    """An event log that speaks HTTP."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. A failure becomes one line on standard error.

    Not click's own `main`, which ends with 1 on a broken pipe and prints for an interrupt.
    """
    completion = os.environ.get(_COMPLETION)
    if completion:
        return shell_complete(penstock, {}, "penstock", _COMPLETION, completion)
    try:
        with penstock.make_context("penstock", list(sys.argv[1:] if arguments is None else arguments)) as context:
            penstock.invoke(context)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return ending_of(error)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
