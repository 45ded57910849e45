"""Debian's ZooKeeper as a process of a test: its own port and directory, ended with the test."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JAR = Path("/usr/share/java/zookeeper.jar")
START_S = 60  # generous: the machine may be busy with other tests
TICK_MS = 200  # a session may then be as short as 400 ms
WHY_NOT = "ZooKeeper is not installed (Debian: zookeeper)" if shutil.which("java") else "ZooKeeper needs Java"


def is_installed() -> bool:
    return JAR.exists() and shutil.which("java") is not None


class ZookeeperProcess:
    def __init__(self, directory: Path) -> None:
        self.port = _free_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._directory.mkdir(exist_ok=True)
        (self._directory / "zoo.cfg").write_text(
            f"tickTime={TICK_MS}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            f"dataDir={self._directory / 'data'}\n4lw.commands.whitelist=ruok\nmaxSessionTimeout=60000\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = [
            "java",
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.preAllocSize=64",
            "-cp",
            str(JAR),
            main,
            "zoo.cfg",
        ]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "ZooKeeper does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False


@contextmanager
def zookeeper_process(directory: Path) -> Iterator[ZookeeperProcess]:
    process = ZookeeperProcess(directory)
    try:
        process.start()
        yield process
    finally:
        process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
