"""The consumer of a group against a real node, whose answers are lost and whose members are removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock import Client, ClientClosed, ClientOptions, ConnectionFailed, GroupConsumer, Record, TopicPartition
from penstock import sync as penstock_sync
from penstock.transport.exchange import Answer, Request
from tests.waiting import pass_time, until

pytestmark = pytest.mark.e2e
QUICK = ClientOptions(backoff_ms=5, backoff_ms_max=20, fetch_wait_ms=300, unreachable_timeout_ms=60_000)


@pytest.fixture
async def client(node_url: str) -> AsyncIterator[Client]:
    async with Client(node_url, options=QUICK) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[:100]


async def fill(client: Client, topic: str, count: int, partitions: int = 1, begin: int = 0) -> None:
    if not begin:
        await client.create_topic(topic, partitions=partitions)
    async with client.producer(linger_ms=0) as producer:
        for n in range(begin, begin + count):
            await producer.send(topic, n, partition=n % partitions)


async def offsets(client: Client, group: str) -> dict[int, int]:
    return {one["partition"]: one["offset"] for one in (await client.group_offsets(group))["offsets"]}


def values(records: list[Record]) -> list[int]:
    return sorted(record.json() for record in records)


async def read(consumer: GroupConsumer, count: int) -> list[Record]:
    return [await consumer.next() for _ in range(count)]


async def test_a_delivery_is_committed_when_the_next_is_asked_for(client: Client, topic: str) -> None:
    await fill(client, topic, 10)
    async with client.consumer(group=topic, topics=[topic], max_records=5) as consumer:
        assert [record.offset for record in await read(consumer, 5)] == [0, 1, 2, 3, 4]
        assert await offsets(client, topic) == {0: 0}
        assert (await consumer.next()).value == b"5"
        assert await offsets(client, topic) == {0: 5}


async def test_the_record_at_which_the_loop_ended_is_delivered_again(client: Client, topic: str) -> None:
    await fill(client, topic, 10)
    async with client.consumer(group=topic, topics=topic) as consumer:
        async for record in consumer:
            if record.offset == 7:
                break
    assert await offsets(client, topic) == {0: 7}
    with pytest.raises(ClientClosed):
        await consumer.next()
    async with client.consumer(group=topic, topics=topic) as consumer:
        assert [record.offset for record in await consumer.poll(max_records=2)] == [7, 8]
        assert await consumer.commit()
    assert await offsets(client, topic) == {0: 9}
    assert (await client.describe_group(topic))["members"] == []


async def test_lost_answers_are_not_noticed(client: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(client, topic, 60, partitions=3)
    send, requests = client._transport.send, 0

    async def losing(request: Request, *, wait_ms: int = 0) -> Answer:
        nonlocal requests
        requests += 1
        answer = await send(request, wait_ms=wait_ms)
        if requests % 3:
            raise ConnectionFailed("the answer is lost", no_side_effects=False)
        return answer

    monkeypatch.setattr(client._transport, "send", losing)
    async with client.consumer(group=topic, topics=[topic], max_records=7) as consumer:
        assert values(await read(consumer, 60)) == list(range(60))
        assert await consumer.poll(timeout_ms=200) == []
    monkeypatch.undo()
    assert sum((await offsets(client, topic)).values()) == 60


async def test_a_member_that_was_removed_joins_again_and_gets_the_records_again(client: Client, topic: str) -> None:
    await fill(client, topic, 10)
    async with client.consumer(group=topic, topics=[topic], member_id="m", max_records=5) as consumer:
        assert values(await read(consumer, 5)) == [0, 1, 2, 3, 4]
        await client.leave_group(topic, "m")
        assert values(await read(consumer, 10)) == list(range(10))
        await client.reset_group(topic, to="earliest", is_forced=True)
        assert (await consumer.next()).offset == 0
        assert not (await client.describe_group(topic))["members"][0]["revoking"]


async def test_a_member_that_another_client_has_ended_says_why(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A second client with the member's id leaves; the first one gets its records again."""
    await fill(client, topic, 2)
    async with client.consumer(group=topic, topics=[topic], member_id="m") as consumer:
        await read(consumer, 2)
        async with client.consumer(group=topic, topics=[topic], member_id="m") as twin:
            assert values(await read(twin, 2)) == [0, 1], "both read the same records"
        consumer._heartbeats.cancel()  # type: ignore[union-attr] # which may find it first
        await fill(client, topic, 1, begin=2)
        await consumer.next()
    [line] = [one for one in caplog.messages if "joins again" in one]
    assert f"member m joins again: member 'm' of group '{topic}' was removed" in line
    assert "if another client uses the same member_id, give each client its own" in line


