"""`penstock token`: makes, rotates and revokes tokens, in the tokens file of a node or in the store of its cluster.

With --tokens-file the command of the installed server changes the file, and nothing is sent. Otherwise it asks the node
that --url names, which has them in its coordination store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from penstock.admin import api
from penstock.cli.commands.acl import change, force_option, tenant_option
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page, text_columns
from penstock.cli.node import Node, names_node, node_options, shared_options, shared_values
from penstock.cli.output import format_time, print_json, print_result
from penstock.cli.server_commands import load_server_command
from penstock.transport.exchange import Json
from penstock.units import parse_quantity

# The rights of the tokens file, as operations on a resource.
RIGHTS: dict[str, tuple[str, list[str]]] = {
    "read": ("topic", ["read"]),
    "write": ("topic", ["write"]),
    "admin": ("topic", ["create", "alter", "delete"]),
    "group": ("group", ["describe", "read", "alter", "delete"]),
}
CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_file_option = click.option(
    "--tokens-file",
    envvar="PENSTOCK_TOKENS_FILE",
    metavar="FILE",
    help="The file that a node is given with --tokens-file, in place of a node.  [env: PENSTOCK_TOKENS_FILE]",
)


@click.group(cls=AliasGroup)
@shared_options
def token(**_: object) -> None:
    """Make, list, rotate and revoke tokens, in a file or in a cluster."""


def _place_options(command: CommandT) -> CommandT:
    """Add the options that name the file or a node. The command gets one of `path` and `node`. Raises UsageError."""

    @wraps(command)
    def with_place(*arguments: Any, tokens_file: str | None, node: Node, **options: Any) -> Any:
        ctx = click.get_current_context()
        named = shared_values(ctx)
        if tokens_file and (named["url"] or named["context"]):
            if ctx.get_parameter_source("tokens_file") is not ParameterSource.ENVIRONMENT:
                raise click.UsageError("--tokens-file is a file, and --url or --context names a node: give one of them")
            tokens_file = None
        if not tokens_file and not names_node(ctx):
            text = "name the place of the tokens: --tokens-file FILE, or a node with --url, PENSTOCK_URL or --context"
            raise click.UsageError(text)
        return command(*arguments, path=tokens_file, node=node, **options)

    return _file_option(node_options(with_place))  # type: ignore[return-value]


@token.command()
@click.argument("name")
@click.option("--read", multiple=True, metavar="PREFIX", help="Fetch from topics whose names begin so; '' is all.")
@click.option("--write", multiple=True, metavar="PREFIX", help="Produce to topics whose names begin so; '' is all.")
@click.option("--admin", multiple=True, metavar="PREFIX", help="Create, alter, roll and delete topics that begin so.")
@click.option("--group", multiple=True, metavar="PREFIX", help="Use consumer groups whose names begin so; '' is all.")
@click.option("--metrics", is_flag=True, help="Read /metrics, which has figures of all topics.")
@click.option("--life", metavar="DURATION", help="The token ends after this time: 90d. Only at a node.")
@tenant_option
@_place_options
def create(
    name: str, read: tuple[str, ...], write: tuple[str, ...], admin: tuple[str, ...], group: tuple[str, ...],
    metrics: bool, life: str | None, tenant: str | None, path: str | None, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Make a token and print it once. It is kept as a hash, and is not shown again.

    Options may be repeated. At a node each right becomes an access rule.

    \f
    Raises Failure, UsageError.
    """
    rights = {"read": read, "write": write, "admin": admin, "group": group}
    if path is not None:
        if life is not None:
            raise click.UsageError("tokens of a file do not end by themselves: leave out --life, or name a node")
        _refuse_tenant(tenant)
        _call_server("create", name=name, **rights, metrics=metrics, tokens_file=path, as_json=as_json)
        return
    document = {"name": name, "life_ms": _milliseconds("--life", life)}
    made = change(node, "POST", "tokens", document, tenant=tenant)
    _print_new(made, f"Added {name} to the cluster.", as_json)  # before its rules: it is not shown again
    for rule in _rules(name, rights, metrics):
        change(node, "POST", "rules", rule, tenant=tenant)


