"""`penstock context`: names nodes, so that commands need no --url."""

from __future__ import annotations

import os

import click

from penstock.cli.contexts import NAME, Context, complete_contexts, contexts_path, read_contexts, write_contexts
from penstock.cli.failures import Failure
from penstock.cli.groups import AliasGroup
from penstock.cli.node import check_urls
from penstock.cli.output import Column, print_json, print_note, print_table


@click.group(cls=AliasGroup)
def context() -> None:
    """Name nodes, and choose the node of later commands."""


@context.command()
@click.argument("name")
@click.option("--url", multiple=True, required=True, callback=check_urls, metavar="URL", help="Address of a node.")
@click.option("--token", metavar="TOKEN", help="Bearer token for these addresses.")
@click.option("--cacert", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="CA certificates (PEM).")
def add(name: str, url: str, token: str | None, cacert: str | None) -> None:
    """Add a context. The first one becomes the current one.

    The file is penstock/contexts.toml in the XDG config directory (~/.config), readable by its owner only.

    \f
    Raises Failure, click.BadParameter.
    """
    if not NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is not a name of letters, digits, '-' and '_'", param_hint="'NAME'")
    contexts = read_contexts(path := contexts_path())
    if name in contexts.named:
        raise Failure(f"there is a context {name} already; remove it first: penstock context rm {name}")
    contexts.named[name] = Context(url, token, cacert and os.path.abspath(cacert))
    contexts.current = contexts.current or name
    write_contexts(path, contexts)
    click.echo(f"Added context {name}{', which is the current one' if contexts.current == name else ''}.")


@context.command()
@click.argument("name", shell_complete=complete_contexts)
def use(name: str) -> None:
    """Make a context the current one."""
    contexts = read_contexts(path := contexts_path())
    contexts.get(name)
    contexts.current = name
    write_contexts(path, contexts)
    click.echo(f"The current context is {name}.")


@context.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def list_contexts(as_json: bool) -> None:
    """List the contexts. Tokens are not shown."""
    contexts = read_contexts(contexts_path())
    rows = [
        {"name": name, "current": name == contexts.current, "url": context.url, "has_token": context.token is not None,
         "cacert": context.cacert}
        for name, context in sorted(contexts.named.items())
    ]  # fmt: skip
    if as_json:
        print_json({"contexts": rows})
    elif not rows:
        print_note("There are no contexts. Add one with: penstock context add NAME --url URL")
    else:
        columns = [Column(name, is_text=True) for name in ("current", "name", "url", "token", "cacert")]
        shown = [
            ("*" if row["current"] else "", row["name"], row["url"], row["has_token"], row["cacert"]) for row in rows
        ]
        print_table(columns, shown)


@context.command("rm")
@click.argument("name", shell_complete=complete_contexts)
def remove(name: str) -> None:
    """Remove a context."""
    contexts = read_contexts(path := contexts_path())
    contexts.get(name)
    del contexts.named[name]
    if contexts.current == name:
        contexts.current = None
    write_contexts(path, contexts)
    click.echo(f"Removed context {name}.")
