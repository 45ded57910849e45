"""The command of the worker in each language, built if necessary, and why a language is left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.clients.runner import CLIENT_MODULE, command_of
from tests.docs.console import blocks
from tests.e2e.node_process import ROOT

WORKERS = ROOT / "docs" / "examples" / "workers"
BUILD = ROOT / "build" / "workers"
BUILD_S = 600
LANGUAGES = ("bash", "perl", "python", "node", "go", "java", "rust")


class LeftOut(Exception):
    """Says what is missing."""


def why_not(language: str) -> str | None:
    """Return why a language is left out; None if its worker can be started."""
    try:
        command(language, "", "", "")
    except LeftOut as error:
        return str(error)
    return None


def command(language: str, group: str, topic: str, member: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a worker that prints the values. Raises LeftOut."""
    BUILD.mkdir(parents=True, exist_ok=True)
    arguments = [group, topic, member]
    match language:
        case "bash":
            return [*_bash(), group, topic, "cat"], {"MEMBER": member}
        case "perl":
            _need("perl")
            return ["perl", str(WORKERS / "worker.pl"), *arguments], {}
        case "python":
            return [sys.executable, str(WORKERS / "worker.py"), *arguments], {}
        case "node":
            _need("node")
            return ["node", str(WORKERS / "worker.mjs"), *arguments], {}
        case "go":
            return [*_go(), *arguments], {}
        case "java":
            return [*_java(), *arguments], {}
        case "rust":
            return [*_rust(), *arguments], {}
        case "clients-typescript" | "clients-go":  # not examples: those of clients/
            start = command_of(language.removeprefix("clients-"))
            return [*start, *arguments], {"PENSTOCK_CLIENT": CLIENT_MODULE}
    raise ValueError(language)


def _bash() -> list[str]:
    """The worker of the page about consumer groups."""
    _need("bash", "curl", "jq")
    [worker] = blocks("consumer-groups.md", "bash")
    path = BUILD / "worker.sh"
    if not path.exists() or path.read_text() != worker:  # bash reads a script bit by bit while it runs
        path.write_text(worker)
    return ["bash", str(path)]


def _go() -> list[str]:
    _need("go")
    return [str(_built("worker-go", ["go", "build", "-o", str(BUILD / "worker-go"), "worker.go"], "worker.go"))]


def _java() -> list[str]:
    _need("java", "javac")
    _built("Worker.class", ["javac", "-d", str(BUILD), "Worker.java"], "Worker.java")
    return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp", str(BUILD), "Worker"]


def _rust() -> list[str]:
    """Its two libraries come from crates.io, or from a local copy."""
    _need("cargo")
    made = "rust/release/worker"
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", str(BUILD / "rust")]
    return [str(_built(made, [*command, "--manifest-path", "rust/Cargo.toml"], "rust/src/main.rs"))]


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise LeftOut(f"{tool} is not installed")


def _built(made: str, command: Sequence[str], source: str) -> Path:
    """Build if the source is newer. Raises LeftOut."""
    path = BUILD / made
    if path.exists() and path.stat().st_mtime > (WORKERS / source).stat().st_mtime:
        return path
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    built = subprocess.run(command, cwd=WORKERS, env=environment, capture_output=True, timeout=BUILD_S, check=False)
    if built.returncode:
        raise LeftOut(f"it cannot be built: {built.stderr[-300:].decode()}")
    return path
