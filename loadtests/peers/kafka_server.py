"""A Kafka broker of one node (KRaft), and its topics. Settings are Kafka's defaults but for those in PROPERTIES.

The heap and the collector are those of Kafka's own start script.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from loadtests.peers.processes import HOST, PeerFailed, free_port, running

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
_FORMAT_S = 120


@contextlib.contextmanager
def kafka(jars: Path, directory: Path) -> Iterator[KafkaServer]:
    """Runs a broker with its data below a directory. Raises PeerFailed."""
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
        yield KafkaServer(process.pid, port, jars)


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """A running broker and its jars."""

    pid: int
    port: int
    jars: Path

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def producer_command(self, topic: str) -> list[str]:
        """Returns the command of Kafka's own producer, `kafka-producer-perf-test`, without its load."""
        tool = ["java", *LOGGING, "-cp", f"{self.jars}/*", "org.apache.kafka.tools.ProducerPerformance"]
        return [*tool, "--bootstrap-server", self.address, "--topic", topic]

    def create(self, topic: str, config: dict[str, str]) -> None:
        """Raises PeerFailed."""
        asyncio.run(_create(self.address, topic, config))

    def delete(self, topic: str) -> None:
        """Raises PeerFailed."""
        asyncio.run(_delete(self.address, topic))

    def log_end(self, topic: str) -> int:
        return asyncio.run(_find_log_end(self.address, topic))


async def _create(address: str, topic: str, config: dict[str, str]) -> None:
    async with _admin(address) as admin:
        _check((await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=config)])).topic_errors)


async def _delete(address: str, topic: str) -> None:
    async with _admin(address) as admin:
        _check((await admin.delete_topics([topic])).topic_error_codes)


@contextlib.asynccontextmanager
async def _admin(address: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _find_log_end(address: str, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=address) as consumer:
        return int((await consumer.end_offsets([partition]))[partition])


def _check(answers: list[tuple[str, int]]) -> None:
    """Raises PeerFailed for an answer with an error."""
    for topic, error, *_ in answers:
        if error:
            raise PeerFailed(f"{topic}: Kafka's error {error}")