async def test_heartbeats_keep_a_slow_caller_until_its_interval_is_over(client: Client, topic: str) -> None:
    await fill(client, topic, 1)
    consumer = client.consumer(group=topic, topics=[topic], poll_interval_ms_max=60_000)
    await consumer.next()
    member = consumer._member
    member.heartbeat_ms = 20
    consumer._heartbeats.cancel()  # type: ignore[union-attr] # which waits for the first interval
    sent_before = member._attempts.requests
    keeping_alive = asyncio.create_task(consumer._keep_alive())
    await until(lambda: member.heartbeat_ms == 5_000)
    pass_time(60)
    await keeping_alive
    assert member._attempts.requests - sent_before == 1
    await consumer.close()


async def test_a_heartbeat_that_finds_the_membership_ended_drops_the_delivery(client: Client, topic: str) -> None:
    await fill(client, topic, 4)
    async with client.consumer(group=topic, topics=[topic], member_id="removed") as consumer:
        consumer._member.heartbeat_ms = 10
        assert [record.offset for record in await read(consumer, 2)] == [0, 1]
        await client.leave_group(topic, "removed")
        await asyncio.wait_for(consumer._heartbeats, 60)  # type: ignore[arg-type]
        assert [record.offset for record in await read(consumer, 4)] == [0, 1, 2, 3]


async def test_a_filter_lets_only_some_records_through(client: Client, topic: str) -> None:
    await fill(client, topic, 20)
    async with client.consumer(group=topic, topics=topic, filters=["value=7"], fetch_wait_ms=0) as consumer:
        assert values(await consumer.poll()) == [7]
        assert await consumer.poll() == []
        assert await offsets(client, topic) == {0: 20}


async def test_commits_by_hand(client: Client, topic: str) -> None:
    await fill(client, topic, 9)
    how = {"topics": topic, "auto_commit": False, "max_records": 3}
    async with client.consumer(group=topic, **how) as consumer:  # type: ignore[arg-type]
        await read(consumer, 7)
    assert await offsets(client, topic) == {0: 0}
    async with client.consumer(group=topic, member_id="hand", **how) as consumer:  # type: ignore[arg-type]
        assert (await read(consumer, 5))[-1].offset == 4
        assert await consumer.commit()
        assert await offsets(client, topic) == {0: 5}
        await consumer.next()
        await client.leave_group(topic, "hand")
        assert not await consumer.commit()
    assert await offsets(client, topic) == {0: 5}


async def test_a_commit_after_a_reset_has_nothing_from_before(client: Client, topic: str) -> None:
    await fill(client, topic, 8, partitions=2)
    async with client.consumer(group=topic, topics=topic, auto_commit=False, max_records=4) as consumer:
        await read(consumer, 8)
        await client.reset_group(topic, to="earliest", is_forced=True)
        first = await consumer.next()
        assert await consumer.commit()
    assert await offsets(client, topic) == {first.partition: 1, 1 - first.partition: 0}


async def test_a_commit_leaves_out_the_partitions_of_other_members(client: Client, topic: str) -> None:
    await fill(client, topic, 8, partitions=2)
    async with client.consumer(group=topic, topics=topic, auto_commit=False) as first:
        await read(first, 8)
        async with client.consumer(group=topic, topics=topic, auto_commit=False, fetch_wait_ms=0) as second:
            await second.poll()
            await first.poll()  # gives one partition up, which was read and not committed
            assert len(await second.poll()) == 4
            assert not await first.commit()
            assert sorted((await offsets(client, topic)).values()) == [0, 4]


