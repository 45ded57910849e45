"""The processes on the hosts of a network: ZooKeeper and cluster nodes; started, killed, paused, stopped.

A host is its namespace. A kill or a pause hits every process in it, that is, the supervisor, its shards and its worker,
like a machine failure. Only the page cache survives.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from tests.chaos.machines.leftovers import processes_in
from tests.chaos.machines.namespaces import Network
from tests.replication.zookeeper_process import JAR
from tests.skew.shifted_clock import ShiftedClock

ROOT = Path(__file__).parents[3]
READY = re.compile(r"is ready on (\S+)")
START_S = 60.0  # generous, for a busy machine
STOP_S = 60.0
PORT = 8080
INTERNAL_PORT = 9080
ZOOKEEPER_PORT = 2181
ZOOKEEPER_ROOT = "/penstock"
TICK_MS = 500


class Host:
    """One process and its children in a namespace of their own."""

    def __init__(self, name: str, network: Network, directory: Path) -> None:
        self.name, self.network, self.directory = name, network, directory
        self.address = network.address(name)
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self, characters: int = 2000) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace")[-characters:] if path.exists() else ""

    def signal_all(self, number: signal.Signals) -> None:
        for pid in processes_in(self.network.namespace(self.name)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill every process, repeatedly: a supervisor that is killed last restarts its children."""
        while processes_in(self.network.namespace(self.name)):
            self.signal_all(signal.SIGKILL)
            time.sleep(0.01)
        if self._process is not None:
            self._process.wait()

    def _begin(self, command: list[str], environment: dict[str, str]) -> None:
        command = self.network.command(self.name, command)
        out, log = self.directory / "out", self.directory / "log"
        with out.open("wb") as output, log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=self.directory,
                env=environment,
                start_new_session=True,
            )

    def _wait_until(self, is_ready: Callable[[], object]) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while not is_ready():
            assert self._process.poll() is None, f"{self.name} ended: {self.log_tail()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready: {self.log_tail()}"
            time.sleep(0.05)


class ZookeeperHost(Host):
    """One server of Debian's ZooKeeper; confirmed writes survive a kill."""

    def start(self) -> None:
        (self.directory / "zoo.cfg").write_text(
            f"tickTime={TICK_MS}\nclientPort={ZOOKEEPER_PORT}\nclientPortAddress=0.0.0.0\nadmin.enableServer=false\n"
            f"dataDir={self.directory / 'data'}\n4lw.commands.whitelist=ruok\nmaxSessionTimeout=60000\n"
        )
        options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.preAllocSize=64"]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._begin(["java", *options, "-cp", str(JAR), main, "zoo.cfg"], dict(os.environ))
        self._wait_until(self._answers)

    def wipe(self) -> None:
        """Begin with an empty disk: the content is gone, and transaction ids begin again."""
        self.kill()
        shutil.rmtree(self.directory / "data")
        self.start()

    def delete_all(self) -> None:
        """Delete what the cluster has stored, key after key, while it runs. The topics go first, like deletions.
        Nodes may make keys meanwhile.
        """
        client = KazooClient(f"{self.address}:{ZOOKEEPER_PORT}")
        client.start()
        try:
            for path in (f"{ZOOKEEPER_ROOT}/topics", ZOOKEEPER_ROOT):
                while client.exists(path):
                    with suppress(NotEmptyError):
                        client.delete(path, recursive=True)
        finally:
            client.stop()
            client.close()

    @property
    def url(self) -> str:
        return f"zookeeper://{self.address}:{ZOOKEEPER_PORT}{ZOOKEEPER_ROOT}"

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, ZOOKEEPER_PORT), 1) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False


class NodeHost(Host):
    """Runs `penstock serve`. `source`: path of its code, so that a mutant can be run. `data`: path of its log."""

    def __init__(
        self, node_id: int, network: Network, directory: Path, settings: dict[str, object], source: Path = ROOT
    ) -> None:
        super().__init__(f"n{node_id}", network, directory)
        self.node_id, self.source, self._settings = node_id, source, settings
        self.data = directory / "data"
        self.clock: ShiftedClock | None = None  # the host's own clock, which may be wrong
        self.url = f"http://{self.address}:{PORT}"

    def start(self) -> None:
        self.begin_start()
        self.wait_until_ready()

    def begin_start(self) -> None:
        """Start without waiting, since a node may need the other nodes first."""
        settings = {
            "node-id": self.node_id,
            "rack": f"r{self.node_id}",
            "host": self.address,
            "port": PORT,
            "data-dir": self.data,
            **self._settings,
        }
        flags = [word for name, value in settings.items() for word in _flag(name, value)]
        command = [sys.executable, "-m", "penstock.cli.main", "serve", "--insecure", *flags]
        environment = {**os.environ, "PYTHONPATH": str(self.source)}
        self._begin(command, environment if self.clock is None else self.clock.environment(environment))

    def wait_until_ready(self) -> None:
        self._wait_until(lambda: READY.search((self.directory / "out").read_text()))

    def stop(self) -> int:
        """Send SIGTERM to the supervisor, which stops its children; return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_S)

    def pause(self) -> None:
        self.signal_all(signal.SIGSTOP)

    def pause_supervisor(self) -> None:
        """Pause the supervisor; its shards continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def pause_shards(self) -> None:
        """Pause the shards; the supervisor continues and keeps the node's session."""
        shards = [pid for pid in processes_in(self.network.namespace(self.name)) if _is_shard(pid)]
        assert shards, f"{self.name} has no shard"
        for pid in shards:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        self.signal_all(signal.SIGCONT)


def _flag(name: str, value: object) -> list[str]:
    """Return the words of a setting; True is a switch."""
    return [f"--{name}"] if value is True else [f"--{name}", str(value)]


def _is_shard(pid: int) -> bool:
    try:
        return b"node.processes.shard_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
