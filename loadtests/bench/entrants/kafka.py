"""Kafka in the comparison: its own producer sends, and aiokafka reads and delivers."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from loadtests.bench.entrants.delivery_session import DeliverySession
from loadtests.bench.entrants.kafka_client import deliver_by_client, read_log
from loadtests.bench.entrants.session import FETCH_BYTES, IN_FLIGHT, READERS, RUN_S, UNBOUNDED, Counted, Session
from loadtests.bench.entrants.tool_session import Printed, ToolSession
from loadtests.bench.entrants.values import batch_of, values_of
from loadtests.bench.works import Cell, Plan, Work, filled_records
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed
from loadtests.peers.kafka_server import FSYNC, KafkaServer

PROPERTIES = ("acks=1", "enable.idempotence=false", f"max.in.flight.requests.per.connection={IN_FLIGHT}")
SINGLE_BUFFER_BYTES = 256  # of the producer, for a batch of one record
# A shorter run is mostly the start of the producer's JVM.
RUN_BYTES_MIN, RUN_SINGLE_RECORDS_MIN = 64_000_000, 10_000
_PRINTED = re.compile(
    r"^(\d+) records sent, ([\d.]+) records/sec .* ([\d.]+) ms 50th, .* ([\d.]+) ms 99th,", re.MULTILINE
)


class KafkaEntrant:
    """A broker, and the logs that all rounds read."""

    def __init__(self, server: KafkaServer, version: str, plan: Plan, generators: Generators, directory: Path) -> None:
        self._server = server
        self._version = version
        self._plan = plan
        self._generators = generators
        self._directory = directory
        self._logs = 0
        self._filled: dict[str, str] = {}

    def pid(self, cell: Cell) -> int:
        return self._server.pid

    def facts(self) -> list[str]:
        return [
            f"Kafka {self._version}: KRaft, one node, heap and collector of its start script, other settings default",
            f"Kafka's requests: kafka-producer-perf-test, batches of the same size, {IN_FLIGHT} in its buffer",
            f"Kafka's readers: {READERS} consumers of aiokafka; delivery: a producer and a consumer of aiokafka",
            "Kafka's answer waits for the page cache (acks=1); fsync: flush.messages=1 of the topic syncs each append",
        ]

    def session(self, cell: Cell) -> Session:
        match cell.work.kind:
            case "produce":
                return self._produce(cell.work)
            case "read":
                return ReadSession(self._server, self._log(cell.work), cell.work, self._generators)
            case "delivery":
                return self._delivery()

    def _produce(self, work: Work) -> ToolSession:
        topic = self._create(FSYNC if work.is_fsync else {})
        return ToolSession(
            partial(self._command, topic, work),
            parse_printed,
            work.records_each,
            count=partial(self._server.log_end, topic),
            close=partial(self._server.delete, topic),
            requests_step=RUN_BYTES_MIN // len(batch_of(work)) if work.records_each > 1 else RUN_SINGLE_RECORDS_MIN,
        )

    def _command(self, topic: str, work: Work, records: int) -> list[str]:
        """Returns the producer's command. Its buffer bounds the batches that wait, as a closed loop does."""
        payload = self._directory / f"{work.key}.lines"
        payload.write_bytes(b"\n".join(values_of(work)))
        is_batched = work.records_each > 1
        batch_bytes = len(batch_of(work)) if is_batched else 0  # 0: each record in a request of its own
        buffer_bytes = IN_FLIGHT * (batch_bytes or SINGLE_BUFFER_BYTES)
        properties = [*PROPERTIES, f"linger.ms={5 if is_batched else 0}"]
        properties += [f"batch.size={batch_bytes}", f"buffer.memory={buffer_bytes}"]
        command = [*self._server.producer_command(topic), "--throughput", "-1", "--payload-file", str(payload)]
        return [*command, "--num-records", str(records), "--command-property", *properties]

    def _log(self, work: Work) -> str:
        """Returns the log that a work reads; writes it the first time. Raises RuntimeError if it is not whole."""
        if work.key not in self._filled:
            filling = self._produce(work)
            filling.run(filled_records(self._plan, work) // work.records_each)
            if problem := filling.problem():
                raise RuntimeError(f"Kafka's log to read: {problem}")
            self._filled[work.key] = f"bench-{self._logs}"
        return self._filled[work.key]

    def _delivery(self) -> DeliverySession:
        topic = self._create({})
        return DeliverySession(
            self._generators,
            partial(deliver_by_client, self._server.address, topic),
            self._plan,
            count=lambda _: self._server.log_end(topic),
            close=partial(self._server.delete, topic),
        )

    def _create(self, config: dict[str, str]) -> str:
        self._logs += 1
        topic = f"bench-{self._logs}"
        self._server.create(topic, config)
        return topic


class ReadSession:
    """Consumers that read a log over and over. A request is as many batches as a fetch of 1 MiB holds."""

    requests_step = READERS
    requests_max = UNBOUNDED

    def __init__(self, server: KafkaServer, topic: str, work: Work, generators: Generators) -> None:
        self._server = server
        self._topic = topic
        self._generators = generators
        self._problem = ""
        self.records_each = float(FETCH_BYTES // len(batch_of(work)) * work.records_each)

    def run(self, requests: int) -> Counted:
        records = requests * round(self.records_each)
        counted = self._generators.in_child(
            RUN_S, partial(read_log, self._server.address, self._topic, READERS, records)
        )
        self._problem = self._problem or counted.outcome.what_went_wrong
        return counted

    def problem(self) -> str:
        return self._problem

    def close(self) -> None:
        """Leaves the log to the next rounds."""


def parse_printed(text: str, records: int) -> Printed:
    """Parses the last line of `kafka-producer-perf-test`. Raises GeneratorFailed."""
    matches = _PRINTED.findall(text)
    if not matches:
        raise GeneratorFailed(f"Kafka's producer printed something unknown: {text[-300:]}")
    sent, per_s, p50, p99 = matches[-1]
    return Printed(int(sent), float(per_s), float(p50), float(p99))
