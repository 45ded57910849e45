"""Finds the commands of the distribution `penstock-server`: its entry points in the group `penstock.commands`.

The client does not import the server. The server's packages have plain top-level names (`engine`, `node`), so another
package of the same name may come first on the path; this is checked before the server's code is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from penstock.cli.failures import ExitCode, Failure

SERVER = "penstock-server"
GROUP = "penstock.commands"


def load_server_command(name: str) -> click.Command:
    """Imports a command of the server. Raises Failure if the server is missing, shadowed or of another version."""
    server = find_server(f"`penstock {name}`")
    points = {point.name: point for point in server.entry_points if point.group == GROUP}
    if name not in points:
        raise Failure(f"{SERVER} {server.version} has no command {name}: install the same version of both")
    check_not_shadowed(server)
    command = points[name].load()
    assert isinstance(command, click.Command)
    return command


def find_server(what: str) -> Distribution:
    """Returns the installed server. Raises Failure, in one line, if there is none."""
    try:
        return distribution(SERVER)
    except PackageNotFoundError:
        text = f"{what} needs the server, which is not installed: pip install --find-links dist {SERVER}"
        raise Failure(text, ExitCode.USAGE) from None


def check_not_shadowed(server: Distribution) -> None:
    """Raises Failure if one of the server's top-level names would be imported from another place."""
    roots = {_root_of(server), Path(__file__).resolve().parents[2]}  # the second: a source tree that runs in place
    for name in (server.read_text("top_level.txt") or "").split():
        places = _places_of(name)
        if not roots & {directory.parent for directory in places}:
            present = ", ".join(map(str, places)) or "nowhere"
            raise Failure(
                f"{SERVER} has a package {name}, and Python finds {present} in its place: "
                f"install {SERVER} into an environment of its own"
            )


def _places_of(name: str) -> list[Path]:
    """Returns the places Python would import a top-level name from: a package's directory, or a module's file."""
    spec = find_spec(name)
    if spec is None:
        return []
    places: Iterable[str] = spec.submodule_search_locations or [spec.origin or ""]
    return [Path(path).resolve() for path in places]


def _root_of(server: Distribution) -> Path:
    """Returns the directory of the server's packages: site-packages, or the clone of an editable installation."""
    origin = json.loads(server.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return Path(unquote(urlsplit(origin["url"]).path)).resolve()
    return Path(str(server.locate_file(""))).resolve()
