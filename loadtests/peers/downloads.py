"""The programs to compare with: found on this machine, or fetched once into a cache directory by their own tools.

Kafka's jars come by Maven from the pom beside this file, nats-server by the Go toolchain, Redis from the distribution.
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
FETCH_S = 900
_ERROR_BYTES = 400


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are. None: not wanted, or missing; then `missing` has a line that says how to get it."""

    kafka_jars: Path | None
    nats_server: Path | None
    redis_server: Path | None
    missing: tuple[str, ...]


class Missing(Exception):
    """A program cannot be had. The text is the line for the user."""


def default_cache() -> Path:
    """Returns the directory of the XDG specification."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "penstock-bench")


def find_programs(cache: Path, wanted: Collection[str]) -> Programs:
    """Finds the wanted programs that are there and fetches the others, which takes minutes the first time."""
    found: dict[str, Path] = {}
    missing = []
    for name, find in (("kafka", _kafka_jars), ("nats", _nats_server), ("redis", _redis_server)):
        if name in wanted:
            try:
                found[name] = find(cache)
            except Missing as why:
                missing.append(str(why))
    return Programs(found.get("kafka"), found.get("nats"), found.get("redis"), tuple(missing))


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
    if (installed := shutil.which("nats-server")) is not None:
        return Path(installed)
    directory = cache / f"nats-server-{NATS_VERSION}"
    if not (directory / "nats-server").exists():
        if shutil.which("go") is None:
            raise Missing("NATS is left out: the Go toolchain installs nats-server")
        _fetch("NATS", ["go", "install", f"{NATS_MODULE}@{NATS_VERSION}"], GOBIN=str(directory))
    return directory / "nats-server"


def _redis_server(_: Path) -> Path:
    """Raises Missing."""
    if (installed := shutil.which("redis-server")) is None:
        raise Missing("Redis is left out: redis-server is not installed (Debian: apt-get install redis-server)")
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
