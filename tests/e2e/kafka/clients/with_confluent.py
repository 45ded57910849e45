"""The story of the clients for confluent-kafka (librdkafka)."""

from __future__ import annotations

import json
import sys
import threading
import time

import confluent_kafka
from confluent_kafka import admin

PARTITIONS = 6
FIRST_TIME = 1_700_000_000_000
CODECS = ["gzip", "snappy", "lz4", "zstd"]


class Story:
    def __init__(self, servers: str, topic: str, records: int) -> None:
        self.servers, self.topic, self.records = servers, topic, records
        self.seen: set[bytes] = set()
        self.counts = [0, 0, 0]
        self.is_done = False
        self.places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]

    def create(self, replicas: int) -> None:
        client = admin.AdminClient({"bootstrap.servers": self.servers})
        client.create_topics([admin.NewTopic(self.topic, PARTITIONS, replicas)])[self.topic].result(60)

    def produce(self, codec: str, first: int, last: int, seconds: float) -> None:
        settings = {"bootstrap.servers": self.servers, "enable.idempotence": True, "compression.type": codec}
        producer = confluent_kafka.Producer(settings)
        failures: list[object] = []
        for number in range(first, last):
            producer.produce(
                self.topic,
                b"%d" % number,
                b"k%d" % (number % 97),
                timestamp=FIRST_TIME + number,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            if number % 20 == 0:
                producer.poll(0)
                time.sleep(seconds * 20 / (last - first))
        assert producer.flush(90) == 0
        assert not failures, failures

    def consumer(self) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 1000,
                "check.crcs": True,
            }
        )

    def read(self, member: int) -> None:
        consumer = self.consumer()
        consumer.subscribe([self.topic])
        while not self.is_done:
            found = [one for one in consumer.consume(500, 0.2) if one.error() is None]
            self.counts[member] += len(found)
            self.seen.update(one.value() for one in found)
            try:
                if found:
                    consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException as error:
                print("commit:", error, file=sys.stderr)
        consumer.close()

    def committed(self) -> int:
        consumer = self.consumer()
        offsets = [max(one.offset, 0) for one in consumer.committed(self.places, 20)]
        consumer.close()
        return sum(offsets)

    def after_half(self) -> int:
        """Reads from the time of the record in the middle to the end."""
        consumer = self.consumer()
        times = [
            confluent_kafka.TopicPartition(self.topic, number, FIRST_TIME + self.records // 2)
            for number in range(PARTITIONS)
        ]
        starts = consumer.offsets_for_times(times, 20)
        consumer.assign(starts)
        ends = [consumer.get_watermark_offsets(place, 20)[1] for place in self.places]
        left = sum(end - start.offset for end, start in zip(ends, starts, strict=True) if start.offset >= 0)
        count, deadline = 0, time.monotonic() + 30
        while count < left and time.monotonic() < deadline:
            count += sum(one.error() is None for one in consumer.consume(500, 0.5))
        consumer.close()
        return count


def main() -> None:
    servers, topic, replicas, records, seconds = sys.argv[1:]
    story = Story(servers, topic, int(records))
    story.create(int(replicas))
    members = [threading.Thread(target=story.read, args=(member,)) for member in range(3)]
    for member in members[:2]:
        member.start()
    time.sleep(1)
    for part, codec in enumerate(CODECS):
        story.produce(codec, part * story.records // 4, (part + 1) * story.records // 4, float(seconds) / 4)
        if part == 1:
            members[2].start()
    deadline = time.monotonic() + 90
    while len(story.seen) < story.records and time.monotonic() < deadline:
        time.sleep(0.1)
    story.is_done = True
    for one in members:
        one.join(60)
    found = {"seen": len(story.seen), "members": story.counts, "committed": story.committed()}
    print(json.dumps({**found, "after_half": story.after_half()}))


main()
