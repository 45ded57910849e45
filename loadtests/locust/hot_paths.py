"""Locust users for every hot path of a node: produce in each form, long polls, event streams, over HTTP/1.1 and HTTP/2.

`locust -f loadtests/locust/hot_paths.py --headless -u 20 -t 30s --host URL [UserClass ...]`, or `make loadtest`. The
users share one topic, and each counts what it got: an answer with a wrong status or a gap of offsets is a failed
request. Unlike locustfile.py they keep no record of what was sent, so they run with any number of workers.
"""

from __future__ import annotations

import itertools
import time
from http.client import HTTPConnection, HTTPException
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx
import orjson
from locust import FastHttpUser, User, constant_throughput, events, task
from locust.env import Environment
from locust.runners import WorkerRunner

from loadtests.generators.bodies import (
    BATCH_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    RAW_TYPE,
    batch_body,
    json_body,
    json_values,
    ndjson_body,
)
from loadtests.host.admin_client import AdminClient

TOPIC = "locust-hot-paths"
PARTITIONS = 2
RECORDS = 100  # of a request of many
STORED_RECORDS = 1000
WAIT_MS = 1000
STREAM_S = 2.0  # that a user follows one event stream
STREAM_TIMEOUT_S = 30.0  # a stream without events gets a comment every 15 s
SLOW_PIECE_BYTES, SLOW_PAUSE_S = 1 << 16, 0.2
PRODUCES_PER_S = 50  # of each producer: more users make more load
TIMEOUT_S = 60.0
SINGLE = json_values(1)[0]
MANY = json_values(RECORDS)
STREAM_TYPE = "text/event-stream"
_numbers = itertools.count()


def _add_options(parser: Any) -> None:
    parser.add_argument("--topic", default=TOPIC, help="The topic of all users; it is made if it is missing")


def _begin(environment: Environment, **_: Any) -> None:
    if not isinstance(environment.runner, WorkerRunner):
        AdminClient(environment.host or "").create_topic(environment.parsed_options.topic, {}, PARTITIONS)


events.init_command_line_parser.add_listener(_add_options)
events.test_start.add_listener(_begin)


def keyed_json(number: int) -> bytes:
    """Returns records whose keys repeat every 1000 records."""
    records = b",".join(b'{"key":"k%d","value":%b}' % ((number + at) % 1000, value) for at, value in enumerate(MANY))
    return b'{"records":[%b]}' % records


class _Producer(FastHttpUser):  # type: ignore[misc]
    """Sends one body over and over."""

    abstract = True
    wait_time = constant_throughput(PRODUCES_PER_S)
    media_type: ClassVar[str]
    body: ClassVar[bytes] = b""

    @task  # type: ignore[untyped-decorator]
    def produce(self) -> None:
        self.client.post(
            f"/v1/topics/{self.environment.parsed_options.topic}/records?acks=1",
            name=f"produce {type(self).__name__}",
            data=self.make_body(),
            headers={"Content-Type": self.media_type},
        )

    def make_body(self) -> bytes:
        return self.body


class KeyedJson(_Producer):
    media_type = JSON_TYPE

    def make_body(self) -> bytes:
        return keyed_json(next(_numbers) * RECORDS)


class UnkeyedJson(_Producer):
    media_type = JSON_TYPE
    body = json_body(MANY).data


class Ndjson(_Producer):
    media_type = NDJSON_TYPE
    body = ndjson_body(MANY).data


class Raw(_Producer):
    media_type = RAW_TYPE
    body = SINGLE


class StoredBatch(_Producer):
    """Sends to one partition: a stored batch belongs to one."""

    media_type = BATCH_TYPE
    body = batch_body(json_values(STORED_RECORDS), time.time_ns() // 1_000_000).data

    @task  # type: ignore[untyped-decorator]
    def produce(self) -> None:
        self.client.post(
            f"/v1/topics/{self.environment.parsed_options.topic}/partitions/0/records?acks=1",
            name="produce StoredBatch",
            data=self.body,
            headers={"Content-Type": self.media_type},
        )


class _Poller(FastHttpUser):  # type: ignore[misc]
    """Long-polls one partition from its end on, and checks that offsets have no gap."""

    abstract = True
    media_type: ClassVar[str] = JSON_TYPE
    first = "from=latest"

    def on_start(self) -> None:
        self._partition = next(_numbers) % PARTITIONS
        self._where = self.first
        self._next: int | None = None

    @property
    def _target(self) -> str:
        topic = self.environment.parsed_options.topic
        return f"/v1/topics/{topic}/partitions/{self._partition}/records?{self._where}&wait_ms={WAIT_MS}"

    @task  # type: ignore[untyped-decorator]
    def poll(self) -> None:
        with self.client.get(
            self._target,
            name=f"long poll {type(self).__name__}",
            headers={"Accept": self.media_type},
            catch_response=True,
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"status {answer.status_code}")
                return
            records = self.decode(answer.content)
            fault = gap(records, self._next)
            if fault:
                answer.failure(fault)
        self._next = int(answer.headers["Penstock-Next-Offset"])
        self._where = f"offset={self._next}"

    def decode(self, body: bytes) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = orjson.loads(body)["records"]
        return records


class JsonPoll(_Poller):
    """Follows the end in JSON."""


class NdjsonPoll(_Poller):
    """Follows the end in NDJSON."""

    media_type = NDJSON_TYPE

    def decode(self, body: bytes) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in body.splitlines()]


