"""Debian's ZooKeeper as a process of a test, with its own port and directory; it ends with the test."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.cluster.zookeeper import JAR, TlsFiles, Zookeeper

TICK_MS = 200  # allows sessions as short as 400 ms
WHY_NOT = "ZooKeeper is not installed (Debian: zookeeper)" if shutil.which("java") else "ZooKeeper needs Java"


def is_installed() -> bool:
    return JAR.exists() and shutil.which("java") is not None


@contextmanager
def zookeeper_process(directory: Path, host: str = "127.0.0.1", tls: TlsFiles | None = None) -> Iterator[Zookeeper]:
    process = Zookeeper(directory, TICK_MS, host, tls)
    try:
        process.start()
        yield process
    finally:
        process.kill()
