"""Wheels of this tree, and fresh environments to install them into, without a network.

An environment has the libraries that the wheels declare and their dependencies, as links to the test process's
libraries. An undeclared library is absent. So the tests also check that the declared ones suffice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from tests.architecture.test_libraries import normal

ROOT = Path(__file__).parents[2]
BUILT = ("penstock", "penstock_codec", "engine", "gateway", "node", "openapi", "replication", "spark_ingest")
FILES = ("pyproject.toml", "README.md", "LICENSE")
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def build_wheels(directory: Path) -> Path:
    """Build the wheels of a copy of this tree; return the directory with them."""
    tree, dist = directory / "tree", directory / "dist"
    tree.mkdir()
    for name in BUILT:
        shutil.copytree(
            ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "*.so")
        )
    for name in FILES:
        shutil.copy(ROOT / name, tree)
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*_PIP, "wheel", *offline, "-w", str(dist), "./penstock_codec", "./penstock", "."], cwd=tree, check=True
    )
    return dist


def fresh_environment(directory: Path, *wheels: Path) -> Path:
    """Create an environment with these wheels and the libraries that they need; return its directory of commands."""
    venv.create(directory, with_pip=False)
    (site,) = directory.glob("lib/python*/site-packages")
    python = directory / "bin" / "python"
    pip = [*_PIP, "--python", str(python)]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", *map(str, wheels)], check=True)
    installed = {normal(one.name): one for one in distributions(path=[str(site)])}
    for library in _needed(installed):
        for file in library.files or ():
            top = file.parts[0]
            if top != ".." and not (site / top).exists():
                (site / top).symlink_to(Path(str(library.locate_file(top))))
    subprocess.run([*pip, "check"], check=True)
    return directory / "bin"


def _needed(installed: dict[str, Distribution]) -> list[Distribution]:
    """Return the dependencies of these distributions, direct and indirect, among the libraries of this process."""
    done: set[tuple[str, frozenset[str]]] = set()
    to_do = [wish for one in installed.values() for wish in _wishes(one, frozenset())]
    while to_do:
        wish = to_do.pop()
        if wish not in done and wish[0] not in installed:
            done.add(wish)
            to_do += _wishes(distribution(wish[0]), wish[1])
    return [distribution(name) for name in sorted({name for name, _ in done})]


def _wishes(one: Distribution, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """Return the names and extras that a distribution requires on this machine."""
    return [
        (normal(wish.name), frozenset(wish.extras))
        for wish in map(Requirement, one.requires or ())
        if wish.marker is None or any(wish.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
    ]


def run(bin_directory: Path, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command of an environment, without this tree on its path."""
    command = [str(bin_directory / str(arguments[0])), *map(str, arguments[1:])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK", "PYTHON"))}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, env=environment, capture_output=True, text=True, timeout=300, check=False, **options
    )


@contextmanager
def serving(commands: Path, directory: Path, *flags: str) -> Iterator[str]:
    """Run `penstock serve` in this directory; return its URL."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK", "PYTHON"))}
    command = [str(commands / "penstock"), "serve", "--port", "0", *flags]
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 60
            while not (ready := re.search(r"penstock is ready on (\S+)", (directory / "out").read_text())):
                assert process.poll() is None, (directory / "out").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield ready[1]
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