@token.command()
@click.argument("name")
@click.option("--life", metavar="DURATION", help="The new token ends after this time: 90d.")
@click.option("--keep", metavar="DURATION", default="1h", show_default=True, help="The tokens before it stay so long.")
@tenant_option
@node_options
def rotate(name: str, life: str | None, keep: str, tenant: str | None, node: Node, as_json: bool) -> None:
    """Make another token with the name and the rights of one, at a node, and print it once.

    \f
    Raises Failure, UsageError.
    """
    body = {"life_ms": _milliseconds("--life", life), "keep_ms": _milliseconds("--keep", keep)}
    made = change(node, "POST", "tokens", body, of=f"{name}/rotate", tenant=tenant)
    _print_new(made, f"Rotated {name}; the tokens before it end in {keep}.", as_json)


@token.command()
@click.argument("name", metavar="ID_OR_NAME")
@force_option
@tenant_option
@_place_options
def revoke(name: str, force: bool, tenant: str | None, path: str | None, node: Node, as_json: bool) -> None:
    """Remove a token. It is rejected from then on.

    \f
    Raises Failure, UsageError.
    """
    if path is not None:
        _refuse_tenant(tenant)
        _call_server("revoke", name=name, tokens_file=path, as_json=as_json)
        return
    document = change(node, "DELETE", "tokens", of=name, force=force, tenant=tenant)
    print_result(document, f"Revoked {name} in the cluster.", as_json=as_json)


@token.command("list")
@tenant_option
@page_options
@_place_options
def list_tokens(tenant: str | None, page: Page, path: str | None, node: Node, as_json: bool) -> None:
    """List the tokens. A file shows their rights, and a node shows their ends.

    \f
    Raises Failure, UsageError.
    """
    if path is not None:
        _refuse_tenant(tenant)
        if page:
            raise click.UsageError(f"the list of a file has no pages: leave out --{next(iter(page))}, or name a node")
        _call_server("list", tokens_file=path, as_json=as_json)
    else:
        _print_stored(node.once().send(api.access("GET", "tokens", tenant=tenant, page=page)).json(), as_json)


def _call_server(command: str, **options: Any) -> None:
    """Call a command of the installed server, which knows the file. Raises Failure."""
    group = load_server_command("token")
    assert isinstance(group, click.Group)
    click.get_current_context().invoke(group.commands[command], **options)


def _refuse_tenant(tenant: str | None) -> None:
    """Raises UsageError for a token of a tenant in a file."""
    if tenant is not None:
        raise click.UsageError(
            "tokens of a file are of no tenant: leave out --tenant, or name a node with --url or --context"
        )


def _rules(name: str, rights: dict[str, tuple[str, ...]], metrics: bool) -> Iterator[Json]:
    """Yield the rules that give a token the rights of the options."""
    for right, prefixes in rights.items():
        resource, operations = RIGHTS[right]
        for prefix in prefixes:
            pattern = "prefix" if prefix else "all"
            rule = {"principals": [f"token:{name}"], "resource": resource, "pattern": pattern, "name": prefix}
            yield rule | {"operations": operations}
    if metrics:
        yield {"principals": [f"token:{name}"], "operations": ["metrics"], "resource": "cluster", "pattern": "all"}


def _milliseconds(option: str, text: str | None) -> int | None:
    quantity = None if text is None else parse_quantity(text)
    if text is not None and (quantity is None or quantity.kind != "ms"):
        raise click.UsageError(f"{option} is {text!r}: give a duration such as 12h or 90d")
    return None if quantity is None else quantity.amount


def _print_new(made: Json, text: str, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    click.echo(made["token"])
    click.echo(f"{text} Keep the token: only its hash is stored.", err=True)


def _print_stored(document: Json, as_json: bool) -> None:
    def row_of(stored: Json) -> tuple[str, ...]:
        ends = format_time(stored["expires_ms"]) if stored["expires_ms"] else "never"
        return stored["id"], stored["name"], ends, stored["author"], stored["note"]

    empty = "There are no tokens in the cluster's store. Make one with: penstock token create NAME"
    columns = text_columns("id", "name", "ends", "author", "note")
    print_page(document, "tokens", columns, row_of, empty, as_json=as_json)
