"""`penstock table`: reads compacted topics by key."""

from __future__ import annotations

import click
import orjson

from penstock.cli.groups import AliasGroup
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import print_result
from penstock.transport.exchange import Json


@click.group(cls=AliasGroup)
@shared_options
def table(**_: object) -> None:
    """Read compacted topics by key."""


@table.command()
@click.argument("topic")
@click.argument("key")
@click.option("--partition", type=int, help="The partition of a record that was sent to one by its number.")
@node_options
def get(topic: str, key: str, partition: int | None, node: Node, as_json: bool) -> None:
    """Print the last value of a key."""
    row = node.once().table(topic).get(key, partition=partition)
    print_result(row, _value(row), as_json=as_json)


@table.command("list")
@click.argument("topic")
@node_options
def list_rows(topic: str, node: Node, as_json: bool) -> None:
    """Print the keys and their last values, with a tab between; with --json a line of JSON for each row."""
    rows: dict[str, Json] = {}
    for row in node.once().table(topic).items():
        key = _key(row)
        if row.get("value", row) is None:
            rows.pop(key, None)
        else:
            rows[key] = row
    for key, row in rows.items():
        click.echo(orjson.dumps(row).decode() if as_json else f"{key}\t{_value(row)}")


def _key(row: Json) -> str:
    return str(row["key"] if "key" in row else row["key_base64"])


def _value(row: Json) -> str:
    if "value" not in row:
        return str(row["value_base64"])
    value = row["value"]
    return value if isinstance(value, str) else orjson.dumps(value).decode()