async def test_callbacks_see_each_change_of_the_assignment(client: Client, topic: str) -> None:
    await fill(client, topic, 4, partitions=2)
    events: list[tuple[str, list[TopicPartition]]] = []

    async def revoked(partitions: list[TopicPartition]) -> None:
        events.append(("revoked", partitions))

    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    async with client.consumer(
        group=topic, topics=topic, on_assigned=lambda got: events.append(("assigned", got)), on_revoked=revoked
    ) as first:
        await read(first, 4)
        assert events == [("assigned", both)]
        async with client.consumer(group=topic, topics=topic, fetch_wait_ms=0) as second:
            await second.poll()
            await first.poll()
            assert len(events) == 2
            assert events[1][0] == "revoked"
            assert len(events[1][1]) == 1
        await first.poll()
        assert events[2] == ("assigned", events[1][1])
    assert events[3:] == [("revoked", both)]


async def test_a_partition_is_not_revoked_before_its_delivery_is_finished(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, topic, 2, partitions=2)
    events: list[int] = []
    consumer = client.consumer(group=topic, topics=topic, on_assigned=lambda got: events.append(len(got)))

    async def heartbeat() -> list[TopicPartition]:
        return [TopicPartition(topic, 1)]  # the other one was revoked after the poll

    monkeypatch.setattr(consumer._member, "heartbeat", heartbeat)
    async with consumer:
        await read(consumer, 2)
    assert events == [2]


def test_the_sync_twin(node_url: str, topic: str) -> None:
    events: list[str] = []
    with penstock_sync.Client(node_url, options=QUICK) as client:
        client.create_topic(topic)
        with client.producer() as producer:
            for n in range(4):
                producer.send(topic, n)
        with client.consumer(
            group=topic,
            topics=topic,
            member_id="s",
            on_assigned=lambda got: events.append(f"assigned {len(got)}"),
            on_revoked=lambda lost: events.append(f"revoked {len(lost)}"),
        ) as consumer:
            for record in consumer:
                if record.offset == 2:
                    break
            assert events == ["assigned 1"]
            assert [one.offset for one in consumer.poll()] == [3]
            assert consumer.commit()
            assert consumer.poll(timeout_ms=50) == []
        assert events == ["assigned 1", "revoked 1"]
        assert client.group_offsets(topic)["offsets"][0]["offset"] == 4


async def test_a_paused_partition_is_read_again_after_resume(client: Client, topic: str) -> None:
    await fill(client, topic, 4, partitions=2)
    async with client.consumer(group=topic, topics=topic) as consumer:
        consumer.pause([(topic, 0)])
        assert consumer.paused == {TopicPartition(topic, 0)}
        assert values(await consumer.poll()) == [1, 3]
        assert await consumer.poll(timeout_ms=1) == []
        consumer.resume([(topic, 0)])
        found: list[Record] = []
        while not found:
            found = await consumer.poll()
        assert values(found) == [0, 2]


async def test_finished_records_of_a_long_delivery_are_committed_often(client: Client, topic: str) -> None:
    await fill(client, topic, 4)
    with pytest.raises(ValueError, match="auto_commit"):
        client.consumer(group=topic, topics=topic, auto_commit=False, auto_commit_ms=10)
    async with client.consumer(group=topic, topics=topic, auto_commit_ms=10) as consumer:
        await read(consumer, 3)
        async with asyncio.timeout(60):
            while await offsets(client, topic) != {0: 2}:
                await asyncio.sleep(0.02)


async def test_a_consumer_reads_topics_by_expression(client: Client, topic: str) -> None:
    pytest.importorskip("re2")
    await fill(client, f"{topic}.a", 2)
    await fill(client, f"{topic}.b", 2)
    async with client.consumer(group=topic, topics_pattern=f"{topic}[.].", topics_exclude=".*b") as consumer:
        assert {record.topic for record in await consumer.poll()} == {f"{topic}.a"}


async def test_each_partition_of_a_delivery_has_a_task_of_its_own(client: Client, topic: str) -> None:
    await fill(client, topic, 12, partitions=3)
    done: list[tuple[int, int]] = []
    started: set[int] = set()
    all_started = asyncio.Event()

    async def work(record: Record) -> None:
        started.add(record.partition)
        if len(started) == 3:
            all_started.set()
        await asyncio.wait_for(all_started.wait(), 60)  # no task is done before all have begun
        done.append((record.partition, record.offset))

    async with client.consumer(group=topic, topics=topic, min_bytes=1) as consumer:
        await consumer.run(work, idle_ms=1000)
    assert len(done) == 12
    for number in range(3):
        offsets_of = [offset for partition, offset in done if partition == number]
        assert offsets_of == sorted(offsets_of)
    assert sum((await offsets(client, topic)).values()) == 12


