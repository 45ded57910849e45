"""The options that every command shares that talks to a node, and the node they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from penstock.admin.single_request import OnceClient
from penstock.transport.nodes import DEFAULT_URL, parse_addresses

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Node(NamedTuple):
    """The node, or the nodes of one cluster with commas between, that a command asks."""

    url: str
    token: str | None

    def once(self) -> OnceClient:
        """For a command that makes a request or two."""
        return OnceClient(self.url, token=self.token)


def node_options(command: CommandT) -> CommandT:
    """Add --url, --token and --json. The command gets `url`, `token` and `as_json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people."),
        click.option("--token", envvar="PENSTOCK_TOKEN", metavar="TOKEN", help="Bearer token.  [env: PENSTOCK_TOKEN]"),
        click.option(
            "--url",
            envvar="PENSTOCK_URL",
            default=(DEFAULT_URL,),
            multiple=True,
            callback=check_urls,
            metavar="URL",
            help="Address of a node. Give several, again or with commas between, and the first that can be reached is "
            f"asked.  [env: PENSTOCK_URL; default: {DEFAULT_URL}]",
        ),
    ):
        command = option(command)
    return command


def check_urls(ctx: click.Context, option: click.Parameter, urls: tuple[str, ...]) -> str | None:
    """For an option of addresses: in their normal form, with commas between; None if there is none."""
    try:
        return ",".join(parse_addresses(urls)) if urls else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
