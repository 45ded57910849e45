"""`penstock quota`: sets, lists and removes the quotas of a cluster."""

from __future__ import annotations

import math

import click

from penstock.admin import api
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page, text_columns
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import format_bytes, print_result
from penstock.transport.exchange import Json
from penstock.units import parse_quantity

OWNERS = ("tenant", "principal", "client", "topic")
LIMITS = ("requests", "bytes_in", "bytes_out", "loop_ms", "connections", "long_polls")


class _Limit(click.ParamType[int | float]):
    """A number above 0, of bytes also a size such as 10MB."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        text = str(value)
        try:
            quantity = parse_quantity(text)
            if quantity is not None and quantity.kind == "bytes":
                return quantity.amount
            number = float(text)
        except ValueError:
            self.fail(f"{text!r} is not a number, or a size such as 10MB", param, ctx)
        if not math.isfinite(number) or number <= 0:
            self.fail(f"{text} is not a number above 0: leave the option out to have no limit", param, ctx)
        return int(number) if number.is_integer() else number


@click.group(cls=AliasGroup)
@shared_options
def quota(**_: object) -> None:
    """Set, list and remove quotas: how much of the cluster an owner may use."""


@quota.command("set")
@click.argument("owner", type=click.Choice(OWNERS), metavar="OWNER")
@click.argument("name")
@click.option("--requests", type=_Limit(), metavar="N", help="Requests a second.")
@click.option("--bytes-in", type=_Limit(), metavar="SIZE", help="Bytes a second of request bodies: 10MB.")
@click.option("--bytes-out", type=_Limit(), metavar="SIZE", help="Bytes a second of answers.")
@click.option(
    "--loop-ms", type=_Limit(), metavar="N", help="Milliseconds a second of the loops that serve its requests."
)
@click.option("--connections", type=click.IntRange(min=1), metavar="N", help="Connections at a time.")
@click.option("--long-polls", type=click.IntRange(min=1), metavar="N", help="Long polls and event streams at a time.")
@click.option(
    "--burst-s", type=_Limit(), metavar="N", help="Seconds of the rates that may be used at once.  [default: 1]"
)
@click.option(
    "--per",
    type=click.Choice(("cluster", "node")),
    help="The limits are of the whole cluster, or of each node.  [default: cluster]",
)
@click.option("--note", metavar="TEXT", help="A text for people.")
@node_options
def set_quota(owner: str, name: str, node: Node, as_json: bool, **limits: object) -> None:
    """Set the quota of an owner, in place of the one that it has.

    OWNER is tenant, principal, client or topic. NAME is that of the owner: acme, token:shop, token:shop+CLIENT_ID, or
    the beginning of topics. The name '*' is the default of each owner of the kind, 'token:shop+*' that of the clients
    of a principal, and '*+*' that of all clients.
    """
    body = {field: value for field, value in limits.items() if value is not None}
    document = node.once().send(api.access("PUT", "quotas", body, of=f"{owner}/{name}")).json()
    print_result(document, f"Set quota {document['quota']['id']}: {describe(document['quota'])}.", as_json=as_json)


@quota.command()
@click.argument("owner", type=click.Choice(OWNERS))
@click.argument("name")
@node_options
def remove(owner: str, name: str, node: Node, as_json: bool) -> None:
    """Remove the quota of an owner. The default of its kind is then its quota, if there is one."""
    removed = node.once().send(api.access("DELETE", "quotas", of=f"{owner}/{name}")).json()
    print_result(removed, f"Removed quota {owner}:{name}.", as_json=as_json)


@quota.command("list")
@page_options
@node_options
def list_quotas(page: Page, node: Node, as_json: bool) -> None:
    """List quotas."""

    def row_of(listed: Json) -> tuple[str, ...]:
        return listed["id"], describe(listed), listed["per"], listed["author"], listed["note"]

    document = node.once().send(api.access("GET", "quotas", page=page)).json()
    columns = text_columns("id", "limits", "per", "author", "note")
    empty = "There are no quotas. Set one with: penstock quota set OWNER NAME --requests N"
    print_page(document, "quotas", columns, row_of, empty, as_json=as_json)


def describe(one: Json) -> str:
    """Return the limits of a quota as a sentence."""
    texts = {
        "requests": "{} requests/s", "bytes_in": "{}/s in", "bytes_out": "{}/s out", "loop_ms": "{} ms/s of a loop",
        "connections": "{} connections", "long_polls": "{} long polls",
    }  # fmt: skip
    shown = []
    for field, text in texts.items():
        value = one[field]
        if value is not None:
            shown.append(text.format(format_bytes(round(value)) if field.startswith("bytes") else f"{value:g}"))
    burst = "" if one["burst_s"] == 1 else f", with {one['burst_s']:g} s at once"
    return ", ".join(shown) + burst