async def test_a_delivery_whose_work_fails_is_not_committed(client: Client, topic: str) -> None:
    await fill(client, topic, 3)

    async def work(record: Record) -> None:
        if record.offset == 1:
            raise RuntimeError("cannot")

    async with client.consumer(group=topic, topics=topic) as consumer:
        with pytest.raises(ExceptionGroup):
            await consumer.run(work)
    assert await offsets(client, topic) == {0: 0}


async def test_records_are_decoded_by_the_deserializers_of_the_consumer(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    async with client.producer(headers={"origin": "test", "kind": "x"}) as producer:
        await producer.send(topic, b"\xff", key="k")
        await producer.send(topic, {"a": 1}, key="k", headers={"kind": "y"})
    async with client.consumer(
        group=topic, topics=topic, key_deserializer="string", value_deserializer="json"
    ) as consumer:
        bad, good = await read(consumer, 2)
        with pytest.raises(ValueError):  # the deserializer's own
            bad.decoded()
        assert (good.decoded_key(), good.decoded()) == ("k", {"a": 1})
        assert dict(bad.headers) | dict(good.headers) == {"origin": b"test", "kind": b"y"}
    with pytest.raises(ValueError, match="available: json, string"):
        client.consume(topic, value_deserializer="nope")
    consumed = [
        record.decoded()
        async for record in client.consume(
            topic, follow=False, start=1, value_deserializer="string", min_bytes=1, max_records=1
        )
    ]
    assert consumed == ['{"a":1}']


async def test_a_record_that_failed_comes_again_with_those_behind_it_and_then_goes_to_the_dead_letters(
    client: Client, topic: str
) -> None:
    await fill(client, topic, 8, partitions=2)
    await client.create_topic(f"{topic}.dead")
    await client.configure_group(topic, {"dead_letter_topic": f"{topic}.dead", "deliveries_max": 2})
    seen: list[int] = []
    async with client.consumer(group=topic, topics=[topic]) as consumer:
        while len(seen) < 9:
            record = await consumer.next()
            seen.append(record.json())
            if record.json() == 2:
                consumer.fail(record, "no such account")
        assert [n for n in seen if n % 2 == 0] == [0, 2, 2, 4, 6], "in order, and nothing behind it before it is gone"
        await consumer.commit()
    assert await offsets(client, topic) == {0: 4, 1: 4}
    [letter] = [one async for one in client.consume(f"{topic}.dead", follow=False)]
    assert (letter.json(), dict(letter.headers)["dead-letter-error"]) == (2, b"no such account")


async def test_a_run_reports_the_records_whose_work_fails_and_goes_on(client: Client, topic: str) -> None:
    await fill(client, topic, 6, partitions=2)
    await client.create_topic(f"{topic}.dead")
    await client.configure_group(
        topic, {"dead_letter_topic": f"{topic}.dead", "deliveries_max": 3, "redelivery_delay_ms": 0}
    )
    calls: list[int] = []

    async def work(record: Record) -> None:
        calls.append(record.json())
        if record.json() == 0:
            raise ValueError("no such account")

    async with client.consumer(group=topic, topics=[topic]) as consumer:
        await consumer.run(work, idle_ms=300, is_reporting_failures=True)
    assert [n for n in calls if n % 2 == 0] == [0, 0, 0, 2, 4]
    assert sorted(n for n in calls if n % 2) == [1, 3, 5]
    assert await offsets(client, topic) == {0: 3, 1: 3}


async def test_a_failed_record_is_not_committed_by_hand_or_at_the_end(client: Client, topic: str) -> None:
    await fill(client, topic, 4)
    async with client.consumer(group=topic, topics=[topic]) as consumer:
        await read(consumer, 2)
        consumer.fail((await read(consumer, 1))[0])
        assert consumer.next_nowait() is None, "the record behind it comes after it"
        await consumer.commit()
    assert await offsets(client, topic) == {0: 2}
    async with client.consumer(group=topic, topics=[topic], auto_commit=False) as consumer:
        [record] = await read(consumer, 1)
        with pytest.raises(ValueError, match="auto_commit"):
            consumer.fail(record)
