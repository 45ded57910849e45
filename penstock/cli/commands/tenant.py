"""`penstock tenant`: creates, limits, bills, lists and removes the tenants of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

import click

from penstock.admin import api
from penstock.cli.commands.acl import force_option
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page, text_columns
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import Column, format_bytes, format_time, print_json, print_note, print_result, print_table
from penstock.transport.exchange import Json
from penstock.units import MEANING, parse_quantity


@click.group(cls=AliasGroup)
@shared_options
def tenant(**_: object) -> None:
    """Create, limit, list and remove tenants: teams with names, tokens and rules of their own."""


@tenant.command()
@click.argument("tenant_id", metavar="ID")
@click.option("--note", default="", metavar="TEXT", help="A text for people.")
@node_options
def create(tenant_id: str, note: str, node: Node, as_json: bool) -> None:
    """Create a tenant. It owns all topics, groups and subscriptions whose names begin with its id and a dot."""
    made = node.once().send(api.tenants("PUT", tenant_id, {"note": note})).json()
    if as_json:
        print_json(made)
        return
    click.echo(f"Created tenant {tenant_id}. Make its tokens with: penstock token create NAME --tenant {tenant_id}")
    if made["topics"]:
        print_note(f"Topics that the tenant has already, by their names: {made['topics']}.")


@tenant.command()
@click.argument("tenant_id", metavar="ID")
@click.option("--topics", metavar="N", help="The most topics that it may have, or none for no limit.")
@click.option("--partitions", metavar="N", help="The most partitions that these may have, or none for no limit.")
@click.option("--groups", metavar="N", help="The most consumer groups, or none for no limit.")
@click.option("--subscriptions", metavar="N", help="The most push subscriptions, or none for no limit.")
@click.option("--members", metavar="N", help="The most members of all its groups, or none for no limit.")
@click.option("--stored-bytes", metavar="SIZE", help="The most that is stored, as 10GiB, or none for no limit.")
@node_options
def limits(tenant_id: str, node: Node, as_json: bool, **texts: str | None) -> None:
    """Show or set how much a tenant may have.

    \f
    Raises UsageError.
    """
    given = {name: _limit(name, text) for name, text in texts.items() if text}
    body = {"limits": given} if given else None
    document = node.once().send(api.tenants("PATCH" if given else "GET", tenant_id, body)).json()
    if as_json:
        print_json(document)
        return
    rows = [
        (name.replace("_", " "), document[name], "none" if most is None else most)
        for name, most in document["limits"].items()
    ]
    print_table([Column("of", is_text=True), Column("used"), Column("limit")], rows)


def _limit(name: str, text: str) -> int | None:
    if text == "none":
        return None
    if name == "stored_bytes":
        try:
            quantity = parse_quantity(text)
        except ValueError as error:
            raise click.UsageError(f"--stored-bytes: {error}") from None
        if quantity is not None and quantity.kind == "bytes":
            return quantity.amount
        if not _is_number(text):
            raise click.UsageError(f"--stored-bytes is {text!r}: give {MEANING['bytes']}, a number, or none")
    if not _is_number(text):
        raise click.UsageError(f"--{name} is {text!r}: give a whole number, or none")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20  # with more digits it has more than 64 bits


@tenant.command()
@click.argument("tenant_id", metavar="ID")
@click.option(
    "--from", "begin", metavar="TIME", help="A time in the first hour, as 2026-11-25T12:00:00Z. Default: 24 hours."
)
@click.option("--to", "end", metavar="TIME", help="The end, at most 31 days later. Default: now.")
@node_options
def usage(tenant_id: str, begin: str | None, end: str | None, node: Node, as_json: bool) -> None:
    """Show what a tenant has used, by the hour. Hours with a star are not final."""
    document = node.once().send(api.usage(tenant_id, begin, end)).json()
    if as_json:
        print_json(document)
        return
    columns = [
        Column("hour", is_text=True),
        *map(Column, ("requests", "refused", "failed", "records", "in", "out", "GiB hours")),
    ]
    rows = [
        _usage_row(format_time(hour["hour_ms"])[:16] + ("" if hour["final"] else " *"), hour)
        for hour in document["hours"]
    ]
    print_table(columns, [*rows, _usage_row("total", document["total"])])
    if not document["complete"]:
        print_note("Not all that was counted is in these numbers: a node does not answer, or a file is damaged.")


def _usage_row(name: str, used: Mapping[str, int]) -> list[object]:
    def total(what: str) -> int:
        return sum(used[f"{kind}_{what}"] for kind in ("produce", "read", "other"))

    sizes = [format_bytes(total(what)) for what in ("bytes_in", "bytes_out")]
    gib_hours = f"{used['stored_byte_seconds'] / 3600 / 2**30:.3f}"
    counts = (total("requests"), used["refused_requests"], used["failed_requests"], used["records"])
    return [name, *counts, *sizes, gib_hours]


@tenant.command("list")
@page_options
@node_options
def list_tenants(page: Page, node: Node, as_json: bool) -> None:
    """List the tenants that you may see."""

    def row_of(listed: Json) -> tuple[str, ...]:
        return listed["tenant"], format_time(listed["created_ms"]), listed["author"], listed["note"]

    document = node.once().send(api.tenants("GET", page=page)).json()
    columns = text_columns("tenant", "created", "author", "note")
    empty = "There are no tenants that you may see. An operator creates one with: penstock tenant create ID"
    print_page(document, "tenants", columns, row_of, empty, as_json=as_json)


@tenant.command()
@click.argument("tenant_id", metavar="ID")
@force_option
@node_options
def remove(tenant_id: str, force: bool, node: Node, as_json: bool) -> None:
    """Remove a tenant that has no topics and no subscriptions, with its tokens and rules."""
    removed = node.once().send(api.tenants("DELETE", tenant_id, force=force)).json()
    print_result(removed, f"Removed tenant {tenant_id}, its tokens and its rules.", as_json=as_json)
