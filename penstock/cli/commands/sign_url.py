"""`penstock sign-url` and `penstock url-key`: signed URLs for clients without headers, and the keys that sign them."""

from __future__ import annotations

import click

from penstock.admin import api
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page, text_columns
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import format_time, print_json, print_result
from penstock.transport.exchange import Json
from penstock.units import parse_quantity


@click.command()
@click.argument("path")
@click.option("--method", type=click.Choice(["GET", "POST"]), default="GET", show_default=True, help="Read or produce.")
@click.option("--life", metavar="DURATION", help="The URL ends after this time: 1h.  [default: 15m, or less]")
@click.option("--max-bytes", metavar="SIZE", help="The largest body of a POST.  [default: 64KiB]")
@node_options
def sign_url(path: str, method: str, life: str | None, max_bytes: str | None, node: Node, as_json: bool) -> None:
    """Print a signed URL, for a client that cannot send a token.

    PATH is that of the records or the table of one topic or partition, with its query: /v1/topics/t/records?from=latest

    \f
    Raises Failure, UsageError.
    """
    body = {
        "url": path, "method": method, "life_ms": _amount("--life", life, "ms", "a duration such as 15m or 12h"),
        "max_bytes": _amount("--max-bytes", max_bytes, "bytes", "a size such as 64KiB"),
    }  # fmt: skip
    signed = node.once().send(api.access("POST", "signed-urls", body)).json()
    if as_json:
        print_json(signed)
    else:
        click.echo(node.url.partition(",")[0].rstrip("/") + signed["url"])
        click.echo(f"Acts for {signed['subject']} until {format_time(signed['expires_ms'])}.", err=True)


@click.group(cls=AliasGroup)
@shared_options
def url_key(**_: object) -> None:
    """Add, list and remove the keys that sign URLs."""


@url_key.command()
@node_options
def add(node: Node, as_json: bool) -> None:
    """Add a key, which signs from now on. There are two at most."""
    added = node.once().send(api.access("POST", "keys")).json()
    print_result(added, f"Added key {added['id']}.", as_json=as_json)


@url_key.command("list")
@page_options
@node_options
def list_keys(page: Page, node: Node, as_json: bool) -> None:
    """List the keys. The newest one signs."""

    def row_of(key: Json) -> tuple[str, ...]:
        return key["id"], format_time(key["created_ms"]), key["author"]

    document = node.once().send(api.access("GET", "keys", page=page)).json()
    empty = "There are no keys, so no URL can be signed. Add one with: penstock url-key add"
    print_page(document, "keys", text_columns("id", "created", "author"), row_of, empty, as_json=as_json)


@url_key.command()
@click.argument("key", metavar="ID")
@node_options
def remove(key: str, node: Node, as_json: bool) -> None:
    """Remove a key. All URLs that it has signed end."""
    removed = node.once().send(api.access("DELETE", "keys", of=key)).json()
    print_result(removed, f"Removed key {key}.", as_json=as_json)


def _amount(option: str, text: str | None, kind: str, form: str) -> int | None:
    if kind == "bytes" and text is not None and text.isascii() and text.isdecimal():
        return int(text)
    try:
        quantity = None if text is None else parse_quantity(text)
    except ValueError:
        quantity = None
    if text is not None and (quantity is None or quantity.kind != kind):
        raise click.UsageError(f"{option} is {text!r}: give {form}")
    return None if quantity is None else quantity.amount
