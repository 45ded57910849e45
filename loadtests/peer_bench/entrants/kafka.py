"""Kafka in the comparison: the record batches of Penstock's form `batch`, sent by Kafka's own protocol."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from loadtests.generators.generators import Generators
from loadtests.generators.wire import Wire, WireDelivery, WireLoad
from loadtests.peer_bench.entrants.kafka_client_session import KafkaClientSession
from loadtests.peer_bench.entrants.session import FETCH_BYTES, IN_FLIGHT, READERS, Session
from loadtests.peer_bench.entrants.values import batch_of, constant_batch, numbered_batch, values_of
from loadtests.peer_bench.entrants.wire_session import WireDeliverySession, WireSession
from loadtests.peer_bench.works import OWN_CLIENT, Cell, Plan, Work, filled_records
from loadtests.peers import kafka_wires
from loadtests.peers.kafka_codec import FETCH, PRODUCE
from loadtests.peers.kafka_server import FSYNC, KafkaServer
from loadtests.peers.processes import HOST

# A broker reads the next request of a connection after it has answered the one before, so pipelining does not help it.
CONNECTIONS, DEPTH = IN_FLIGHT, 1


class KafkaEntrant:
    """A broker, and the logs that all rounds read."""

    def __init__(self, server: KafkaServer, version: str, plan: Plan, generators: Generators, directory: Path) -> None:
        self._server = server
        self._version = version
        self._plan = plan
        self._generators = generators
        self._directory = directory
        self._address = (HOST, server.port)
        self._logs = 0
        self._filled: dict[str, str] = {}

    def pid(self, cell: Cell) -> int:
        return self._server.pid

    def facts(self) -> list[str]:
        versions = self._server.versions
        return [
            f"Kafka {self._version}: KRaft, one node, heap and collector of its start script, other settings default",
            f"Kafka's API: Produce v{versions[PRODUCE]}, Fetch v{versions[FETCH]}, {CONNECTIONS} connections",
            "Kafka's own client: kafka-producer-perf-test with the same records, batches of the same size and acks=1",
            "Kafka's answer waits for the page cache (acks=1); fsync: flush.messages=1 of the topic syncs each append",
        ]

    def session(self, cell: Cell) -> Session:
        match cell.work.kind:
            case "produce":
                return self._own_client(cell.work) if cell.form == OWN_CLIENT else self._produce(cell.work)
            case "read":
                return self._read(cell.work)
            case "delivery":
                return self._delivery()

    def _produce(self, work: Work) -> WireSession:
        topic = self._create(FSYNC if work.is_fsync else {})
        return WireSession(
            self._generators,
            partial(self._load, topic, work),
            work.records_each,
            count=partial(self._server.log_end, topic),
            close=partial(self._server.delete, topic),
        )

    def _own_client(self, work: Work) -> KafkaClientSession:
        topic = self._create(FSYNC if work.is_fsync else {})
        payload = self._directory / f"{work.key}.lines"
        payload.write_bytes(b"\n".join(values_of(work)))
        return KafkaClientSession(
            self._server.producer_command(topic),
            payload,
            work.records_each,
            len(batch_of(work)),
            count=partial(self._server.log_end, topic),
            close=partial(self._server.delete, topic),
        )

    def _load(self, topic: str, work: Work) -> WireLoad:
        wire = partial(_produce, topic, self._server.versions, work.records_each, batch_of(work))
        return WireLoad(self._address, wire, CONNECTIONS, DEPTH)

    def _read(self, work: Work) -> WireSession:
        topic = self._filled.get(work.key) or self._fill(work)
        max_bytes = FETCH_BYTES // len(batch_of(work)) * len(batch_of(work))
        load = WireLoad(self._address, partial(_read, topic, self._server.versions, max_bytes), READERS, 1)
        records_each = max_bytes // len(batch_of(work)) * work.records_each
        return WireSession(self._generators, lambda: load, records_each)

    def _fill(self, work: Work) -> str:
        """Write the log that a work reads, once. Raises RuntimeError if it does not hold all records."""
        topic = self._create({})
        filling = WireSession(
            self._generators, partial(self._load, topic, work), 1, count=partial(self._server.log_end, topic)
        )
        filling.run(filled_records(self._plan, work) // work.records_each)
        if problem := filling.problem():
            raise RuntimeError(f"Kafka's log to read: {problem}")
        self._filled[work.key] = topic
        return topic

    def _delivery(self) -> WireDeliverySession:
        topic = self._create({})
        versions = self._server.versions
        delivery = WireDelivery(
            self._address, partial(_numbered, topic, versions), partial(kafka_wires.Follow, topic, versions)
        )
        return WireDeliverySession(
            self._generators,
            delivery,
            self._plan.delivery_rate,
            count=partial(self._server.log_end, topic),
            close=partial(self._server.delete, topic),
            requests_max=round(self._plan.delivery_rate * self._plan.delivery_s),
        )

    def _create(self, config: dict[str, str]) -> str:
        self._logs += 1
        topic = f"bench-{self._logs}"
        self._server.create(topic, config)
        return topic


def _produce(topic: str, versions: Mapping[int, int], records: int, batch: bytes, connection: int) -> Wire:
    return kafka_wires.Produce(topic, versions, records, partial(constant_batch, batch), is_constant=True)


def _numbered(topic: str, versions: Mapping[int, int], connection: int) -> Wire:
    return kafka_wires.Produce(topic, versions, 1, numbered_batch, is_constant=False)


def _read(topic: str, versions: Mapping[int, int], max_bytes: int, connection: int) -> Wire:
    return kafka_wires.Read(topic, versions, max_bytes)
