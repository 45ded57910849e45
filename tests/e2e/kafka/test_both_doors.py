"""One node of two shards, with librdkafka and HTTP: what comes in through one door goes out through the other."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.cli.main import main
from tests.e2e.lifecycle.test_shards import call
from tests.e2e.node_process import running_process

pytest.importorskip("confluent_kafka")

import confluent_kafka

pytestmark = pytest.mark.e2e

PARTITIONS = 3


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of HTTP and the address of Kafka's protocol."""
    kafka = free_address()
    with running_process(tmp_path_factory.mktemp("node"), shards=2, kafka_listen=kafka) as node:
        yield node.url, kafka


@pytest.fixture
def topic(doors: tuple[str, str], request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    call(f"{doors[0]}/v1/topics/{name}", "PUT", {"partitions": PARTITIONS})
    return str(name)


def producer(kafka: str, **config: object) -> Any:
    return confluent_kafka.Producer({"bootstrap.servers": kafka, **config})


def consumed(kafka: str, topic: str, count: int) -> list[Any]:
    """Returns so many messages of a topic, from its beginning."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka, "group.id": "readers", "check.crcs": True, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    try:
        found: list[Any] = []
        for _ in range(60):
            found += [one for one in consumer.consume(1000, 0.5) if one.error() is None]
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} messages came")
    finally:
        consumer.close()


def over_http(url: str, topic: str) -> list[dict[str, Any]]:
    found = []
    for number in range(PARTITIONS):
        answer = call(f"{url}/v1/topics/{topic}/partitions/{number}/records?from=earliest")
        found += [{"partition": number, **record} for record in answer["records"]]
    return found


def test_json_of_http_is_read_by_kafka(doors: tuple[str, str], topic: str) -> None:
    url, kafka = doors
    records = [
        {"value": {"n": 1}, "key": "k", "headers": {"a": "b"}, "timestamp": 1_700_000_000_000, "partition": 0},
        {"value": None, "key": "gone", "partition": 1},
        {"value": "text", "partition": 2},
    ]
    call(f"{url}/v1/topics/{topic}/records", "POST", {"records": records})
    found = {one.partition(): one for one in consumed(kafka, topic, 3)}
    first = found[0]
    assert (first.key(), orjson.loads(first.value()), first.headers()) == (b"k", {"n": 1}, [("a", b"b")])
    assert first.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000)
    assert (found[1].key(), found[1].value()) == (b"gone", None)
    assert orjson.loads(found[2].value()) == "text"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_kafka_sends_is_read_over_http(doors: tuple[str, str], topic: str, codec: str) -> None:
    url, kafka = doors
    client = producer(kafka, **{"compression.type": codec, "enable.idempotence": True, "linger.ms": 50})
    value = orjson.dumps({"n": 1, "text": "x" * 2000})
    client.produce(topic, value, b"k", 0, headers=[("a", b"b"), ("bin", b"\xff")], timestamp=1_700_000_000_123)
    client.produce(topic, None, b"gone", 1)
    client.produce(topic, b"\xff\x00", partition=2)
    assert client.flush(20) == 0
    found = {record["partition"]: record for record in over_http(url, topic)}
    assert (found[0]["key"], found[0]["value"]) == ("k", orjson.loads(value))
    assert found[0]["timestamp"] == 1_700_000_000_123
    assert found[0]["headers"]["a"] == "b"
    assert (found[1]["key"], found[1]["value"]) == ("gone", None)
    assert (
        base64.b64decode(found[2]["value_base64"] if "value_base64" in found[2] else found[2]["value"]) == b"\xff\x00"
    )
    assert len(consumed(kafka, topic, 3)) == 3


def test_many_records_of_an_idempotent_producer_are_there_once(doors: tuple[str, str], topic: str) -> None:
    _, kafka = doors
    client = producer(kafka, **{"enable.idempotence": True, "queue.buffering.max.messages": 100_000})
    for number in range(20_000):
        client.produce(topic, b"%d" % number, b"%d" % (number % 97))
    assert client.flush(60) == 0
    values = [one.value() for one in consumed(kafka, topic, 20_000)]
    assert sorted(values, key=int) == [b"%d" % number for number in range(20_000)]


def test_a_large_batch_takes_a_thread_and_keeps_the_order(doors: tuple[str, str], topic: str) -> None:
    _, kafka = doors
    client = producer(kafka, **{"enable.idempotence": True, "compression.type": "zstd", "message.max.bytes": 900_000})
    for number in range(40):
        client.produce(topic, b"%d" % number + b"x" * 500_000, partition=0)
        if number % 2:
            client.flush(20)
    assert client.flush(20) == 0
    found = consumed(kafka, topic, 40)
    assert [int(one.value()[: one.value().index(b"x")]) for one in found] == list(range(40))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_joins_a_group(doors: tuple[str, str], topic: str) -> None:
    url, kafka = doors
    call(f"{url}/v1/topics/{topic}/records", "POST", {"records": [{"value": number} for number in range(5)]})
    command = ["kcat", "-b", kafka, "-G", "of-kcat", "-X", "auto.offset.reset=earliest", "-c", "5", "-q", topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.split()) == list("01234")
    positions = call(f"{url}/v1/groups/of-kcat/offsets")["offsets"]
    assert sum(position["offset"] for position in positions) == 5


def test_a_tool_of_http_resets_a_group_of_kafka(doors: tuple[str, str], topic: str, tmp_path: Path) -> None:
    url, kafka = doors
    call(f"{url}/v1/topics/{topic}/records", "POST", {"records": [{"value": 1, "partition": 0}] * 4})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka, "group.id": "moved", "enable.auto.commit": False})
    place = confluent_kafka.TopicPartition(topic, 0)
    assert [one.offset for one in consumer.committed([place], 10)] == [confluent_kafka.OFFSET_INVALID]
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 3)], asynchronous=False)
    call(f"{url}/v1/groups/moved/reset", "POST", {"to": "earliest"})
    assert [one.offset for one in consumer.committed([place], 10)] == [0]
    consumer.close()


def test_a_group_that_http_cannot_name_stops_no_view_of_others(
    doors: tuple[str, str], topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    url, kafka = doors
    for group in ("a group", "b"):
        consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka, "group.id": group})
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 0)], asynchronous=False)
        consumer.close()
    assert main(["topic", "lag", topic, "--url", url]) == 0
    shown = capfd.readouterr()
    assert shown.out.splitlines()[1].split()[:2] == ["b", "empty"]
    assert "'a group' is left out" in shown.err
