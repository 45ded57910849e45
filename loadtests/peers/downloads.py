"""The programs to compare with: found on this machine, or fetched once into a cache directory by their own tools.

Kafka's jars come by Maven from the pom beside this file, nats-server and the nats command by the Go toolchain, Redis
with redis-benchmark from the distribution.
Each missing program is reported in one line, and its column is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

KAFKA_POM = Path(__file__).with_name("kafka-pom.xml")
NATS_MODULE = "github.com/nats-io/nats-server/v2"
NATS_VERSION = "v2.15.2"
NATS_CLI_MODULE = "github.com/nats-io/natscli/nats"
NATS_CLI_VERSION = "v0.5.1"
FETCH_S = 900
TITLES = {"kafka": "Kafka", "nats": "NATS", "redis": "Redis"}
_ERROR_BYTES = 400


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are. None: not wanted, or missing; then `missing` has a line that says how to get it."""

    kafka_jars: Path | None
    nats_server: Path | None
    nats_cli: Path | None
    redis_server: Path | None
    missing: tuple[str, ...]


class Missing(Exception):
    """A program cannot be had. The text is the line for the user."""


def default_cache() -> Path:
    """Returns the directory of the XDG specification."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "penstock-bench")


def find_programs(cache: Path, names: Collection[str]) -> Programs:
    """Finds the wanted programs that are there and fetches the others, which takes minutes the first time."""
    programs: dict[str, Path] = {}
    missing: list[str] = []
    kinds = (("kafka", _kafka_jars), ("nats", _nats_server), ("nats", _nats_cli), ("redis", _redis_server))
    for name, find in kinds:
        if name in names and not any(line.startswith(f"{TITLES[name]} ") for line in missing):
            try:
                programs[find.__name__] = find(cache)
            except Missing as why:
                missing.append(str(why))
    kafka, server, cli, redis = (programs.get(find.__name__) for _, find in kinds)
    return Programs(kafka, server if cli else None, cli, redis, tuple(missing))


def _kafka_jars(cache: Path) -> Path:
    """Raises Missing."""
    if shutil.which("java") is None:
        raise Missing("Kafka is left out: it needs Java 17 (Debian: apt-get install openjdk-17-jre-headless)")
    jars = kafka_jars_in(cache)
    if not (jars / "complete").exists():
        if shutil.which("mvn") is None:
            raise Missing("Kafka is left out: Maven fetches its jars (Debian: apt-get install maven)")
        command = ["mvn", "-q", "-B", "-f", str(KAFKA_POM), "dependency:copy-dependencies"]
        _fetch("Kafka", [*command, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"])
        (jars / "complete").touch()
    return jars


def _nats_server(cache: Path) -> Path:
    """Raises Missing."""
    return _go_program(cache, "nats-server", NATS_MODULE, NATS_VERSION)


def _nats_cli(cache: Path) -> Path:
    """Raises Missing."""
    return _go_program(cache, "nats", NATS_CLI_MODULE, NATS_CLI_VERSION)


def _go_program(cache: Path, name: str, module: str, version: str) -> Path:
    """Raises Missing."""
    if (installed := shutil.which(name)) is not None:
        return Path(installed)
    directory = cache / f"{name}-{version}"
    if not (directory / name).exists():
        if shutil.which("go") is None:
            raise Missing(f"NATS is left out: the Go toolchain installs {name}")
        _fetch("NATS", ["go", "install", f"{module}@{version}"], GOBIN=str(directory))
    return directory / name


def _redis_server(_: Path) -> Path:
    """Raises Missing."""
    installed = shutil.which("redis-server")
    if installed is None or shutil.which("redis-benchmark") is None:
        raise Missing(
            "Redis is left out: redis-server or redis-benchmark is not installed (Debian: apt-get install redis-server)"
        )
    return Path(installed)


def kafka_jars_in(cache: Path) -> Path:
    """Returns the directory of the jars; another pom gets another one."""
    return cache / f"kafka-{kafka_version()}-{zlib.crc32(KAFKA_POM.read_bytes()):08x}"


def kafka_version() -> str:
    """Returns the version that the pom names."""
    text = KAFKA_POM.read_text()
    return text.partition("<kafka.version>")[2].partition("<")[0]


def _fetch(name: str, command: list[str], **variables: str) -> None:
    """Raises Missing."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_S, check=False, env={**os.environ, **variables}
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{name} is left out: {command[0]} took over {FETCH_S} s") from None
    if done.returncode != 0:
        tail = " ".join((done.stderr or done.stdout).split())[-_ERROR_BYTES:]
        raise Missing(f"{name} is left out: {command[0]} ended with {done.returncode}: {tail}")
