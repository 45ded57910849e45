"""Debian's ZooKeeper as a process: its own port and directory, one server.

For trials and tests only: a reliable cluster needs three servers on separate machines.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import weakref
from pathlib import Path
from typing import NamedTuple

JAR = Path("/usr/share/java/zookeeper.jar")
# TLS needs them, and Debian's package lacks them in its class path: then the ports drop every connection.
TLS_JARS = [JAR.with_name(f"netty-{name}.jar") for name in ("codec", "resolver", "transport-native-unix-common")]
START_S = 120  # generous, for a busy machine
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"


class ZookeeperFailed(Exception):
    """ZooKeeper is not installed or does not start. The text is one line."""


def require_zookeeper() -> None:
    """Raises ZookeeperFailed unless it is installed."""
    if shutil.which("java") is None:
        raise ZookeeperFailed("ZooKeeper needs Java: install it (Debian: apt-get install zookeeper brings both)")
    if not JAR.exists():
        raise ZookeeperFailed(f"ZooKeeper is not installed ({JAR} is missing): apt-get install zookeeper")


class TlsFiles(NamedTuple):
    """The files of a server: its key as PKCS#8 with its certificate in one PEM file, and the CA of its clients."""

    key_and_cert: Path
    ca: Path


class Zookeeper:
    """A server that can be started again on the same port and data. `tick_ms` bounds sessions: 2 to 20 of it.

    With `tls` it also has a `tls_port`; `tls_port` is 0 without it.
    """

    def __init__(
        self, directory: Path, tick_ms: int = 500, host: str = "127.0.0.1", tls: TlsFiles | None = None
    ) -> None:
        reserved = reserve_port(host)
        weakref.finalize(self, reserved.close)
        self.port: int = reserved.getsockname()[1]
        self.tls_port = 0
        self._tls = tls
        if tls is not None:
            secure = reserve_port(host)
            weakref.finalize(self, secure.close)
            self.tls_port = secure.getsockname()[1]
        self._host = host
        self._directory = directory
        self._tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers. Raises ZookeeperFailed."""
        self._directory.mkdir(exist_ok=True)
        (self._directory / "zoo.cfg").write_text(
            f"tickTime={self._tick_ms}\nclientPort={self.port}\nclientPortAddress={self._host}\n"
            f"admin.enableServer=false\ndataDir={self._directory / 'data'}\n4lw.commands.whitelist=ruok,dump\n"
            "maxSessionTimeout=60000\nmaxClientCnxns=0\n" + self._tls_lines()
        )
        jars = ":".join(map(str, [JAR, *(TLS_JARS if self._tls else [])]))
        options = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.preAllocSize=64", "-cp", jars)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *options, MAIN, "zoo.cfg"],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C ends the nodes first
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = self._log.read_text(errors="replace").strip().splitlines() or ["its log is empty"]
                raise ZookeeperFailed(f"ZooKeeper does not start: {lines[-1]}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def _log(self) -> Path:
        return self._directory / "log"

    def send_command(self, word: bytes) -> bytes:
        """Sends a four-letter word; `dump` lists the ephemeral nodes. Raises OSError."""
        with socket.create_connection((self._host, self.port), 5) as connection:
            connection.sendall(word)
            pieces = []
            while piece := connection.recv(65536):
                pieces.append(piece)
            return b"".join(pieces)

    def _tls_lines(self) -> str:
        if self._tls is None:
            return ""
        return (
            f"secureClientPort={self.tls_port}\nsecureClientPortAddress={self._host}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={self._tls.key_and_cert}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self._tls.ca}\nssl.trustStore.type=PEM\n"
        )

    def _answers(self) -> bool:
        try:
            return self.send_command(b"ruok") == b"imok"
        except OSError:
            return False


def reserve_port(host: str = "127.0.0.1") -> socket.socket:
    """Returns a socket that is bound to a free port. Until it is closed, no other connection gets the port.

    A server that sets SO_REUSEADDR may listen on the port nevertheless: ZooKeeper, Penstock and asyncio do.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, 0))
    return reserved
