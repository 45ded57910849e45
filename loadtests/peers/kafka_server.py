"""A Kafka broker of one node (KRaft), and its topics. Settings are Kafka's defaults but for those in PROPERTIES.

The heap and the collector are those of Kafka's own start script.
"""

from __future__ import annotations

import base64
import contextlib
import struct
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtests.peers import kafka_codec
from loadtests.peers.kafka_codec import API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, LIST_OFFSETS, KafkaError
from loadtests.peers.processes import CALL_S, HOST, PeerFailed, connect, free_port, running

HEAP = ["-Xmx1g", "-Xms1g"]
COLLECTOR = ["-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
LOGGING = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
offsets.topic.replication.factor=1
log.segment.delete.delay.ms=1000
log.dirs={data}
"""
FSYNC = {"flush.messages": "1"}  # of a topic: fsync after each append
TIMEOUT_MS = 30_000
_FORMAT_S = 120


@contextlib.contextmanager
def kafka(jars: Path, directory: Path) -> Iterator[KafkaServer]:
    """Run a broker with its data below a directory. Raises PeerFailed."""
    directory.mkdir(parents=True, exist_ok=True)
    port, properties, log = free_port(), directory / "server.properties", directory / "kafka.log"
    text = PROPERTIES.format(host=HOST, port=port, controller=free_port(), data=directory / "data")
    properties.write_text(text)
    java = ["java", *HEAP, *COLLECTOR, *LOGGING, "-cp", f"{jars}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A")
    format_ = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
    done = subprocess.run(format_, capture_output=True, text=True, timeout=_FORMAT_S, check=False)
    if done.returncode != 0:
        raise PeerFailed(f"Kafka's storage was not formatted: {done.stdout[-500:]}{done.stderr[-500:]}")
    with running([*java, "kafka.Kafka", str(properties)], port, log) as process:
        yield KafkaServer(process.pid, port, _versions(port), jars)


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """A running broker, the versions of its API that are used, and its jars."""

    pid: int
    port: int
    versions: dict[int, int]
    jars: Path

    def producer_command(self, topic: str) -> list[str]:
        """Returns the command of Kafka's own producer, `kafka-producer-perf-test`, without its load."""
        tool = ["java", *LOGGING, "-cp", f"{self.jars}/*", "org.apache.kafka.tools.ProducerPerformance"]
        return [*tool, "--bootstrap-server", f"{HOST}:{self.port}", "--topic", topic]

    def create(self, topic: str, config: dict[str, str]) -> None:
        """Raises KafkaError."""
        body = kafka_codec.create_topic_body(topic.encode(), config, TIMEOUT_MS)
        self._check(kafka_codec.parse_topic_error(self._call(CREATE_TOPICS, body)), f"create {topic}")
        _wait_until(lambda: self._log_end(topic)[0] == 0, f"{topic} has no leader")

    def delete(self, topic: str) -> None:
        """Raises KafkaError."""
        body = kafka_codec.delete_topic_body(topic.encode(), TIMEOUT_MS)
        self._check(kafka_codec.parse_topic_error(self._call(DELETE_TOPICS, body)), f"delete {topic}")

    def log_end(self, topic: str) -> int:
        """Raises KafkaError."""
        error, offset = self._log_end(topic)
        self._check(error, f"log end of {topic}")
        return offset

    def _log_end(self, topic: str) -> tuple[int, int]:
        version = self.versions[LIST_OFFSETS]
        return kafka_codec.parse_log_end(
            version, self._call(LIST_OFFSETS, kafka_codec.log_end_body(version, topic.encode()))
        )

    def _call(self, api: int, body: bytes) -> bytes:
        return _call(self.port, api, self.versions[api], body)

    def _check(self, error: int, what: str) -> None:
        if error:
            raise KafkaError(f"{what}: Kafka's error {error}")


def _versions(port: int) -> dict[int, int]:
    return kafka_codec.negotiate(kafka_codec.parse_api_versions(_call(port, API_VERSIONS, 0, b"")))


def _call(port: int, api: int, version: int, body: bytes) -> bytes:
    """Send one request on a connection of its own and return the response."""
    with connect(port) as connection:
        connection.sendall(kafka_codec.request(api, version, 0, body))
        stream = connection.makefile("rb")
        (length,) = struct.unpack(">i", stream.read(4))
        return stream.read(length)


def _wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + CALL_S
    while not is_so():
        if time.monotonic() > deadline:
            raise KafkaError(otherwise)
        time.sleep(0.02)
