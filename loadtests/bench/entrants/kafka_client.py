"""aiokafka, a client of Kafka for Python, where no tool of Kafka's can send what is measured.

`kafka-consumer-perf-test` reads a log once and as a member of a group, whose start costs the broker as much as tens of
megabytes. `kafka-e2e-latency` waits for each record before it sends the next one. The time of the client is in the
delivery's percentiles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from loadtests.bench.entrants.session import FETCH_BYTES, Counted
from loadtests.generators.delivery import Arrivals, DeliveryOutcome, deliver_all
from loadtests.generators.load import Outcome
from loadtests.generators.open_loop import OpenLoop, Schedule
from loadtests.generators.records import numbered_value, numbers_in

TAIL_WAIT_MS = 2000
READ_WAIT_MS = 1  # at the end of a log, before it is read again


async def read_log(address: str, topic: str, readers: int, records: int) -> Counted:
    """Reads at least this many records with several consumers, each from the start of the log to its end and again."""
    consumers = [_consumer(address, READ_WAIT_MS) for _ in range(readers)]
    for consumer in consumers:
        await consumer.start()
    cpu_before, started = time.process_time(), time.perf_counter()
    try:
        reads = await asyncio.gather(*(_read(consumer, topic, records // readers) for consumer in consumers))
    finally:
        for consumer in consumers:
            await consumer.stop()
    outcome = Outcome(
        good=sum(read.fetches for read in reads),
        bad=sum(bool(read.error) for read in reads),
        seconds=time.perf_counter() - started,
        durations_us=[],
        answer_bytes=0,
        generator_cpu_s=time.process_time() - cpu_before,
        what_went_wrong="; ".join(read.error for read in reads if read.error),
    )
    return Counted(outcome, sum(read.records for read in reads))


class _Read(NamedTuple):
    records: int
    fetches: int
    error: str


async def _read(consumer: AIOKafkaConsumer, topic: str, records: int) -> _Read:
    """Reads until this many records have come. An offset that is not the next one is an error."""
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end = (await consumer.end_offsets([partition]))[partition]
    position = count = fetches = 0
    consumer.seek(partition, 0)
    while count < records:
        if position >= end:
            position = 0
            consumer.seek(partition, 0)
        for record in (await consumer.getmany(partition, timeout_ms=TAIL_WAIT_MS)).get(partition, ()):
            if record.offset != position:
                return _Read(count, fetches, f"offset {record.offset} came instead of {position}")
            position += 1
            count += 1
        fetches += 1
    return _Read(count, fetches, "")


async def deliver_by_client(address: str, topic: str, schedule: Schedule) -> DeliveryOutcome:
    """Produces on a schedule into an empty log while a consumer reads it."""
    arrivals = Arrivals(schedule.count)
    consumer = _consumer(address, TAIL_WAIT_MS)
    producer = AIOKafkaProducer(bootstrap_servers=address, acks=1, linger_ms=0)
    await consumer.start()
    await producer.start()

    async def connect() -> _Sender:
        return _Sender(producer, topic)

    try:
        loop = OpenLoop(connect, schedule, lambda number: number)
        return await deliver_all(loop, arrivals, _follow(consumer, topic, arrivals), schedule)
    finally:
        await producer.stop()
        await consumer.stop()


async def _follow(consumer: AIOKafkaConsumer, topic: str, arrivals: Arrivals) -> None:
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    while not arrivals.is_complete:
        records = (await consumer.getmany(partition, timeout_ms=TAIL_WAIT_MS)).get(partition, ())
        arrivals.take(numbers_in(b"".join(record.value for record in records)))
        arrivals.polls += 1


class _Acknowledged(NamedTuple):
    error: str = ""


class _Sender:
    """One of the requests that may be in flight. The producer, which all share, closes by itself."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def send(self, number: int, /) -> Awaitable[_Acknowledged]:
        return self._send(number)

    async def _send(self, number: int) -> _Acknowledged:
        await self._producer.send_and_wait(self._topic, numbered_value(number), partition=0)
        return _Acknowledged()

    def close(self) -> None:
        """Leaves the producer open."""


def _consumer(address: str, wait_ms: int) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(bootstrap_servers=address, fetch_max_wait_ms=wait_ms, max_partition_fetch_bytes=FETCH_BYTES)
