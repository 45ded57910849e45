"""The plan of a processor's requests, and what it sends when outputs are stored already."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from penstock.errors import ClientClosed, ConnectionFailed, ProblemError
from penstock.options import ClientOptions
from penstock.processing import Output, OutputLine, OutputPlan, Processor, Target, first_request
from penstock.producer.partitioners import partition_of_key
from penstock.records import Record
from penstock.transport.exchange import Request


def record(offset: int, partition: int = 3) -> Record:
    return Record(offset=offset, topic="in", partition=partition)


def plan(counts: dict[str, int] | None = None) -> OutputPlan:
    return OutputPlan("g", {"in": "id"}, counts or {"out": 2})


def test_outputs_are_grouped_by_source_and_partition_with_their_inputs():
    found = plan()
    for offset in (5, 9):
        found.add(record(offset), [Output("out", offset, partition=0), Output("out", None, key="k", partition=1)])
    found.add(record(7, partition=0), [Output("out", 7, partition=0)])
    assert found.lines == {
        Target("g/id/3", "out", 0): [OutputLine(5, b'{"value":5}'), OutputLine(9, b'{"value":9}')],
        Target("g/id/3", "out", 1): [OutputLine(n, b'{"key":"k","value":null}') for n in (5, 9)],
        Target("g/id/0", "out", 0): [OutputLine(7, b'{"value":7}')],
    }


def test_the_partition_of_an_output_follows_from_its_input():
    found = plan({"out": 5})
    found.add(record(1, partition=8), [Output("out", 1, key=b"key"), Output("out", 2)])
    assert {target.partition for target in found.lines} == {partition_of_key(b"key", 5), 8 % 5}


@pytest.mark.parametrize("output", [Output("other", 1), Output("out", 1, partition=2), Output("out", 1, partition=-1)])
def test_an_output_for_a_partition_that_is_not_named_is_an_error(output):
    with pytest.raises(ValueError, match="outputs"):
        plan().add(record(1), [output])


@pytest.mark.parametrize(("bytes_max", "count"), [(1, 2), (8, 2), (11, 2), (12, 3), (19, 3), (20, 5), (99, 5)])
def test_a_request_ends_between_two_inputs(bytes_max, count):
    lines = [OutputLine(position, b"abc") for position in (1, 1, 2, 4, 4)]
    assert len(first_request(lines, bytes_max)) == count
    assert first_request([], 5) == []


class Partition:
    """Answers as a partition: stores requests above its position. `before`: what happens before a request."""

    def __init__(self, position: int = -1) -> None:
        self.position = position
        self.stored: list[str] = []
        self.failures: list[Exception] = []

    async def send(self, request: Request, deadline: float, *, is_repeatable: bool) -> None:
        assert is_repeatable
        if self.failures:
            raise self.failures.pop()
        first, last = map(int, request.headers["Penstock-Source-Positions"].split("-"))
        if first <= self.position:
            code = "source_position_stored"
            members = {"source_position": self.position}
            raise ProblemError("", status=409, code=code, retryable=False, no_side_effects=True, members=members)
        self.position = last
        self.stored.append(f"{first}-{last}")


class Consumer:
    def __init__(self, *deliveries: Sequence[Record]) -> None:
        self.deliveries = list(deliveries)
        self.committed = self.polls = 0
        self.topic_ids = {"in": "id"}

    async def poll(self, timeout_ms: int) -> Sequence[Record]:
        self.polls += 1
        return self.deliveries.pop(0) if self.deliveries else []

    async def commit(self) -> bool:
        self.committed += 1
        return True

    async def close(self) -> None:
        """Leave."""


def processor(partition: Any, *deliveries: Sequence[Record], batch_bytes: int = 30, process: Any = None) -> Processor:
    def same(one: Record) -> list[Output]:
        return [Output("out", one.offset)]

    options = ClientOptions(batch_bytes=batch_bytes)
    return Processor(Consumer(*deliveries), partition, options, "g", process or same, {"out": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("position", "stored", "dropped"),
    [(-1, ["0-1", "2-3", "4-4"], 0), (1, ["2-3", "4-4"], 2), (2, ["3-4"], 3), (4, [], 5), (99, [], 5)],
)
async def test_outputs_that_are_stored_are_dropped(position, stored, dropped):
    partition = Partition(position)
    found = processor(partition, [record(n) for n in range(5)])
    assert await found.process_next() == 5
    assert (partition.stored, found.dropped, found.processed) == (stored, dropped, 5)


async def test_two_processors_of_the_same_input_store_each_output_once():
    random = Random(1)
    partition = Partition()
    records = [record(n) for n in range(40)]
    for _ in range(8):
        begin, end = sorted(random.choices(range(41), k=2))
        await processor(partition, records[min(begin, partition.position + 1) : end], batch_bytes=50).process_next()
    await processor(partition, records).process_next()
    ranges = [tuple(map(int, one.split("-"))) for one in partition.stored]
    assert [n for first, last in ranges for n in range(first, last + 1)] == list(range(40))


@pytest.mark.parametrize("is_of_process", [True, False])
async def test_a_delivery_that_failed_is_not_committed(is_of_process):
    def fails(one: Record) -> list[Output]:
        raise ConnectionFailed("planted", no_side_effects=False)

    partition = Partition()
    partition.failures = [ConnectionFailed("planted", no_side_effects=False)]
    found = processor(partition, [record(1)], [record(2)], process=fails if is_of_process else None)
    with pytest.raises(ConnectionFailed):
        await found.run()
    with pytest.raises(ClientClosed):
        await found.process_next()
    await found.close()
    assert (found._consumer.polls, found._consumer.committed) == (1, 0)  # type: ignore[attr-defined]


async def test_the_end_commits_a_delivery_whose_outputs_are_stored():
    found = processor(Partition(), [record(1)])
    found.stop()
    await found.run()
    assert found.processed == 0
    await found.process_next()
    await found.close()
    assert found._consumer.committed == 1  # type: ignore[attr-defined]
