"""NATS JetStream in the comparison: each record is a message with an acknowledgement. One of two servers syncs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from loadtests.generators.generators import Generators
from loadtests.generators.wire import Wire, WireDelivery, WireLoad
from loadtests.peer_bench.entrants.session import IN_FLIGHT, READERS, Session
from loadtests.peer_bench.entrants.values import constant_values, numbered_values, values_of
from loadtests.peer_bench.entrants.wire_session import WireDeliverySession, WireSession
from loadtests.peer_bench.works import ATOMIC, Cell, Plan, Work, filled_records
from loadtests.peers import nats_wires
from loadtests.peers.nats_server import NatsServer
from loadtests.peers.processes import HOST

CONNECTIONS = 4
PULL_RECORDS = 1000
TAIL_SUBJECT = "tail"


class NatsEntrant:
    """Two servers, by whether they sync, and the stream that all rounds read."""

    def __init__(
        self, server: NatsServer, syncing: NatsServer, version: str, plan: Plan, generators: Generators
    ) -> None:
        self._servers = {False: server, True: syncing}
        self._version = version
        self._plan = plan
        self._generators = generators
        self._streams = 0
        self._consumers = 0
        self._filled = ""

    def pid(self, cell: Cell) -> int:
        return self._servers[cell.work.is_fsync].pid

    def facts(self) -> list[str]:
        return [
            f"NATS {self._version}: JetStream, file storage, one replica, other settings default",
            f"NATS' requests: a message a record; {CONNECTIONS} connections, each 1000 in flight, or 16 single ones",
            f"NATS' readers: {READERS} pull consumers without acks, {PULL_RECORDS} a pull; delivery: a push consumer",
            "NATS' answer: the default of file storage, which is synced every 2 minutes; fsync: sync_interval: always",
        ]

    def session(self, cell: Cell) -> Session:
        match cell.work.kind:
            case "produce":
                return self._produce(cell.work, is_atomic=cell.form == ATOMIC)
            case "read":
                return self._read(cell.work)
            case "delivery":
                return self._delivery()

    def _produce(self, work: Work, *, is_atomic: bool) -> WireSession:
        server = self._servers[work.is_fsync]
        stream = self._create(server)
        return WireSession(
            self._generators,
            partial(self._load, server, stream, work, is_atomic=is_atomic),
            work.records_each,
            count=partial(server.messages, stream),
            close=partial(server.delete, stream),
        )

    def _load(self, server: NatsServer, stream: str, work: Work, *, is_atomic: bool = False) -> WireLoad:
        wire: Callable[[int], Wire] = partial(_publish, stream, work.records_each, values_of(work))
        if is_atomic:
            wire = partial(_publish_atomic, stream, values_of(work))
        depth = IN_FLIGHT // CONNECTIONS if work.records_each == 1 else 1  # the server limits messages in flight
        return WireLoad((HOST, server.port), wire, CONNECTIONS, depth)

    def _read(self, work: Work) -> WireSession:
        server = self._servers[False]
        stream = self._filled or self._fill(work)
        requests_max = READERS * (self._plan.filled_records // PULL_RECORDS)
        make_load = partial(self._pull_load, server, stream)
        return WireSession(self._generators, make_load, PULL_RECORDS, requests_max=requests_max)

    def _pull_load(self, server: NatsServer, stream: str) -> WireLoad:
        """Each run reads with consumers of its own, from the start."""
        self._consumers += 1
        name = f"reader-{self._consumers}"
        for reader in range(READERS):
            server.create_pull_consumer(stream, f"{name}-{reader}")
        pulls_max = self._plan.filled_records // PULL_RECORDS  # a consumer reads the stream once
        return WireLoad((HOST, server.port), partial(_pull, stream, name), READERS, 1, pulls_max)

    def _fill(self, work: Work) -> str:
        """Write the stream that is read, once. Raises RuntimeError if it does not hold all records."""
        server = self._servers[False]
        stream = self._create(server)
        filling = WireSession(
            self._generators, partial(self._load, server, stream, work), 1, count=partial(server.messages, stream)
        )
        filling.run(filled_records(self._plan, work) // work.records_each)
        if problem := filling.problem():
            raise RuntimeError(f"the stream of NATS to read: {problem}")
        self._filled = stream
        return stream

    def _delivery(self) -> WireDeliverySession:
        server = self._servers[False]
        stream = self._create(server)
        subject = f"{TAIL_SUBJECT}.{stream}"
        server.create_push_consumer(stream, "follower", subject)
        delivery = WireDelivery((HOST, server.port), partial(_numbered, stream), partial(nats_wires.Follow, subject))
        return WireDeliverySession(
            self._generators,
            delivery,
            self._plan.delivery_rate,
            count=partial(server.messages, stream),
            close=partial(server.delete, stream),
            requests_max=round(self._plan.delivery_rate * self._plan.delivery_s),
        )

    def _create(self, server: NatsServer) -> str:
        self._streams += 1
        stream = f"bench-{self._streams}"
        server.create(stream)
        return stream


def _publish(stream: str, records: int, values: tuple[bytes, ...], connection: int) -> Wire:
    return nats_wires.Publish(stream, connection, records, partial(constant_values, values), is_constant=True)


def _publish_atomic(stream: str, values: tuple[bytes, ...], connection: int) -> Wire:
    return nats_wires.PublishAtomic(stream, connection, values)


def _numbered(stream: str, connection: int) -> Wire:
    return nats_wires.Publish(stream, connection, 1, numbered_values, is_constant=False)


def _pull(stream: str, consumer: str, connection: int) -> Wire:
    return nats_wires.Pull(stream, consumer, connection, PULL_RECORDS)
