"""`penstock version`: prints the versions of the installed distributions and of Python."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click

from penstock.cli.output import print_facts, print_json

_DISTRIBUTIONS = ("penstock", "penstock-server", "penstock-codec")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def version(as_json: bool) -> None:
    """Print the versions of the command and of the server.

    A running node reports its own: penstock cluster status.
    """
    versions: dict[str, str | None] = {name: _version_of(name) for name in _DISTRIBUTIONS}
    versions["python"] = platform.python_version()
    if as_json:
        print_json(versions)
    else:
        print_facts((name, number or "not installed") for name, number in versions.items())


def _version_of(name: str) -> str | None:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None
