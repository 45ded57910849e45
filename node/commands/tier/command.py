"""The group of the store's commands, which `penstock tier` finds as an entry point."""

from __future__ import annotations

import click

from node.commands.tier.repair import repair
from node.commands.tier.restore import restore
from node.commands.tier.status import status
from node.commands.tier.verify import verify
from penstock.cli.groups import AliasGroup


@click.group(cls=AliasGroup)
def tier() -> None:
    """Examine, repair and restore from the object store."""


for command in (status, verify, repair, restore):
    tier.add_command(command)
