"""Serializers and interceptors: the changes of a record before it is sent, and the report of its result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import Client, ProblemError, RecordPosition
from penstock.producer.preparation import ENTRY_POINTS, OutgoingRecord, Preparation, load_serializer
from penstock.sync import Client as SyncClient
from tests.penstock.conftest import QUICK
from tests.penstock.fake_node import NOW_MS, FakeNode, answering, problem


@pytest.mark.parametrize(
    ("name", "value", "serialized"),
    [
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        ("json", "text", b'"text"'),
        ("string", "grün", "grün".encode()),
        ("string", '"quoted"', b'"quoted"'),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("bytes", memoryview(b"12"), b"12"),
    ],
)
async def test_what_is_stored_is_what_the_serializer_made(
    client: Client, fake: FakeNode, name: str, value: Any, serialized: bytes
) -> None:
    (partition,) = fake.add_topic("t")
    async with client.producer(value_serializer=name, key_serializer="string") as producer:
        await producer.send("t", value, key="k")
        await producer.send("t", None, key="k")
    assert [(record.key, record.value) for record in partition.records] == [(b"k", serialized), (b"k", None)]


@pytest.mark.parametrize(
    ("name", "value"), [("string", b"bytes"), ("string", 1), ("bytes", "text"), ("json", b"1"), ("json", object())]
)
async def test_what_a_serializer_does_not_take_is_refused_by_send(
    client: Client, fake: FakeNode, name: str, value: Any
) -> None:
    fake.add_topic("t")
    async with client.producer(value_serializer=name) as producer:
        with pytest.raises(TypeError):
            await producer.send("t", value)
    assert producer.statistics().batches == 0


@pytest.mark.parametrize(
    ("headers", "stored"),
    [
        (None, {"content-type": "text/plain; charset=utf-8"}),
        ({"a": "b"}, {"a": "b", "content-type": "text/plain; charset=utf-8"}),
        ([("a", "b")], {"a": "b", "content-type": "text/plain; charset=utf-8"}),
        ({"Content-Type": "text/css"}, {"Content-Type": "text/css"}),
        ([("content-type", "text/css")], {"content-type": "text/css"}),
    ],
)
async def test_the_media_type_of_a_serializer_is_kept_unless_the_caller_says_another(
    client: Client, fake: FakeNode, headers: Any, stored: dict[str, str]
) -> None:
    (partition,) = fake.add_topic("t")
    async with client.producer(value_serializer="string") as producer:
        await producer.send("t", "text", headers=headers)
    assert partition.records[0].headers == stored


BROUGHT = """
class Framed:
    content_type = "application/x-framed"
    def __init__(self, schema=0):
        self.schema = schema
    def serialize(self, topic, value):
        return bytes([0, self.schema]) + str(value).encode()
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with a serializer, with the files that pip writes."""
    metadata = tmp_path / "brought-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nframed = brought:Framed\n")
    (tmp_path / "brought.py").write_text(BROUGHT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "brought", raising=False)


@pytest.mark.usefixtures("installed")
async def test_a_serializer_of_another_package_is_found_by_its_entry_point(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    async with client.producer(value_serializer=load_serializer("framed", schema=7)) as producer:
        await producer.send("t", 12)
    async with client.producer(value_serializer="framed") as producer:
        await producer.send("t", 12)
    assert [record.value for record in partition.records] == [b"\x00\x0712", b"\x00\x0012"]
    assert partition.records[0].headers == {"content-type": "application/x-framed"}


@pytest.mark.usefixtures("installed")
def test_an_unknown_serializer_is_reported_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no serializer 'avro'; available: bytes, framed, json, string"):
        load_serializer("avro")


class Recorder:
    """Marks records, and remembers its notifications."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.results: list[tuple[Any, Any]] = []

    def before_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return record._replace(value=f"{record.value}{self.mark}", headers={"seen-by": self.mark})

    def on_delivery(self, record: OutgoingRecord, result: Any) -> None:
        self.results.append((record.value, result))


async def test_interceptors_change_records_in_turn_and_learn_their_positions(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    first, second = Recorder("a"), Recorder("b")
    async with client.producer(interceptors=[first, second], linger_ms=50) as producer:
        for n in range(3):
            await producer.send("t", n)
    assert [record.value for record in partition.records] == [b'"0ab"', b'"1ab"', b'"2ab"']
    assert partition.records[0].headers == {"seen-by": "b"}
    assert first.results == second.results == [(f"{n}ab", RecordPosition("t", 0, n, NOW_MS)) for n in range(3)]


async def test_interceptors_learn_of_each_failure_also_in_a_batch_that_is_cut(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(answering(lambda: problem(400, "malformed_ndjson", "line 2 is bad", line=2)))
    recorder = Recorder("")
    producer = client.producer(interceptors=[recorder], linger_ms=50)
    await producer.send_many("t", range(3))
    with pytest.raises(ProblemError):
        await producer.flush()
    results = dict(recorder.results)
    assert isinstance(results["1"], ProblemError)
    assert (results["0"].offset, results["2"].offset) == (0, 1)
    assert len(recorder.results) == 3


async def test_an_interceptor_may_refuse_a_record(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")

    class Refusing(Recorder):
        def before_send(self, record: OutgoingRecord) -> OutgoingRecord:
            raise PermissionError(record.value)

    async with client.producer(interceptors=[Refusing("")]) as producer:
        with pytest.raises(PermissionError):
            await producer.send("t", 1)


def test_an_interceptor_that_fails_costs_the_others_nothing() -> None:
    class Failing(Recorder):
        def on_delivery(self, record: OutgoingRecord, result: Any) -> None:
            raise KeyError("mine")

    after = Recorder("")
    raised = Preparation(None, None, [Failing(""), after]).notify(OutgoingRecord("t", 1), "stored")
    assert [type(error) for error in raised] == [KeyError]
    assert after.results == [(1, "stored")]


def test_the_sync_producer_prepares_records_too(url: str, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    recorder = Recorder("!")
    with (
        SyncClient(url, options=QUICK) as client,
        client.producer(value_serializer="string", interceptors=[recorder]) as producer,
    ):
        producer.send_many("t", ["a", "b"])
        with pytest.raises(TypeError):
            client.producer(value_serializer="string").send("t", 1)
    assert [record.value for record in partition.records] == [b"a!", b"b!"]
    assert [value for value, _ in recorder.results] == ["a!", "b!"]


async def test_records_are_not_kept_without_interceptors(client: Client, fake: FakeNode) -> None:
    """They would double the memory of the buffer."""
    fake.add_topic("t")
    producer = client.producer(value_serializer="string", linger_ms=10_000)
    delivery = await producer.send("t", "x")
    assert delivery.batch.kept == []
    await producer.close()
