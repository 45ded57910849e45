"""`penstock topic schema`: shows, sets and removes the JSON Schema that the values of a topic must follow."""

from __future__ import annotations

from typing import Any, TextIO

import click

from penstock.cli.completing import topics
from penstock.cli.failures import Failure
from penstock.cli.node import Node, node_options
from penstock.cli.output import print_json, print_note


@click.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@click.option("--set", "file", metavar="FILE", type=click.File("r", encoding="utf-8"), help="Require this JSON Schema.")
@click.option(
    "--force", is_flag=True, help="With --set: also if values of the present schema may not follow the new one."
)
@click.option("--unset", is_flag=True, help="Take any bytes as values again.")
@node_options
def schema(name: str, file: TextIO | None, force: bool, unset: bool, node: Node, as_json: bool) -> None:
    """Show, set or remove the JSON Schema that the values of a topic must follow.

    Records that are stored already stay as they are.

    \f
    Raises click.UsageError for options that exclude each other, Failure for a file without a schema.
    """
    if (file is not None and unset) or (force and file is None):
        raise click.UsageError("give --set FILE, with or without --force, or --unset", click.get_current_context())
    if file is None and not unset:
        config = node.once().describe_topic(name)["config"]
    else:
        config = _change(name, "" if file is None else _read(file), force, node)
    if as_json:
        print_json({"topic": name, **{key: config[key] for key in ("value_schema", "value_schema_version")}})
    elif file is not None:
        click.echo(f"Values of topic {name} must follow version {config['value_schema_version']} of its schema.")
    elif config["value_schema"]:
        click.echo(config["value_schema"])
    else:
        print_note(f"Topic {name} has no schema: any bytes are a value.")


def _read(file: TextIO) -> str:
    """Returns the text of a file. Raises Failure."""
    try:
        text = file.read().strip()
    except UnicodeDecodeError:
        raise Failure(f"{file.name} is not UTF-8") from None
    if not text:
        raise Failure(f"{file.name} is empty: --unset removes the schema of a topic")
    return text


def _change(name: str, text: str, force: bool, node: Node) -> dict[str, Any]:
    """Sets the schema, and returns the settings of the topic. To force it is to name the next version."""
    once = node.once()
    config: dict[str, Any] = {"value_schema": text}
    if force:
        present = once.describe_topic(name)["config"]
        if present["value_schema"] not in ("", text):
            config["value_schema_version"] = present["value_schema_version"] + 1
    return dict(once.alter_topic(name, config)["config"])
