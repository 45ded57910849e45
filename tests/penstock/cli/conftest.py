"""Runs the command in this process, with a real node for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson
import pytest

from penstock.cli.main import main
from tests.e2e.node_process import running_process


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> object:
        return orjson.loads(self.out)


class Run(Protocol):
    def __call__(self, *arguments: object) -> Ran: ...


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `penstock` with these arguments, without the user's environment and contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)

    def run_here(*arguments: object) -> Ran:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ran(int(code), *capfd.readouterr())

    return run_here


@pytest.fixture(scope="session")
def node_url() -> Iterator[str]:
    """Return the URL of a node. Its directory has a short name: tables name the store, and must fit the terminal."""
    with tempfile.TemporaryDirectory(prefix="cli-", dir="/tmp") as directory, running_process(Path(directory)) as node:
        yield node.url


@pytest.fixture
def on_node(run: Run, node_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run as `run` does, with the node's URL in the environment."""
    monkeypatch.setenv("PENSTOCK_URL", node_url)
    return run


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.ndjson"
    path.write_bytes(b"".join(b'{"n":%d,"tail":"N%d"}\n' % (n, n % 7) for n in range(1000)))
    return path
