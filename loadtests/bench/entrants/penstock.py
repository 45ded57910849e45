"""Penstock in the comparison, over HTTP: acks=1 waits for the page cache, acks=all for the fsync of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from loadtests.bench.entrants.delivery_session import DeliverySession
from loadtests.bench.entrants.keyed_requests import header_of
from loadtests.bench.entrants.penstock_log import PenstockLog
from loadtests.bench.entrants.session import IN_FLIGHT, READERS, RUN_S, UNBOUNDED, Counted, Session
from loadtests.bench.entrants.values import batch_of, values_of
from loadtests.bench.works import (
    BATCH,
    HTTP1,
    JSON,
    KEYED,
    NDJSON,
    PLAIN,
    SEQUENCED,
    TOPIC_CONFIG,
    Cell,
    Plan,
    Work,
    filled_records,
)
from loadtests.generators.bodies import BATCH_TYPE, JSON_TYPE, NDJSON_TYPE, Body, json_body, ndjson_body, raw_body
from loadtests.generators.closed_loop import run_closed_loop
from loadtests.generators.delivery import deliver
from loadtests.generators.generators import Generators
from loadtests.generators.load import Load, Outcome
from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import Server

CONNECTIONS = 4  # of HTTP/2
READER_CONNECTIONS = 2
TYPES = {BATCH: BATCH_TYPE, JSON: JSON_TYPE, NDJSON: NDJSON_TYPE}


class PenstockEntrant:
    """The nodes by name, one for each number of shards."""

    def __init__(
        self, nodes: Mapping[str, Server], version: str, plan: Plan, generators: Generators, directory: Path
    ) -> None:
        self._nodes = nodes
        self._version = version
        self._plan = plan
        self._generators = generators
        self._directory = directory
        self._admins = {name: AdminClient(node.url) for name, node in nodes.items()}
        self._topics = 0
        self._logs: dict[tuple[str, str], PenstockLog] = {}

    def pid(self, cell: Cell) -> int:
        return self._nodes[cell.server].pid

    def facts(self) -> list[str]:
        return [
            f"Penstock {self._version}: default settings, one partition, so one of two shards owns the log",
            f"Penstock's requests: HTTP/2, {CONNECTIONS} connections of 16 streams; HTTP/1.1, {IN_FLIGHT}; by h2load",
            "Penstock's answer waits for the page cache (acks=1); fsync: acks=all, an fdatasync for a group",
            "Penstock's delivery: durability=os, so that readers get what is in the page cache, as from the others",
        ]

    def session(self, cell: Cell) -> Session:
        match cell.work.kind:
            case "produce":
                return self._keyed_session(cell) if cell.form in (PLAIN, KEYED, SEQUENCED) else self._produce(cell)
            case "read":
                return ReadSession(self._nodes[cell.server].url, self._log(cell), TYPES[cell.form], self._generators)
            case "delivery":
                return self._delivery(cell)

    def _produce(self, cell: Cell) -> ProduceSession:
        topic, body = self._create(cell.server), body_of(cell.work, cell.form)
        path = f"/v1/topics/{topic}/records?acks={'all' if cell.work.is_fsync else '1'}"
        load = load_of(self._nodes[cell.server].url, cell, path, body, self._directory, is_http1=cell.form == HTTP1)
        return ProduceSession(
            self._admins[cell.server], topic, load, body.records, lambda load: self._generators.run_closed(load, RUN_S)
        )

    def _keyed_session(self, cell: Cell) -> ProduceSession:
        """Returns closed loops over HTTP/1.1 by the generator whose requests differ."""
        admin, topic = self._admins[cell.server], self._create(cell.server)
        body = body_of(cell.work, NDJSON if cell.work.records_each > 1 else HTTP1)
        path = f"/v1/topics/{topic}/partitions/0/records?acks=1"
        load = load_of(self._nodes[cell.server].url, cell, path, body, self._directory, is_http1=True)

        def run_load(load: Load) -> Outcome:
            header = header_of(admin, cell.form, body.records)
            return self._generators.in_child(RUN_S, partial(run_closed_loop, load, header))

        return ProduceSession(admin, topic, load, body.records, run_load)

    def _log(self, cell: Cell) -> PenstockLog:
        """Returns the log that all rounds of a work read; writes it the first time."""
        key = (cell.server, cell.work.key)
        if key not in self._logs:
            # A stored batch stays alone; single records in other forms may share one.
            filling = self._produce(Cell(cell.work, cell.server, BATCH if cell.work.records_each > 1 else NDJSON))
            records = filled_records(self._plan, cell.work)
            filling.run(records // cell.work.records_each)
            problem = filling.problem()
            if problem or self._admins[cell.server].wait_high_watermark(filling.topic, records) != records:
                raise RuntimeError(f"the log to read: {problem or 'it is not synced'}")
            self._logs[key] = PenstockLog(self._admins[cell.server], filling.topic, records, values_of(cell.work))
        return self._logs[key]

    def _delivery(self, cell: Cell) -> Session:
        topic = self._create(cell.server, {"durability": "os"})
        url = self._nodes[cell.server].url
        admin = self._admins[cell.server]
        return DeliverySession(
            self._generators,
            partial(deliver, url, topic, "1"),
            self._plan,
            count=partial(admin.wait_log_end, topic),
            close=partial(admin.delete_topic, topic),
        )

    def _create(self, server: str, config: Mapping[str, object] | None = None) -> str:
        self._topics += 1
        topic = f"bench-{self._topics}"
        self._admins[server].create_topic(topic, TOPIC_CONFIG | dict(config or {}))
        return topic


class ProduceSession:
    """Closed loops at one topic, which `run_load` runs."""

    requests_step = IN_FLIGHT  # h2load wants a request for each connection
    requests_max = UNBOUNDED

    def __init__(
        self, admin: AdminClient, topic: str, load: Load, records: int, run_load: Callable[[Load], Outcome]
    ) -> None:
        self._admin = admin
        self._load = load
        self._run_load = run_load
        self._acknowledged = 0
        self._problem = ""
        self.topic = topic
        self.records_each = float(records)

    def run(self, requests: int) -> Counted:
        outcome = self._run_load(replace(self._load, requests=requests))
        records = outcome.good * round(self.records_each)
        self._acknowledged += records
        if outcome.bad:
            self._problem = f"{outcome.bad} requests failed: {outcome.what_went_wrong}"
        return Counted(outcome, records)

    def problem(self) -> str:
        stored = self._admin.wait_log_end(self.topic, self._acknowledged)
        if self._problem or stored == self._acknowledged:
            return self._problem
        return f"the log has {stored} records, acked were {self._acknowledged}"

    def close(self) -> None:
        self._admin.delete_topic(self.topic)


class ReadSession:
    """Closed loops of h2load that read a log, whose answers are known."""

    requests_max = UNBOUNDED

    def __init__(self, url: str, log: PenstockLog, media_type: str, generators: Generators) -> None:
        self._targets = log.targets(media_type)
        self._load = Load(
            url=url,
            targets=tuple(target.path for target in self._targets),
            requests=0,
            connections=READER_CONNECTIONS,
            streams=READERS // READER_CONNECTIONS,
            headers=(("accept", media_type),),
        )
        self._generators = generators
        self._problem = ""
        # Each connection of h2load goes through all targets in their order.
        self.requests_step = READER_CONNECTIONS * len(self._targets)
        self.records_each = sum(target.records for target in self._targets) / len(self._targets)

    def run(self, requests: int) -> Counted:
        assert requests % self.requests_step == 0
        outcome: Outcome = self._generators.run_closed(replace(self._load, requests=requests), RUN_S)
        times = requests // len(self._targets)
        expected = times * sum(target.answer_bytes for target in self._targets)
        if outcome.bad:
            self._problem = f"{outcome.bad} requests failed: {outcome.what_went_wrong}"
        elif outcome.answer_bytes != expected:
            self._problem = f"the answers have {outcome.answer_bytes} bytes instead of {expected}"
        return Counted(outcome, times * sum(target.records for target in self._targets))

    def problem(self) -> str:
        return self._problem

    def close(self) -> None:
        """Leaves the log to the next rounds."""


def load_of(url: str, cell: Cell, path: str, body: Body, directory: Path, *, is_http1: bool) -> Load:
    """Returns a closed loop without its number of requests."""
    body_file = directory / f"{cell.work.key}-{cell.form.replace('/', '')}.body"
    body_file.write_bytes(body.data)
    return Load(
        url=url,
        targets=(path,),
        requests=0,
        connections=IN_FLIGHT if is_http1 else CONNECTIONS,
        streams=1 if is_http1 else IN_FLIGHT // CONNECTIONS,
        body_file=body_file,
        headers=(("content-type", body.media_type),),
        is_http1=is_http1,
    )


def body_of(work: Work, form: str) -> Body:
    values = values_of(work)
    match form:
        case "NDJSON":
            return ndjson_body(values)
        case "JSON":
            return json_body(values)
        case "HTTP/2" | "HTTP/1.1":
            return raw_body(values[0])
    return Body(BATCH_TYPE, batch_of(work), len(values))