class Reconnecting(_Poller):
    """Opens a connection for each poll, as clients behind a broken proxy do."""

    @task  # type: ignore[untyped-decorator]
    def poll(self) -> None:
        self.client.client.clientpool.close()
        super().poll()


class SlowReader(FastHttpUser):  # type: ignore[misc]
    """Fetches from the beginning and takes the answer in small pieces with pauses."""

    @task  # type: ignore[untyped-decorator]
    def read(self) -> None:
        target = f"/v1/topics/{self.environment.parsed_options.topic}/partitions/0/records?from=earliest"
        with self.client.get(target, name="fetch SlowReader", stream=True, catch_response=True) as answer:
            if answer.status_code != 200:
                answer.failure(f"status {answer.status_code}")
                return
            while answer.read(SLOW_PIECE_BYTES):
                time.sleep(SLOW_PAUSE_S)


class EventStream(User):  # type: ignore[misc]
    """Follows an event stream for some seconds, and begins again at the last id. Its time is that to the first line."""

    def on_start(self) -> None:
        self._last_id = ""

    @task  # type: ignore[untyped-decorator]
    def follow(self) -> None:
        started = time.perf_counter()
        try:
            milliseconds, length = self._follow(started)
        except (OSError, HTTPException) as fault:
            _fire(self.environment, "GET", "event stream", (time.perf_counter() - started) * 1000, 0, fault)
        else:
            _fire(self.environment, "GET", "event stream", milliseconds, length)

    def _follow(self, started: float) -> tuple[float, int]:
        """Returns the milliseconds to the first line and the bytes read. Raises OSError, HTTPException."""
        parts = urlsplit(self.environment.host or "")
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=STREAM_TIMEOUT_S)
        headers = {"Accept": STREAM_TYPE} | ({"Last-Event-ID": self._last_id} if self._last_id else {})
        try:
            connection.request("GET", f"/v1/topics/{self.environment.parsed_options.topic}/records", headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise HTTPException(f"status {answer.status}")
            length = len(answer.readline())
            milliseconds = (time.perf_counter() - started) * 1000
            while time.perf_counter() < started + STREAM_S and (line := answer.readline()):
                length += len(line)
                if line.startswith(b"id: "):
                    self._last_id = line[4:].strip().decode()
        finally:
            connection.close()
        return milliseconds, length


class Http2Raw(User):  # type: ignore[misc]
    """Sends single records over HTTP/2, to have it in a mix: httpx costs several times as much as h2load."""

    wait_time = constant_throughput(PRODUCES_PER_S)

    def on_start(self) -> None:
        self._client = httpx.Client(http1=False, http2=True, timeout=TIMEOUT_S)

    def on_stop(self) -> None:
        self._client.close()

    @task  # type: ignore[untyped-decorator]
    def produce(self) -> None:
        url = f"{self.environment.host}/v1/topics/{self.environment.parsed_options.topic}/records?acks=1"
        started = time.perf_counter()
        error: Exception | None = None
        length = 0
        try:
            answer = self._client.post(url, content=SINGLE, headers={"content-type": RAW_TYPE})
            length = len(answer.content)
            answer.raise_for_status()
        except httpx.HTTPError as fault:
            error = fault
        _fire(self.environment, "POST", "produce Http2Raw", (time.perf_counter() - started) * 1000, length, error)


def _fire(
    environment: Environment, kind: str, name: str, milliseconds: float, length: int, error: Exception | None = None
) -> None:
    environment.events.request.fire(
        request_type=kind,
        name=name,
        response_time=milliseconds,
        response_length=length,
        exception=error,
        context={},
    )


def gap(records: list[dict[str, Any]], expected: int | None) -> str:
    """Returns what is wrong with the offsets of an answer; empty if they follow each other."""
    for record in records:
        if expected is not None and record["offset"] != expected:
            return f"offset {record['offset']} came where {expected} was due"
        expected = record["offset"] + 1
    return ""
