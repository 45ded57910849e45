"""Small requests of one turn of the loop share a batch, and each gets the positions of its own records."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StorageFailed
from engine.format import batch as record_batch
from engine.format.keyed_batch import KeyEntry
from engine.partition.partition import Partition
from engine.producers.appends import Appended
from engine.shard.served_topics import Topic
from engine.topic_settings import TopicSettings
from gateway.http.problems import Problem
from gateway.produce.accumulator import BATCH_BYTES_MAX
from gateway.produce.batching import (
    OWN_BYTES,
    RECORD_OVERHEAD_BYTES,
    Destination,
    IncomingRow,
    Part,
    ProducerSequence,
    SharedRows,
    to_batches,
)
from gateway.produce.context import ProduceContext
from gateway.produce.queue import Outcome, PendingOutcomes
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from replication.replica.acks import Acks
from tests.gateway.produce.parts import append, topic_of

NOW_MS = 5


@dataclass
class Produce:
    """Requests to one partition."""

    node: Node
    topic: Topic

    @property
    def context(self) -> ProduceContext:
        return self.node.server.produce

    def rows(
        self, *values: bytes, acks: Acks = Acks.ALL, now_ms: int = NOW_MS
    ) -> Coroutine[None, None, Sequence[Outcome]]:
        rows = [(now_ms, None, value, []) for value in values]
        size_bytes = sum(len(value) + RECORD_OVERHEAD_BYTES for value in values)
        part = Part("t", 0, len(rows), self.topic, shared=SharedRows(rows, size_bytes))
        return append(self.context, [part], acks, now_ms)

    def batch(self, *values: bytes) -> Coroutine[None, None, Sequence[Outcome]]:
        part = Part("t", 0, len(values), self.topic, record_batch.encode_values(values, NOW_MS))
        return append(self.context, [part], Acks.ALL, NOW_MS)

    async def stored(self) -> list[list[bytes | None]]:
        """Returns the values of each batch."""
        partition = self.topic.partitions[0]
        await self.context.queue.wait_drained()
        await self.context.queue.sync_all(lambda: [partition])
        chunk = await self.node.shard.reader.read(partition, 0, 1 << 20)
        assert chunk is not None
        data = chunk.data
        return [
            [record.value for record in record_batch.decode(data[position : position + header.size_bytes])]
            for position, header in record_batch.walk(data)
        ]


@pytest.fixture
async def produce(tmp_path: Path) -> AsyncIterator[Produce]:
    async with running_node(NodeSettings(data_dir=str(tmp_path))) as node:
        topic, _ = await node.shard.create_topic("t", 1, 1, {})
        yield Produce(node, topic)


def offsets(outcomes: Sequence[Sequence[Outcome]]) -> list[int | None]:
    return [one.base_offset if isinstance(one, Appended) else None for (one,) in outcomes]


async def test_requests_of_one_turn_share_a_batch(produce: Produce) -> None:
    outcomes = await asyncio.gather(*(produce.rows(b"%d" % n, b"+") for n in range(5)))
    assert offsets(outcomes) == [0, 2, 4, 6, 8]
    assert [one.record_count for (one,) in outcomes if isinstance(one, Appended)] == [2] * 5
    assert await produce.stored() == [[b"0", b"+", b"1", b"+", b"2", b"+", b"3", b"+", b"4", b"+"]]


async def test_requests_of_two_turns_do_not(produce: Produce) -> None:
    assert offsets([await produce.rows(b"1"), await produce.rows(b"2")]) == [0, 1]
    assert await produce.stored() == [[b"1"], [b"2"]]


async def test_records_keep_their_order_around_a_batch_of_its_own(produce: Produce) -> None:
    outcomes = await asyncio.gather(produce.rows(b"1"), produce.rows(b"2"), produce.batch(b"3"), produce.rows(b"4"))
    assert offsets(outcomes) == [0, 1, 2, 3]
    assert await produce.stored() == [[b"1", b"2"], [b"3"], [b"4"]]


async def test_requests_that_wait_for_different_things_have_batches_of_their_own(produce: Produce) -> None:
    requests = [
        produce.rows(b"%d" % n, acks=acks) for n, acks in enumerate((Acks.ALL, Acks.LEADER, Acks.NONE, Acks.NONE))
    ]
    assert offsets(await asyncio.gather(*requests)) == [0, 1, None, None]
    assert await produce.stored() == [[b"0"], [b"1"], [b"2", b"3"]]


async def test_a_shared_batch_is_bounded(produce: Produce) -> None:
    outcomes = await asyncio.gather(*(produce.rows(b"x" * 4000) for _ in range(40)))
    assert offsets(outcomes) == list(range(40))
    sizes = [sum(len(value or b"") for value in batch) for batch in await produce.stored()]
    assert len(sizes) > 2
    assert max(sizes) <= BATCH_BYTES_MAX


async def test_records_with_the_time_of_their_append_share_a_batch_of_that_time(tmp_path: Path) -> None:
    async with running_node(NodeSettings(data_dir=str(tmp_path))) as node:
        topic, _ = await node.shard.create_topic("t", 1, 1, {"timestamp_type": "append"})
        produce = Produce(node, topic)
        requests = [produce.rows(b"%d" % now_ms, now_ms=now_ms) for now_ms in (5, 5, 6)]
        assert offsets(await asyncio.gather(*requests)) == [0, 1, 2]
        assert await produce.stored() == [[b"5", b"5"], [b"6"]]


@pytest.mark.parametrize("others", [0, 2])
async def test_a_client_that_leaves_ends_nothing_but_its_wait(produce: Produce, others: int) -> None:
    for turns in range(4):
        leaving = asyncio.ensure_future(produce.rows(b"left"))
        staying = [asyncio.ensure_future(produce.rows(b"stays")) for _ in range(others)]
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        assert all(isinstance(outcome, Appended) for (outcome,) in await asyncio.gather(*staying))
    values = [value for batch in await produce.stored() for value in batch]
    assert values.count(b"stays") == 4 * others
    assert values.count(b"left") >= 3, "a request that was queued is stored"


async def test_a_refusal_is_the_refusal_of_each_request(produce: Produce) -> None:
    produce.topic.partitions[0].go_offline(StorageFailed("broken"))
    found = [one for (one,) in await asyncio.gather(*(produce.rows(b"1") for _ in range(3)))]
    assert [one.code for one in found if isinstance(one, Problem)] == ["storage_failed"] * 3
    assert len({id(one) for one in found}) == 3, "a problem is changed on its way to the client"


async def test_a_full_disk_refuses_every_request_of_the_batch_and_nothing_is_stored(
    produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "planted")

    with monkeypatch.context() as planted:
        planted.setattr(produce.node.shard.disk, "pwritev", fail)
        found = [one for (one,) in await asyncio.gather(*(produce.rows(b"lost") for _ in range(3)))]
        assert [one.code for one in found if isinstance(one, Problem)] == ["storage_full"] * 3
    assert offsets([await produce.rows(b"kept")]) == [0]
    assert await produce.stored() == [[b"kept"]]


async def test_records_count_as_queued_bytes_before_their_batch_is_sent(produce: Produce) -> None:
    accumulator = produce.context.accumulator
    request = asyncio.ensure_future(produce.rows(b"x" * 100))
    await asyncio.sleep(0)
    assert accumulator.size_bytes == 100 + RECORD_OVERHEAD_BYTES
    await request
    assert accumulator.size_bytes == 0


def test_records_that_a_key_makes_large_have_a_batch_of_their_own() -> None:
    settings = TopicSettings(batch_bytes_max=1024, record_bytes_max=1024)
    records = [IncomingRow(None, b"1", [])] * 20
    small = Destination(topic_of(settings), None, NOW_MS, 0, 0)
    assert [one.shared is not None for one in to_batches(records, small, 100, 1024)] == [True]
    assert [one.shared is not None for one in to_batches(records, small, 100, 20 * RECORD_OVERHEAD_BYTES)] == [False]
    with pytest.raises(Problem, match="batch_too_large"):
        to_batches(records, small._replace(key=b"k" * 100), 100, 1024)


def own(topic: Topic, value: bytes, key: KeyEntry | None = None, sequence: ProducerSequence | None = None) -> Part:
    """Returns the part of a request with an Idempotency-Key or a sequence."""
    shared = SharedRows([(NOW_MS, None, value, [])], len(value) + RECORD_OVERHEAD_BYTES + OWN_BYTES, sequence, key)
    return Part("t", 0, 1, topic, shared=shared)


def key_entry(number: int, request: int = 0) -> KeyEntry:
    return KeyEntry(b"%016d" % number, b"%016d" % request, 1, NOW_MS)


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
async def test_requests_with_keys_and_sequences_share_a_batch(
    produce: Produce, monkeypatch: pytest.MonkeyPatch, acks: Acks
) -> None:
    calls: list[int] = []
    committer, append_all = produce.node.shard.committer, produce.node.shard.committer.append_all

    def count(partition: Partition, batches: Sequence[Any], *, wants_sync: bool) -> list[asyncio.Future[Appended]]:
        calls.append(len(batches))
        return append_all(partition, batches, wants_sync=wants_sync)

    monkeypatch.setattr(committer, "append_all", count)
    parts = [
        own(produce.topic, b"k1", key_entry(1)),
        own(produce.topic, b"s0", sequence=ProducerSequence(7, 0, 0)),
        own(produce.topic, b"s1", sequence=ProducerSequence(7, 0, 1)),
        own(produce.topic, b"k2", key_entry(2)),
    ]
    one, *others = parts
    requests = [append(produce.context, [part], acks, NOW_MS) for part in others]
    outcomes = await asyncio.gather(
        append(produce.context, [one], acks, NOW_MS), produce.rows(b"p", acks=acks), *requests
    )
    assert offsets(outcomes) == [0, 1, 2, 3, 4]
    assert calls == [1]
    assert await produce.stored() == [[b"k1", b"p", b"s0", b"s1", b"k2"]]
    kept = [one.key_kept_ms for (one,) in outcomes if isinstance(one, Appended)]
    assert kept[0] is not None
    assert kept[-1] is not None


async def test_repeats_and_errors_of_a_turn_are_of_their_requests(produce: Produce) -> None:
    parts = [
        own(produce.topic, b"first", key_entry(1)),
        own(produce.topic, b"again", key_entry(1)),
        own(produce.topic, b"reused", key_entry(1, request=1)),
        own(produce.topic, b"s0", sequence=ProducerSequence(7, 0, 0)),
        own(produce.topic, b"gap", sequence=ProducerSequence(7, 0, 5)),
        own(produce.topic, b"s0 again", sequence=ProducerSequence(7, 0, 0)),
        own(produce.topic, b"last", key_entry(2)),
    ]
    found = await asyncio.gather(
        *(append(produce.context, [part], Acks.ALL, NOW_MS) for part in parts),
    )
    assert [
        (one.base_offset, one.is_duplicate) if isinstance(one, Appended) else one and one.code for (one,) in found
    ] == [(0, False), (0, True), "idempotency_key_reused", (1, False), "sequence_gap", (1, True), (2, False)]
    assert await produce.stored() == [[b"first"], [b"s0"], [b"last"]]


async def test_the_last_batch_of_a_turn_may_be_refused(produce: Produce) -> None:
    parts = [own(produce.topic, b"k", key_entry(1)), own(produce.topic, b"r", key_entry(1, request=1))]
    found = await asyncio.gather(*(append(produce.context, [part], Acks.ALL, NOW_MS) for part in parts))
    assert [one.base_offset if isinstance(one, Appended) else one and one.code for (one,) in found] == [
        0,
        "idempotency_key_reused",
    ]


async def test_a_failed_sync_fails_what_was_written_and_no_refusal_or_repeat_of_the_turn(
    produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "planted")

    [stored] = await append(produce.context, [own(produce.topic, b"k", key_entry(1))], Acks.ALL, NOW_MS)
    assert isinstance(stored, Appended)
    monkeypatch.setattr(produce.node.shard.disk, "fdatasync", fail)
    parts = [
        own(produce.topic, b"again", key_entry(1)),
        own(produce.topic, b"new", key_entry(2)),
        own(produce.topic, b"reused", key_entry(1, request=1)),
    ]
    found = await asyncio.gather(*(append(produce.context, [part], Acks.ALL, NOW_MS) for part in parts))
    assert [one.base_offset if isinstance(one, Appended) else one and one.code for (one,) in found] == [
        0,
        "storage_failed",
        "idempotency_key_reused",
    ]


async def test_keyed_requests_of_a_turn_time_out_together(produce: Produce) -> None:
    async with produce.node.shard.committer.pause(produce.topic.partitions[0]):
        parts = [own(produce.topic, b"%d" % number, key_entry(number)) for number in range(3)]
        found = await asyncio.gather(*(append(produce.context, [part], Acks.ALL, NOW_MS, 20) for part in parts))
        assert [one.code for (one,) in found if isinstance(one, Problem)] == ["ack_timeout"] * 3
    assert await produce.stored() == [[b"0", b"1", b"2"]]


async def test_a_full_disk_refuses_the_own_batches_of_a_turn_and_their_keys_are_free(
    produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "planted")

    parts = [own(produce.topic, b"%d" % number, key_entry(number)) for number in range(3)]
    with monkeypatch.context() as planted:
        planted.setattr(produce.node.shard.disk, "pwritev", fail)
        found = await asyncio.gather(*(append(produce.context, [one], Acks.ALL, NOW_MS) for one in parts))
        assert [one.code for (one,) in found if isinstance(one, Problem)] == ["storage_full"] * 3
    found = await asyncio.gather(*(append(produce.context, [one], Acks.ALL, NOW_MS) for one in parts))
    assert offsets(found) == [0, 1, 2]
    assert not any(one.is_duplicate for (one,) in found if isinstance(one, Appended))


@pytest.mark.parametrize("settings", [{}, {"timestamp_type": "append", "compression": "lz4"}])
async def test_a_node_that_starts_again_knows_the_requests_of_a_batch(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    def parts(topic: Topic) -> list[Part]:
        keyed = [own(topic, b"%d" % number, key_entry(number)) for number in range(3)]
        return [*keyed, own(topic, b"s0", sequence=ProducerSequence(7, 0, 0))]

    async with running_node(NodeSettings(data_dir=str(tmp_path))) as node:
        topic, _ = await node.shard.create_topic("t", 1, 1, settings)
        produce = Produce(node, topic)
        sent = [append(produce.context, [one], Acks.ALL, NOW_MS) for one in parts(topic)]
        assert offsets(await asyncio.gather(*sent)) == [0, 1, 2, 3]
        assert await produce.stored() == [[b"0", b"1", b"2", b"s0"]]
    for snapshot in tmp_path.rglob("*.snapshot"):
        snapshot.unlink()
    for _ in ("read from the log", "read from the snapshot"):
        async with running_node(NodeSettings(data_dir=str(tmp_path))) as node:
            topic = node.server.produce.topics.topic("t")
            for number, part in enumerate(reversed(parts(topic))):
                [repeat] = await append(node.server.produce, [part], Acks.ALL, NOW_MS)
                assert isinstance(repeat, Appended)
                assert (repeat.base_offset, repeat.record_count, repeat.is_duplicate) == (3 - number, 1, True)


async def test_a_client_that_leaves_may_send_its_key_again_in_the_same_turn(produce: Produce) -> None:
    parts = [own(produce.topic, value, key_entry(1)) for value in (b"first", b"again")]
    first, again = (asyncio.ensure_future(append(produce.context, [one], Acks.ALL, NOW_MS)) for one in parts)
    await asyncio.sleep(0)
    first.cancel()
    [found] = await again
    assert isinstance(found, Appended)
    assert (found.base_offset, found.is_duplicate) == (0, True)
    assert await produce.stored() == [[b"first"]]


async def test_a_defect_in_several_parts_ends_the_request_once(
    produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("gateway.produce.accumulator.encode_all", fail)
    pending = PendingOutcomes(produce.context)
    pending.queue([own(produce.topic, b"1"), own(produce.topic, b"2")], Acks.ALL, 10_000, NOW_MS)
    with pytest.raises(ZeroDivisionError):
        await pending
    assert produce.node.server.metrics.delayed_produces.value == 0
