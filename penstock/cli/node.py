"""The options shared by every command that sends to a node, and the node that they name.

They may be given before the command and its subcommand too: `penstock --url http://b:8080 topic ls`. Precedence: the
option after the subcommand, the nearest one before it, the environment, the current context (penstock/cli/contexts.py),
the default.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from penstock.admin.single_request import SingleRequestClient
from penstock.cli.contexts import complete_contexts, contexts_path, read_contexts
from penstock.transport.nodes import DEFAULT_URL, bearer, parse_addresses

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
SHARED = ("url", "token", "cacert", "context", "as_json")


class Node(NamedTuple):
    """Names the node that a command asks, or the nodes of one cluster with commas between the URLs."""

    url: str
    token: str | None = None
    cacert: str | None = None

    def once(self, timeout_ms: int = 30_000) -> SingleRequestClient:
        """Returns a client that opens a connection per request, for a command that makes one or two."""
        return SingleRequestClient(self.url, token=self.token, cacert=self.cacert, timeout_ms=timeout_ms)


def check_urls(ctx: click.Context, option: click.Parameter, urls: tuple[str, ...]) -> str | None:
    """Returns addresses in their normal form, joined with commas; None if there are none. Raises click.BadParameter."""
    try:
        return ",".join(parse_addresses(urls)) if urls else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def check_cacert(ctx: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Returns the path, if TLS can use the file. Raises click.BadParameter."""
    if path is not None:
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:  # includes SSLError
            raise click.BadParameter(f"{path} has no usable certificates: {error.strerror or error}") from error
    return path


_OPTIONS = (
    click.option(
        "--url",
        multiple=True,
        callback=check_urls,
        metavar="URL",
        help="Address of a node; for several, repeat it or use commas: the first reachable one is used.  "
        f"[env: PENSTOCK_URL; default: {DEFAULT_URL}]",
    ),
    click.option("--token", metavar="TOKEN", help="Bearer token.  [env: PENSTOCK_TOKEN]"),
    click.option(
        "--cacert",
        callback=check_cacert,
        metavar="FILE",
        help="Trust these CA certificates (PEM) in place of the system's.  [env: PENSTOCK_CACERT]",
    ),
    click.option(
        "--context",
        metavar="NAME",
        shell_complete=complete_contexts,
        help="A node that `penstock context add` named.  [env: PENSTOCK_CONTEXT]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people."),
)


def shared_options(command: CommandT) -> CommandT:
    """Adds --url, --token, --cacert, --context and --json."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def node_options(command: CommandT) -> CommandT:
    """Adds the shared options. The command gets `node` and `as_json`."""

    @wraps(command)
    def with_node(*arguments: Any, **options: Any) -> Any:
        for name in SHARED:
            options.pop(name)
        ctx = click.get_current_context()
        return command(*arguments, node=node_of(ctx), as_json=bool(shared_values(ctx)["as_json"]), **options)

    return shared_options(with_node)  # type: ignore[return-value]


def shared_values(ctx: click.Context) -> dict[str, Any]:
    """Returns the shared options of a command. An option it lacks is taken from before it, the nearest place first."""
    places = [ctx.params]
    while ctx.parent is not None:
        ctx = ctx.parent
        places.append(ctx.params)
    return {name: next((values[name] for values in places if values.get(name)), None) for name in SHARED}


def node_of(ctx: click.Context, environment: Mapping[str, str] = os.environ) -> Node:
    """Returns the node that a command's options, the environment and the contexts name. Raises Failure, UsageError."""
    options = shared_values(ctx)
    url, name = options["url"], options["context"]
    if url and name:
        raise click.UsageError("--url and --context exclude each other", ctx)
    token, cacert = options["token"], options["cacert"]
    if not url and not name:
        url = check_urls(ctx, _parameter(ctx), tuple(environment.get("PENSTOCK_URL", "").split()))
    if not url:
        contexts = read_contexts(contexts_path(environment))
        explicit = name or environment.get("PENSTOCK_CONTEXT")
        chosen = explicit or contexts.current
        if chosen:
            context = contexts.get(chosen)
            url = context.url
            token, cacert = token or (context.token if explicit else None), cacert or context.cacert
            token = token or environment.get("PENSTOCK_TOKEN") or context.token
    token = token or environment.get("PENSTOCK_TOKEN") or None
    try:
        bearer(token or "")
    except ValueError as error:
        raise click.UsageError(f"{error}; check --token, PENSTOCK_TOKEN or the context", ctx) from None
    return Node(
        url or DEFAULT_URL,
        token,
        cacert or environment.get("PENSTOCK_CACERT") or None,
    )


def names_node(ctx: click.Context, environment: Mapping[str, str] = os.environ) -> bool:
    """True if an option, the environment or the current context names a node. Raises Failure."""
    options = shared_values(ctx)
    if options["url"] or options["context"] or environment.get("PENSTOCK_URL") or environment.get("PENSTOCK_CONTEXT"):
        return True
    return read_contexts(contexts_path(environment)).current is not None


def _parameter(ctx: click.Context) -> click.Parameter:
    return next(param for param in ctx.command.params if param.name == "url")
