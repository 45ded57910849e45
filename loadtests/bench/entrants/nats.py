"""NATS JetStream in the comparison, by `nats bench`: each record is a message. One of two servers syncs."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from loadtests.bench.entrants.delivery_session import DeliverySession
from loadtests.bench.entrants.session import IN_FLIGHT, READERS, Session
from loadtests.bench.entrants.tool_session import Printed, ToolSession
from loadtests.bench.entrants.values import values_of
from loadtests.bench.works import ATOMIC, Cell, Plan, Work, filled_records
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed
from loadtests.generators.wire import Wire, WireDelivery
from loadtests.generators.wire_delivery import deliver_over
from loadtests.peers import nats_wires
from loadtests.peers.nats_server import NatsServer
from loadtests.peers.processes import HOST

CONNECTIONS = 4
PULL_RECORDS = 1000
TAIL_SUBJECT = "tail"
_RATE = re.compile(r"aggregated stats: ([\d,]+) msgs/sec")
_LATENCY = re.compile(r"P50:? ([\d.,]+)us.* P99:? ([\d.,]+)us")


class NatsEntrant:
    """Two servers, by whether they sync, and the stream that all rounds read."""

    def __init__(
        self,
        server: NatsServer,
        syncing: NatsServer,
        version: str,
        cli: Path,
        plan: Plan,
        generators: Generators,
        directory: Path,
    ) -> None:
        self._servers = {False: server, True: syncing}
        self._version = version
        self._cli = cli
        self._plan = plan
        self._generators = generators
        self._directory = directory
        self._streams = 0
        self._consumers = 0
        self._filled = ""

    def pid(self, cell: Cell) -> int:
        return self._servers[cell.work.is_fsync].pid

    def facts(self) -> list[str]:
        return [
            f"NATS {self._version}: JetStream, file storage, one replica, other settings default",
            f"NATS' requests: nats bench, a message a record; {CONNECTIONS} connections, 1000 or 16 in flight on each",
            "NATS' latency of produces: that of all messages which a connection has in flight",
            f"NATS' readers: nats bench, {READERS} without acks, {PULL_RECORDS} a pull; delivery: a push consumer",
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

    def _produce(self, work: Work, *, is_atomic: bool = False) -> ToolSession:
        server = self._servers[work.is_fsync]
        stream = self._create(server)
        in_flight = work.records_each if work.records_each > 1 else IN_FLIGHT // CONNECTIONS
        payload = self._directory / f"{work.key}.message"
        payload.write_bytes(values_of(work)[0])
        kind = "atomic" if is_atomic else "async"
        options = ["pub", kind, stream, "--payload", str(payload), "--size", str(work.record_bytes)]
        options += ["--batch", str(in_flight), "--clients", str(CONNECTIONS)]
        return ToolSession(
            partial(self._command, server, stream, options),
            parse_printed,
            work.records_each,
            count=partial(server.messages, stream),
            close=partial(server.delete, stream),
            requests_step=CONNECTIONS * in_flight // work.records_each,
        )

    def _command(self, server: NatsServer, stream: str, options: list[str], messages: int) -> list[str]:
        command = [str(self._cli), "--server", f"nats://{HOST}:{server.port}", "bench", "js", *options]
        return [*command, "--stream", stream, "--msgs", str(messages), "--no-progress"]

    def _read(self, work: Work) -> ToolSession:
        stream = self._filled or self._fill(work)
        return ToolSession(
            partial(self._pull_command, stream),
            parse_printed,
            PULL_RECORDS,
            requests_step=READERS,
            requests_max=self._plan.filled_records // PULL_RECORDS // READERS * READERS,
        )

    def _pull_command(self, stream: str, messages: int) -> list[str]:
        """Returns the command of readers that share a new consumer, which begins at the start of the stream."""
        self._consumers += 1
        consumer = f"reader-{self._consumers}"
        self._servers[False].create_consumer(stream, consumer)
        options = ["fetch", "--consumer", consumer, "--acks", "none"]
        options += ["--batch", str(PULL_RECORDS), "--clients", str(READERS)]
        return self._command(self._servers[False], stream, options, messages)

    def _fill(self, work: Work) -> str:
        """Writes the stream that is read, once. Raises RuntimeError if it does not hold all records."""
        filling = self._produce(work)
        filling.run(filled_records(self._plan, work) // work.records_each)
        if problem := filling.problem():
            raise RuntimeError(f"the stream of NATS to read: {problem}")
        self._filled = f"bench-{self._streams}"
        return self._filled

    def _delivery(self) -> DeliverySession:
        server = self._servers[False]
        stream = self._create(server)
        subject = f"{TAIL_SUBJECT}.{stream}"
        server.create_consumer(stream, "follower", subject)
        delivery = WireDelivery((HOST, server.port), partial(_publish, stream), partial(nats_wires.Follow, subject))
        return DeliverySession(
            self._generators,
            partial(deliver_over, delivery),
            self._plan,
            count=lambda _: server.messages(stream),
            close=partial(server.delete, stream),
        )

    def _create(self, server: NatsServer) -> str:
        self._streams += 1
        stream = f"bench-{self._streams}"
        server.create(stream)
        return stream


def parse_printed(text: str, records: int) -> Printed:
    """Parses the summary of `nats bench`, which it prints of several clients. Raises GeneratorFailed."""
    rates, latencies = _RATE.findall(text), _LATENCY.findall(text)
    if not rates or not latencies:
        raise GeneratorFailed(f"nats bench printed something unknown: {text[-300:]}")
    p50_us, p99_us = map(_number, latencies[-1])
    return Printed(records, _number(rates[-1]), p50_us / 1000, p99_us / 1000)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _publish(stream: str, connection: int) -> Wire:
    return nats_wires.Publish(stream, connection)
