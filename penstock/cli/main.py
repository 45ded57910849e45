"""The `penstock` command: a table of its commands, each imported only when it is called.

Importing them all would take longer than most of them run. Commands without a module here come from the distribution
`penstock-server` (penstock/cli/server_commands.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import click
from click.shell_completion import shell_complete

from penstock.cli.failures import ExitCode, report_failure, require_standard_streams
from penstock.cli.groups import AliasGroup
from penstock.cli.node import SHARED, shared_options
from penstock.cli.output import colour_choice

_COMPLETION = "_PENSTOCK_COMPLETE"  # set by the shell when it asks for completions (click's documentation)


class LazyCommand(NamedTuple):
    """Holds the module of a command and its summary in `penstock --help`: the first sentence of its own help."""

    module: str  # its function has the name of the command; SERVER: an entry point of penstock-server
    summary: str


SERVER = ""


COMMANDS = {
    "serve": LazyCommand(SERVER, "Run a node."),
    "topic": LazyCommand(
        "penstock.cli.commands.topic",
        "Create, list, describe, alter, copy, delete and roll topics, and delete records.",
    ),
    "produce": LazyCommand("penstock.cli.commands.produce", "Send files or standard input to a topic."),
    "consume": LazyCommand("penstock.cli.commands.consume", "Print the records of a topic."),
    "table": LazyCommand("penstock.cli.commands.table", "Read compacted topics by key."),
    "group": LazyCommand("penstock.cli.commands.group", "List, describe, explain, reset and delete consumer groups."),
    "subscription": LazyCommand(
        "penstock.cli.commands.subscription",
        "Create, list, describe, update, pause, replay and delete push subscriptions.",
    ),
    "token": LazyCommand(
        "penstock.cli.commands.token",
        "Make, list, rotate and revoke tokens, in a file or in a cluster.",
    ),
    "tenant": LazyCommand(
        "penstock.cli.commands.tenant",
        "Create, limit, list and remove tenants: teams with names, tokens and rules of their own.",
    ),
    "acl": LazyCommand("penstock.cli.commands.acl", "Add, remove and list access rules, and ask what they decide."),
    "sign-url": LazyCommand(
        "penstock.cli.commands.sign_url", "Print a signed URL, for a client that cannot send a token."
    ),
    "url-key": LazyCommand("penstock.cli.commands.sign_url", "Add, list and remove the keys that sign URLs."),
    "quota": LazyCommand(
        "penstock.cli.commands.quota", "Set, list and remove quotas: how much of the cluster an owner may use."
    ),
    "perf": LazyCommand(
        "penstock.cli.commands.perf",
        "Produce and consume with a simple load, and check that nothing is lost, doubled or out of order.",
    ),
    "tier": LazyCommand("penstock.cli.commands.tier", "Show, verify and repair the object store, and restore from it."),
    "coordination": LazyCommand(
        SERVER, "Rebuild a lost coordination store from data directories, and secure the keys of ZooKeeper."
    ),
    "ingest": LazyCommand(SERVER, "Write topics into Parquet tables."),
    "schema": LazyCommand(SERVER, "Try JSON Schemas before a topic requires them."),
    "audit": LazyCommand(SERVER, "Print who changed what, and who was denied, from the audit files of a node."),
    "segment": LazyCommand(SERVER, "Print segment files."),
    "context": LazyCommand("penstock.cli.commands.context", "Name nodes, and choose the node of later commands."),
    "completion": LazyCommand("penstock.cli.commands.completion", "Print a completion script for a shell."),
    "doctor": LazyCommand("penstock.cli.commands.doctor", "Check this machine, and a running node."),
    "top": LazyCommand("penstock.cli.commands.top", "Show what is wrong, and the busiest topics."),
    "metrics": LazyCommand("penstock.cli.commands.top", "Show numbers of the last hour, from the memory of the nodes."),
    "version": LazyCommand("penstock.cli.commands.version", "Print the versions of the command and of the server."),
    "disk": LazyCommand(
        "penstock.cli.commands.disk", "Show the disks of a node, and move partitions between them while it runs."
    ),
    "cluster": LazyCommand(
        "penstock.cli.commands.cluster", "Show the nodes of the cluster, and move partitions between them."
    ),
}


class LazyGroup(AliasGroup):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command of this name. Raises Failure if it needs the server and that is not installed."""
        command_place = COMMANDS.get(cmd_name)
        if command_place is None:
            return None
        if command_place.module == SERVER:
            from penstock.cli.server_commands import load_server_command

            return load_server_command(cmd_name)
        command = getattr(import_module(command_place.module), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


def _print_version(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version  # slow to import, and used only here

        click.echo(f"penstock {version('penstock')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@shared_options
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@click.pass_context
def penstock(ctx: click.Context, /, **_: object) -> None:
    """Run and use an event log that speaks HTTP.

    Options for the node may be given here or after the command.

    \f
    Raises click.UsageError.
    """
    without_node = {name for name, command in COMMANDS.items() if command.module == SERVER} | {
        "context",
        "completion",
        "version",
    }
    if ctx.invoked_subcommand in without_node:
        flags = [option.opts[0] for option in ctx.command.params if option.name in SHARED and ctx.params[option.name]]
        if flags:
            raise click.UsageError(f"{flags[0]} is not an option of {ctx.invoked_subcommand}", ctx)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. A failure becomes one line on standard error.

    Replaces click's own `main`, which exits with 1 on a broken pipe and prints on an interrupt.
    """
    completion = os.environ.get(_COMPLETION)
    if completion:
        return shell_complete(penstock, {}, "penstock", _COMPLETION, completion)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        require_standard_streams()
        with penstock.make_context("penstock", list(words), color=colour_choice()) as context:
            penstock.invoke(context)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return report_failure(error, as_json="--json" in words)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
