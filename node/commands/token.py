"""`penstock token`: makes and revokes tokens in the tokens file of a node. Never sends anything to a node."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import click

from gateway.access.tokens_file import (
    InvalidTokens,
    Right,
    append_token,
    make_token,
    parse_tokens,
    read_tokens_text,
    remove_token,
)
from penstock.cli.failures import Failure
from penstock.cli.groups import AliasGroup
from penstock.cli.output import Column, print_json, print_table

_file_option = click.option(
    "--tokens-file",
    envvar="PENSTOCK_TOKENS_FILE",
    required=True,
    metavar="FILE",
    help="The file that the node is given with --tokens-file.  [env: PENSTOCK_TOKENS_FILE]",
)
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people."
)


@click.group(cls=AliasGroup)
def token() -> None:
    """Make, list and revoke the tokens of a node."""


@token.command()
@click.argument("name")
@click.option("--read", multiple=True, metavar="PREFIX", help="Fetch from topics whose names begin so; '' is all.")
@click.option("--write", multiple=True, metavar="PREFIX", help="Produce to topics whose names begin so; '' is all.")
@click.option("--admin", multiple=True, metavar="PREFIX", help="Create, alter, roll and delete topics that begin so.")
@click.option("--group", multiple=True, metavar="PREFIX", help="Use consumer groups whose names begin so; '' is all.")
@click.option("--metrics", is_flag=True, help="Read /metrics, which has figures of all topics.")
@_file_option
@_json_option
def create(
    name: str,
    read: tuple[str, ...],
    write: tuple[str, ...],
    admin: tuple[str, ...],
    group: tuple[str, ...],
    metrics: bool,
    tokens_file: str,
    as_json: bool,
) -> None:
    """Make a token, print it once, and add its hash to the file.

    Options may be repeated. A running node reads the changed file by itself. The token is not shown again.

    \f
    Raises Failure.
    """
    rights = {Right.READ: read, Right.WRITE: write, Right.ADMIN: admin, Right.GROUP: group}
    try:
        new = make_token(name, rights, datetime.now(UTC), secrets.token_bytes, metrics=metrics)
        append_token(tokens_file, new)
    except InvalidTokens as error:
        raise Failure(f"{tokens_file}: {error}") from None
    if as_json:
        shown = {right.value: prefixes for right, prefixes in rights.items()}
        print_json({"id": new.id, "name": name, "token": new.text, **shown, "metrics": metrics})
        return
    click.echo(new.text)
    click.echo(f"Added {name} to {tokens_file}. Keep the token: only its hash is stored.", err=True)


@token.command()
@click.argument("name", metavar="ID_OR_NAME")
@_file_option
@_json_option
def revoke(name: str, tokens_file: str, as_json: bool) -> None:
    """Remove a token from the file. A running node reads the changed file by itself and rejects the token from then on.

    \f
    Raises Failure.
    """
    try:
        token_id = remove_token(tokens_file, name)
    except InvalidTokens as error:
        raise Failure(f"{tokens_file}: {error}") from None
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        click.echo(f"Revoked {name} in {tokens_file}.")


@token.command("list")
@_file_option
@_json_option
def list_tokens(tokens_file: str, as_json: bool) -> None:
    """List the tokens of the file, by name, with their rights.

    \f
    Raises Failure.
    """
    try:
        tokens = parse_tokens(read_tokens_text(tokens_file)).all
    except InvalidTokens as error:
        raise Failure(f"{tokens_file}: {error}") from None
    if as_json:
        print_json({"tokens": [{"id": token.id, "name": token.name, **token.rights()} for token in tokens]})
        return
    columns = [Column("id", is_text=True), Column("name", is_text=True)]
    columns += [Column(name, is_text=True) for name in (*Right, "metrics")]
    rows = [(token.id, token.name, *(_format(right) for right in token.rights().values())) for token in tokens]
    print_table(columns, rows)


def _format(right: list[str] | bool) -> str:
    if isinstance(right, bool):
        return "yes" if right else ""
    return ", ".join(prefix or "all topics" for prefix in right)
