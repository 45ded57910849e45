"""The story of the clients for aiokafka."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import CommitFailedError

PARTITIONS = 6
FIRST_TIME = 1_700_000_000_000
CODECS = ["gzip", "snappy", "lz4", "zstd"]


class Story:
    def __init__(self, servers: str, topic: str, records: int) -> None:
        self.servers, self.topic, self.records = servers.split(","), topic, records
        self.seen: set[bytes] = set()
        self.counts = [0, 0, 0]
        self.is_done = False
        self.places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    async def create(self, replicas: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        answer = await admin.create_topics([NewTopic(self.topic, PARTITIONS, replicas)])
        assert all(error == 0 for _, error, *_ in answer.topic_errors), answer
        await admin.close()

    async def produce(self, codec: str, first: int, last: int, seconds: float) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.servers, enable_idempotence=True, compression_type=codec, linger_ms=5
        )
        await producer.start()
        sent = []
        for number in range(first, last):
            key, value = b"k%d" % (number % 97), b"%d" % number
            sent.append(await producer.send(self.topic, value, key, timestamp_ms=FIRST_TIME + number))
            if number % 20 == 0:
                await asyncio.sleep(seconds * 20 / (last - first))
        await asyncio.gather(*sent)
        await producer.stop()

    def consumer(self, *topics: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.servers,
            group_id=self.topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
        )

    async def read(self, member: int) -> None:
        async with self.consumer(self.topic) as consumer:
            while not self.is_done:
                found = [one for rows in (await consumer.getmany(timeout_ms=200)).values() for one in rows]
                self.counts[member] += len(found)
                self.seen.update(one.value for one in found)
                try:
                    if found:
                        await consumer.commit()
                except CommitFailedError as error:
                    print("commit:", error, file=sys.stderr)

    async def committed(self) -> int:
        async with self.consumer() as consumer:
            return sum([await consumer.committed(place) or 0 for place in self.places])

    async def after_half(self) -> int:
        """Reads from the time of the record in the middle to the end."""
        async with self.consumer() as consumer:
            consumer.assign(self.places)
            ends = await consumer.end_offsets(self.places)
            starts = await consumer.offsets_for_times(dict.fromkeys(self.places, FIRST_TIME + self.records // 2))
            left = 0
            for place in self.places:
                start = ends[place] if starts[place] is None else starts[place].offset
                consumer.seek(place, start)
                left += ends[place] - start
            count, deadline = 0, time.monotonic() + 30
            while count < left and time.monotonic() < deadline:
                count += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
            return count


async def main() -> None:
    servers, topic, replicas, records, seconds = sys.argv[1:]
    story = Story(servers, topic, int(records))
    await story.create(int(replicas))
    members = [asyncio.create_task(story.read(member)) for member in range(2)]
    await asyncio.sleep(1)
    for part, codec in enumerate(CODECS):
        await story.produce(codec, part * story.records // 4, (part + 1) * story.records // 4, float(seconds) / 4)
        if part == 1:
            members.append(asyncio.create_task(story.read(2)))
    deadline = time.monotonic() + 90
    while len(story.seen) < story.records and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    story.is_done = True
    await asyncio.gather(*members)
    found = {"seen": len(story.seen), "members": story.counts, "committed": await story.committed()}
    print(json.dumps({**found, "after_half": await story.after_half()}))


asyncio.run(main())
