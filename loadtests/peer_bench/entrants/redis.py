"""Redis streams in the comparison: each record is an entry; the append-only file is written before the answer."""

from __future__ import annotations

from functools import partial

from loadtests.generators.generators import Generators
from loadtests.generators.wire import Wire, WireDelivery, WireLoad
from loadtests.peer_bench.entrants.session import IN_FLIGHT, READERS, Session
from loadtests.peer_bench.entrants.values import constant_values, numbered_values, values_of
from loadtests.peer_bench.entrants.wire_session import WireDeliverySession, WireSession
from loadtests.peer_bench.works import Cell, Plan, Work, filled_records
from loadtests.peers import redis_wires
from loadtests.peers.processes import HOST
from loadtests.peers.redis_server import RedisServer

CONNECTIONS = 4
RANGE_RECORDS = 1000


class RedisEntrant:
    """A server, and the stream that all rounds read."""

    def __init__(self, server: RedisServer, version: str, plan: Plan, generators: Generators) -> None:
        self._server = server
        self._version = version
        self._plan = plan
        self._generators = generators
        self._address = (HOST, server.port)
        self._streams = 0
        self._filled = ""

    def pid(self, cell: Cell) -> int:
        return self._server.pid

    def facts(self) -> list[str]:
        return [
            f"Redis {self._version}: streams in memory with an append-only file that is never rewritten, no snapshots",
            f"Redis' requests: an XADD a record, pipelined, {CONNECTIONS} connections, 16 requests in flight on each",
            f"Redis' readers: {READERS} connections, XRANGE with COUNT {RANGE_RECORDS}; delivery: XREAD that blocks",
            "Redis' answer waits for the write to the page cache (appendfsync no); fsync: appendfsync always",
        ]

    def session(self, cell: Cell) -> Session:
        self._server.set_fsync(is_fsync=cell.work.is_fsync)
        match cell.work.kind:
            case "produce":
                return self._produce(cell.work)
            case "read":
                return self._read(cell.work)
            case "delivery":
                return self._delivery()

    def _produce(self, work: Work) -> WireSession:
        stream = self._name()
        return WireSession(
            self._generators,
            partial(self._load, stream, work),
            work.records_each,
            count=partial(self._server.entries, stream),
            close=partial(self._server.delete, stream),
        )

    def _load(self, stream: str, work: Work) -> WireLoad:
        wire = partial(_add, stream, work.records_each, values_of(work))
        return WireLoad(self._address, wire, CONNECTIONS, IN_FLIGHT // CONNECTIONS)

    def _read(self, work: Work) -> WireSession:
        stream = self._filled or self._fill(work)
        load = WireLoad(self._address, partial(_range, stream), READERS, 1)
        return WireSession(self._generators, lambda: load, RANGE_RECORDS)

    def _fill(self, work: Work) -> str:
        """Write the stream that is read, once. Raises RuntimeError if it does not hold all records."""
        stream = self._name()
        filling = WireSession(
            self._generators, partial(self._load, stream, work), 1, count=partial(self._server.entries, stream)
        )
        filling.run(filled_records(self._plan, work) // work.records_each)
        if problem := filling.problem():
            raise RuntimeError(f"the stream of Redis to read: {problem}")
        self._filled = stream
        return stream

    def _delivery(self) -> WireDeliverySession:
        stream = self._name()
        return WireDeliverySession(
            self._generators,
            WireDelivery(self._address, partial(_numbered, stream), partial(redis_wires.Follow, stream)),
            self._plan.delivery_rate,
            count=partial(self._server.entries, stream),
            close=partial(self._server.delete, stream),
            requests_max=round(self._plan.delivery_rate * self._plan.delivery_s),
        )

    def _name(self) -> str:
        self._streams += 1
        return f"bench-{self._streams}"


def _add(stream: str, records: int, values: tuple[bytes, ...], connection: int) -> Wire:
    return redis_wires.Add(stream, records, partial(constant_values, values), is_constant=True)


def _numbered(stream: str, connection: int) -> Wire:
    return redis_wires.Add(stream, 1, numbered_values, is_constant=False)


def _range(stream: str, connection: int) -> Wire:
    return redis_wires.Range(stream, RANGE_RECORDS)
