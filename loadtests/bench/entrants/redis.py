"""Redis streams in the comparison, by `redis-benchmark`: each record is an entry of an append-only file."""

from __future__ import annotations

from functools import partial

from loadtests.bench.entrants.delivery_session import DeliverySession
from loadtests.bench.entrants.session import IN_FLIGHT, READERS, Session
from loadtests.bench.entrants.tool_session import Printed, ToolSession
from loadtests.bench.entrants.values import values_of
from loadtests.bench.works import Cell, Plan, Work, filled_records
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed
from loadtests.generators.wire import Wire, WireDelivery
from loadtests.generators.wire_delivery import deliver_over
from loadtests.peers import redis_wires
from loadtests.peers.processes import HOST
from loadtests.peers.redis_server import RedisServer

CONNECTIONS = 4
RANGE_RECORDS = 1000
_COLUMNS = 8  # test, requests a second, latency in ms: average, least, p50, p95, p99, most


class RedisEntrant:
    """A server, and the stream that all rounds read."""

    def __init__(self, server: RedisServer, version: str, plan: Plan, generators: Generators) -> None:
        self._server = server
        self._version = version
        self._plan = plan
        self._generators = generators
        self._streams = 0
        self._filled = ""

    def pid(self, cell: Cell) -> int:
        return self._server.pid

    def facts(self) -> list[str]:
        return [
            f"Redis {self._version}: streams in memory with an append-only file that is never rewritten, no snapshots",
            f"Redis' requests: redis-benchmark, {CONNECTIONS} connections, pipelines of 1000 XADDs, or of 16",
            f"Redis' readers: {READERS} connections, XRANGE of the first {RANGE_RECORDS}; delivery: XREAD that blocks",
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

    def _produce(self, work: Work) -> ToolSession:
        stream = self._name()
        pipeline = work.records_each if work.records_each > 1 else IN_FLIGHT // CONNECTIONS
        words = ["XADD", stream, "*", redis_wires.FIELD.decode(), values_of(work)[0].decode()]
        return ToolSession(
            partial(self._command, CONNECTIONS, pipeline, words),
            partial(parse_printed, 1),
            work.records_each,
            count=partial(self._server.entries, stream),
            close=partial(self._server.delete, stream),
            requests_step=CONNECTIONS * pipeline // work.records_each,
        )

    def _command(self, connections: int, pipeline: int, words: list[str], commands: int) -> list[str]:
        """Returns the command for a multiple of a pipeline; otherwise the tool sends the last pipeline whole."""
        command = ["redis-benchmark", "-h", HOST, "-p", str(self._server.port), "-c", str(connections), "--csv"]
        return [*command, "-P", str(pipeline), "-n", str(commands), *words]

    def _read(self, work: Work) -> ToolSession:
        stream = self._filled or self._fill(work)
        words = ["XRANGE", stream, "-", "+", "COUNT", str(RANGE_RECORDS)]
        return ToolSession(
            lambda records: self._command(READERS, 1, words, records // RANGE_RECORDS),
            partial(parse_printed, RANGE_RECORDS),
            RANGE_RECORDS,
            requests_step=READERS,
        )

    def _fill(self, work: Work) -> str:
        """Writes the stream that is read, once. Raises RuntimeError if it does not hold all records."""
        filling = self._produce(work)
        filling.run(filled_records(self._plan, work) // work.records_each)
        if problem := filling.problem():
            raise RuntimeError(f"the stream of Redis to read: {problem}")
        self._filled = f"bench-{self._streams}"
        return self._filled

    def _delivery(self) -> DeliverySession:
        stream = self._name()
        delivery = WireDelivery((HOST, self._server.port), partial(_add, stream), partial(redis_wires.Follow, stream))
        return DeliverySession(
            self._generators,
            partial(deliver_over, delivery),
            self._plan,
            count=lambda _: self._server.entries(stream),
            close=partial(self._server.delete, stream),
        )

    def _name(self) -> str:
        self._streams += 1
        return f"bench-{self._streams}"


def parse_printed(records_each: int, text: str, records: int) -> Printed:
    """Parses `redis-benchmark --csv`, whose rate is of commands. Raises GeneratorFailed."""
    lines = [line.rsplit(",", _COLUMNS - 1) for line in text.splitlines() if line.startswith('"')]
    if not lines or len(lines[-1]) != _COLUMNS:
        raise GeneratorFailed(f"redis-benchmark printed something unknown: {text[-300:]}")
    try:
        per_s, _, _, p50, _, p99, _ = (float(cell.strip('"')) for cell in lines[-1][1:])
    except ValueError:
        raise GeneratorFailed(f"redis-benchmark printed no figures: {text[-300:]}") from None
    return Printed(records, per_s * records_each, p50, p99)


def _add(stream: str, connection: int) -> Wire:
    return redis_wires.Add(stream)
