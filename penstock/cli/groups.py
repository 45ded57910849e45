"""A group of commands that also accepts their usual aliases: `penstock topic ls`, `penstock topic rm`."""

from __future__ import annotations

import click

ALIASES = {"ls": "list", "rm": "delete", "del": "delete", "show": "describe", "get": "describe", "new": "create"}
# The other names of commands that are called by one of the names above.
_OTHERS = {"list": "ls", "delete": "rm", "remove": "rm", "ls": "status"}


class AliasGroup(click.Group):
    """Accepts a usual alias of a command that has another name. Help shows only the command's own name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of this name, or else the command of this alias."""
        for name in (cmd_name, ALIASES.get(cmd_name), _OTHERS.get(cmd_name)):
            if name is not None and (command := super().get_command(ctx, name)) is not None:
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolves an alias to the command's own name, so that errors and usage lines use the name shown in help."""
        _, command, rest = super().resolve_command(ctx, args)
        return (command.name if command is not None else None), command, rest
