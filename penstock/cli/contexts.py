"""Named nodes, in a file of the user. `penstock context` writes it; every command that sends to a node reads it.

The file is TOML, in `penstock/contexts.toml` below the XDG config directory. Only its owner can read it, since it may
hold tokens. A token is sent only to the URLs of its own context.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import orjson

from penstock.cli.failures import Failure

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem  # slow to import: loaded when used

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class Context(NamedTuple):
    """Names one node, or the nodes of one cluster with commas between the URLs."""

    url: str
    token: str | None = None
    cacert: str | None = None


@dataclass
class Contexts:
    """Holds all contexts by name, and the name of the current one."""

    current: str | None = None
    named: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Returns the context of this name. Raises Failure if there is none."""
        if name not in self.named:
            names = ", ".join(sorted(self.named)) or "none"
            raise Failure(f"no context {name!r}; there are: {names}")
        return self.named[name]


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the path of the file, whether it exists or not."""
    directory = environment.get("XDG_CONFIG_HOME", "")
    base = Path(directory) if os.path.isabs(directory) else Path(os.path.expanduser("~")) / ".config"
    return base / "penstock" / "contexts.toml"


def read_contexts(path: Path) -> Contexts:
    """Reads the file; empty if it is missing. Raises Failure if it is not what `penstock context` writes."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Contexts()
    try:
        fields = tomllib.loads(text)
        named = {name: _context(value) for name, value in fields.get("contexts", {}).items()}
    except (tomllib.TOMLDecodeError, AttributeError, TypeError) as error:
        raise Failure(f"{path}: {error}") from None
    current = fields.get("current")
    return Contexts(current if current in named else None, named)


def complete_contexts(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Returns the contexts whose names begin with `begun`; none if the file cannot be read."""
    from click.shell_completion import CompletionItem

    try:
        names = sorted(read_contexts(contexts_path()).named)
    except (Failure, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replaces the file atomically, readable by its owner only. Raises OSError."""
    lines = [f"current = {_quote(contexts.current)}\n"] if contexts.current else []
    for name, context in sorted(contexts.named.items()):
        lines.append(f"\n[contexts.{name}]\n")
        lines += [f"{key} = {_quote(value)}\n" for key, value in context._asdict().items() if value is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.writelines(lines)
    new.replace(path)


def _context(fields: dict[str, Any]) -> Context:
    context = Context(**fields)
    if not all(value is None or isinstance(value, str) for value in context):
        raise TypeError("url, token and cacert must be strings")
    return context


def _quote(text: str) -> str:
    """Returns a TOML string. JSON's escapes are valid TOML, which also escapes DEL."""
    return orjson.dumps(text).decode().replace("\x7f", "\\u007f")
