"""Locust users: producers of JSON and NDJSON, and long-polling consumers that check everything they read.

`locust -f loadtests/locust/locustfile.py --headless -u 12 -r 12 -t 30s --host http://127.0.0.1:8080` It creates its own
topic, and deletes it if everything is correct. A fault is a failed request in locust's statistics, so locust exits with
1. The ledger is in memory: one process, no workers. See docs/internals/bench.md.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
import string
import time
import uuid
from typing import Any, ClassVar

from locust import FastHttpUser, constant_throughput, events, task
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtests.generators.bodies import JSON_TYPE, NDJSON_TYPE
from loadtests.host.admin_client import AdminClient
from loadtests.locust.ledger import Ledger, Value, make_value

RECORDS_MAX = 50  # in one request
TEXT_CHARACTERS_MAX = 400
REQUESTS_PER_S = 20  # of each producer
WAIT_MS = 1000
LETTERS = string.ascii_letters + 'äßλ漢🙂\\"\n'  # characters that often break in JSON processing

log = logging.getLogger("penstock.locust")


class Run:
    """State shared by the users of one test."""

    def __init__(self, partitions: int) -> None:
        self.id = uuid.uuid4().hex[:8]
        self.topic = f"locust-{self.id}"
        self.partitions = partitions
        self.ledger = Ledger()
        self.producers = itertools.count()
        self.consumers = itertools.count()
        self.random = random.Random(self.id)

    def values(self, producer: str, first: int) -> list[Value]:
        now_ms = time.time_ns() // 1_000_000
        count = self.random.randint(1, RECORDS_MAX)
        return [make_value(producer, first + number, now_ms, self._text()) for number in range(count)]

    def _text(self) -> str:
        return "".join(self.random.choices(LETTERS, k=self.random.randint(0, TEXT_CHARACTERS_MAX)))


_runs: dict[Environment, Run] = {}


def _add_options(parser: Any) -> None:
    parser.add_argument("--partitions", type=int, default=4, help="Partitions of the topic that the run makes")


def _begin(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, MasterRunner | WorkerRunner):
        raise SystemExit("the ledger of what was acknowledged is in one process: run without --master and --worker")
    run = Run(environment.parsed_options.partitions)
    AdminClient(environment.host or "").create_topic(run.topic, {}, run.partitions)
    _runs[environment] = run


def _audit(environment: Environment, **_: Any) -> None:
    """Reads what no consumer has read yet; then no acknowledged record may be missing."""
    run = _runs.pop(environment, None)
    if run is None:
        log.warning("the run ended before its topic was made: raise --run-time")
        environment.process_exit_code = 1
        return
    control = AdminClient(environment.host or "")
    faults: list[str] = []
    for partition in range(run.partitions):
        reader = run.ledger.furthest(partition)
        while True:
            _, data = control.request("GET", _fetch_target(run, partition, reader.next_offset), accept=JSON_TYPE)
            document = json.loads(data)
            faults += reader.take(document["records"], document["next_offset"])
            if reader.next_offset >= document["high_watermark"]:
                break
    faults += run.ledger.missing()
    _report(environment, "AUDIT", "all acknowledged was read", 0, "; ".join(faults[:5]))
    if not faults:
        control.delete_topic(run.topic)
    log.warning("%d records acknowledged, %d faults", run.ledger.acknowledged_count, len(faults))


events.init_command_line_parser.add_listener(_add_options)
events.test_start.add_listener(_begin)
events.test_stop.add_listener(_audit)


def _fetch_target(run: Run, partition: int, offset: int, wait_ms: int = 0) -> str:
    return f"/v1/topics/{run.topic}/partitions/{partition}/records?offset={offset}&wait_ms={wait_ms}"


def _report(environment: Environment, kind: str, name: str, milliseconds: float, fault: str = "") -> None:
    environment.events.request.fire(
        request_type=kind,
        name=name,
        response_time=milliseconds,
        response_length=0,
        exception=AssertionError(fault) if fault else None,
        context={},
    )


class _Producer(FastHttpUser):  # type: ignore[misc]
    """Sends numbered records to one partition, one request at a time."""

    abstract = True
    media_type: ClassVar[str]
    wait_time = constant_throughput(REQUESTS_PER_S)

    def on_start(self) -> None:
        self._run = _runs[self.environment]
        self._number = next(self._run.producers)
        self._names = itertools.count()
        self._begin_name()

    def _begin_name(self) -> None:
        self._producer = f"{self._run.id}-{self._number}-{next(self._names)}"
        self._sent = 0

    @task  # type: ignore[untyped-decorator]
    def produce(self) -> None:
        partition = self._number % self._run.partitions
        values = self._run.values(self._producer, self._sent)
        acks = self._run.random.choice(("1", "all"))
        answer = self.client.request(
            "POST",
            f"/v1/topics/{self._run.topic}/partitions/{partition}/records?acks={acks}",
            name=f"produce {self.media_type} acks={acks}",
            data=self.encode(values),
            headers={"Content-Type": self.media_type},
        )
        if answer.status_code == 200:
            self._sent += len(values)
            self._run.ledger.acknowledge(self._producer, partition, self._sent)
        else:
            self._begin_name()

    def encode(self, values: list[Value]) -> bytes:
        raise NotImplementedError


class JsonProducer(_Producer):
    media_type = JSON_TYPE

    def encode(self, values: list[Value]) -> bytes:
        return json.dumps({"records": [{"key": self._producer, "value": value} for value in values]}).encode()


class NdjsonProducer(_Producer):
    media_type = NDJSON_TYPE

    def encode(self, values: list[Value]) -> bytes:
        return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


class _Consumer(FastHttpUser):  # type: ignore[misc]
    """Long-polls one partition from its beginning and checks each record."""

    abstract = True
    media_type: ClassVar[str]

    def on_start(self) -> None:
        self._run = _runs[self.environment]
        self._reader = self._run.ledger.begin_reader(next(self._run.consumers) % self._run.partitions)
        self._is_at_end = False

    @task  # type: ignore[untyped-decorator]
    def poll(self) -> None:
        with self.client.request(
            "GET",
            _fetch_target(self._run, self._reader.partition, self._reader.next_offset, WAIT_MS),
            name=f"long poll {self.media_type}",
            headers={"Accept": self.media_type},
            catch_response=True,
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"status {answer.status_code}")
                return
            records = self.decode(answer.content)  # .text would guess an encoding
            faults = self._reader.take(records, int(answer.headers["Penstock-Next-Offset"]))
            if faults:
                answer.failure("; ".join(faults[:3]))
        if records and self._is_at_end:  # the first record is the one that ended the wait
            way_ms = time.time_ns() / 1e6 - records[0]["value"]["sent_ms"]
            _report(self.environment, "WAY", "from producer to long poll", way_ms)
        self._is_at_end = self._reader.next_offset == int(answer.headers["Penstock-High-Watermark"])

    def decode(self, body: bytes) -> list[dict[str, Any]]:
        raise NotImplementedError


class JsonConsumer(_Consumer):
    media_type = JSON_TYPE

    def decode(self, body: bytes) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = json.loads(body)["records"]
        return records


class NdjsonConsumer(_Consumer):
    media_type = NDJSON_TYPE

    def decode(self, body: bytes) -> list[dict[str, Any]]:
        return [json.loads(line) for line in body.splitlines()]
