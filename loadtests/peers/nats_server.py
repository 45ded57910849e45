"""A nats-server with JetStream, its streams and consumers. All settings are defaults but the port, the directory and,
for fsync, `sync_interval: always`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.peers.nats_wires import CONNECT
from loadtests.peers.processes import HOST, PeerFailed, connect, free_port, running

CONFIG = """\
host: {host}
port: {port}
jetstream {{
  store_dir: "{data}"
  {sync}
}}
"""
SYNC = {False: "", True: "sync_interval: always"}
INACTIVE_NS = 120_000_000_000


@contextlib.contextmanager
def nats(program: Path, directory: Path, *, is_fsync: bool) -> Iterator[NatsServer]:
    """Runs a server with its data below a directory. Raises PeerFailed."""
    directory.mkdir(parents=True, exist_ok=True)
    port, config = free_port(), directory / "nats.conf"
    config.write_text(CONFIG.format(host=HOST, port=port, data=directory / "data", sync=SYNC[is_fsync]))
    with running([str(program), "-c", str(config)], port, directory / "nats.log") as process:
        yield NatsServer(process.pid, port)


def nats_version(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1].removeprefix("v")


@dataclass(frozen=True, slots=True)
class NatsServer:
    """A running server."""

    pid: int
    port: int

    def create(self, stream: str) -> None:
        """Raises PeerFailed."""
        config = {"name": stream, "subjects": [stream], "storage": "file", "num_replicas": 1, "allow_atomic": True}
        self._api(f"STREAM.CREATE.{stream}", config)

    def delete(self, stream: str) -> None:
        """Raises PeerFailed."""
        self._api(f"STREAM.DELETE.{stream}", {})

    def messages(self, stream: str) -> int:
        """Raises PeerFailed."""
        return int(self._api(f"STREAM.INFO.{stream}", {})["state"]["messages"])

    def create_consumer(self, stream: str, name: str, deliver_subject: str = "") -> None:
        """Creates a push consumer, or without a subject a pull consumer. Raises PeerFailed."""
        config = {
            "name": name,
            "ack_policy": "none",
            "deliver_policy": "all",
            "mem_storage": True,
            "inactive_threshold": INACTIVE_NS,
            **({"deliver_subject": deliver_subject} if deliver_subject else {}),
        }
        self._api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})

    def _api(self, subject: str, asked: dict[str, Any]) -> Any:
        """Calls JetStream's API on a connection of its own. Raises PeerFailed."""
        body = json.dumps(asked).encode()
        inbox = b"_INBOX.admin"
        head = b"SUB %b 1\r\nPUB $JS.API.%b %b %d\r\n" % (inbox, subject.encode(), inbox, len(body))
        with connect(self.port) as connection:
            connection.sendall(CONNECT + head + body + b"\r\n")
            stream = connection.makefile("rb")
            while not (line := stream.readline()).startswith(b"MSG "):
                if not line or line.startswith((b"-ERR", b"HMSG")):
                    raise PeerFailed(f"{subject}: {line!r}")
            answer = json.loads(stream.read(int(line.split()[-1])))
        if "error" in answer:
            raise PeerFailed(f"{subject}: {answer['error']}")
        return answer
