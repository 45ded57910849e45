"""Jars from Maven Central, each set once in a cache directory, and what runs with them."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loadtests.peers.downloads import default_cache

FETCH_S = 900
LOGGING = "org.slf4j:slf4j-simple:1.7.36"
QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>penstock</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def jars_of(*coordinates: str) -> Path:
    """Returns the directory with these artifacts, `group:artifact:version`, and what they need."""
    dependencies = [_DEPENDENCY.format(*one.split(":")) for one in (*coordinates, LOGGING)]
    pom = _POM.format("\n".join(dependencies))
    directory = default_cache() / f"jars-{coordinates[0].split(':')[1]}-{zlib.crc32(pom.encode()):08x}"
    if not (directory / "complete").exists():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pom.xml").write_text(pom)
        command = ["mvn", "-q", "-B", "-f", str(directory / "pom.xml"), "dependency:copy-dependencies"]
        more = [f"-DoutputDirectory={directory}", "-DincludeScope=runtime"]
        subprocess.run([*command, *more], check=True, capture_output=True, timeout=FETCH_S)
        (directory / "complete").touch()
    return directory


def compiled(source: Path, jars: Path, directory: Path) -> Path:
    """Returns the directory with the classes of a Java file."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(directory), str(source)], check=True)
    return directory


def java(jars: Path, name: str, *arguments: str, classes: Path | None = None, flags: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs a class."""
    path = f"{jars}/*" if classes is None else f"{jars}/*:{classes}"
    return ["java", "-Xmx512m", *QUIET, *flags, "-cp", path, name, *arguments]


@contextmanager
def running_java(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command in the background, with its output in a file; it ends at the latest with the context."""
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
