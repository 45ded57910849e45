"""The options that every command shares that talks to a node, and the node they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from client.address import DEFAULT_URL, parse_address
from client.once import OnceClient

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Node(NamedTuple):
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
            default=DEFAULT_URL,
            callback=check_url,
            metavar="URL",
            help=f"Address of the node.  [env: PENSTOCK_URL; default: {DEFAULT_URL}]",
        ),
    ):
        command = option(command)
    return command


def check_url(ctx: click.Context, option: click.Parameter, url: str | None) -> str | None:
    """For an option that is an address, in its normal form."""
    try:
        return None if url is None else str(parse_address(url))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
