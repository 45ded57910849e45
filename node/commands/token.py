"""`penstock token` for the tokens file of a node. Never sends anything to a node.

penstock/cli/commands/token.py has the options, and calls these commands with their values.
"""

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
from penstock.cli.output import Column, print_json, print_result, print_table


@click.group()
def token() -> None:
    """Make, list and revoke the tokens of a file."""


@token.command()
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
    """Make a token, print it once, and add its hash to the file. Raises Failure."""
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
def revoke(name: str, tokens_file: str, as_json: bool) -> None:
    """Remove a token from the file. Raises Failure."""
    try:
        token_id = remove_token(tokens_file, name)
    except InvalidTokens as error:
        raise Failure(f"{tokens_file}: {error}") from None
    print_result({"id": token_id, "revoked": True}, f"Revoked {name} in {tokens_file}.", as_json=as_json)


@token.command("list")
def list_tokens(tokens_file: str, as_json: bool) -> None:
    """List the tokens of the file, by name, with their rights. Raises Failure."""
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
