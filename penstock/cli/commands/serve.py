"""`penstock serve`: runs a node in the foreground. The only part of the command that imports the gateway.

Its options are the node's settings (gateway/settings.py), one for one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click
import uvloop

from engine.errors import EngineError
from engine.settings import Rule
from gateway.connections.memory import settle_allocators

settle_allocators()  # before the next lines import Granian

from gateway.settings import NODE_RULES  # noqa: E402
from node.processes.server import serve as serve_node  # noqa: E402
from node.processes.supervisor import serve_shards  # noqa: E402
from node.setup.setting_sources import ignored_variables, load_settings  # noqa: E402

EXIT_REFUSED = 1


def _with_setting_options(command: Callable[..., None]) -> Callable[..., None]:
    for rule in reversed(NODE_RULES.values()):
        command = _option(rule)(command)
    return command


def _option(rule: Rule) -> Any:
    flag = f"--{rule.name.replace('_', '-')}"
    if rule.name == "data_dirs":
        return lambda command: command  # --data-dir, given again
    if rule.name == "data_dir":
        shown = f"{rule.why} Give it again for each further directory. [default: {rule.default}]"
        return click.option(flag, "data_dirs", multiple=True, help=shown)
    if isinstance(rule.default, bool):
        return click.option(flag, rule.name, is_flag=True, flag_value=True, default=None, help=rule.why)
    kind: Any = click.Choice(rule.choices) if rule.choices else int if isinstance(rule.default, int) else str
    shown = f"{rule.why} [default: {rule.default}]" if rule.default != "" else rule.why
    return click.option(flag, rule.name, type=kind, default=None, help=shown)


@click.command(context_settings={"max_content_width": 100})
@click.option("--config", "config_file", type=str, default=None, help="A TOML file with settings by name.")
@_with_setting_options
def serve(config_file: str | None, **flags: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    A setting is taken from its flag, else from the environment (PENSTOCK_ and its name in capitals), else from the file
    given with --config, else its default holds. An empty variable counts as not given.
    """
    try:
        flags["data_dirs"] = flags["data_dirs"] or None
        settings = load_settings(flags, os.environ, config_file)
        if ignored := ignored_variables(os.environ):
            click.echo(f"penstock: warning: no setting is named by {', '.join(ignored)}: ignored", err=True)
        uvloop.run(serve_shards(settings) if settings.shards or settings.coordination else serve_node(settings))
    except EngineError as error:
        hint = f"; {error.hint}" if error.hint else ""
        click.echo(f"penstock: {error.detail}{hint}", err=True)
        sys.exit(EXIT_REFUSED)
