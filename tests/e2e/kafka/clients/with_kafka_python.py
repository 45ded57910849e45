"""The story of the clients for kafka-python, 2.0.2 and later. Before 2.1 it has no idempotent producer."""

from __future__ import annotations

import json
import sys
import threading
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import CommitFailedError

PARTITIONS = 6
FIRST_TIME = 1_700_000_000_000
CODECS = ["gzip", "snappy", "lz4", "zstd"]
IS_OLD = kafka.__version__.startswith("2.0.")


class Story:
    def __init__(self, servers: str, topic: str, records: int) -> None:
        self.servers, self.topic, self.records = servers.split(","), topic, records
        self.seen: set[bytes] = set()
        self.counts = [0, 0, 0]
        self.is_done = False
        self.places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def create(self, replicas: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        admin.create_topics([NewTopic(self.topic, PARTITIONS, replicas)])
        admin.close()

    def produce(self, codec: str, first: int, last: int, seconds: float) -> None:
        more = {"retries": 100} if IS_OLD else {"enable_idempotence": True}
        producer = KafkaProducer(
            bootstrap_servers=self.servers,
            compression_type=codec,
            acks="all",
            linger_ms=5,
            max_in_flight_requests_per_connection=1,
            **more,
        )
        sent = []
        for number in range(first, last):
            key, value = b"k%d" % (number % 97), b"%d" % number
            sent.append(producer.send(self.topic, value, key, timestamp_ms=FIRST_TIME + number))
            if number % 20 == 0:
                time.sleep(seconds * 20 / (last - first))
        for one in sent:
            one.get(90)
        producer.close()

    def consumer(self, *topics: str) -> KafkaConsumer:
        return KafkaConsumer(
            *topics,
            bootstrap_servers=self.servers,
            group_id=self.topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
        )

    def read(self, member: int) -> None:
        consumer = self.consumer(self.topic)
        while not self.is_done:
            found = [one for rows in consumer.poll(200).values() for one in rows]
            self.counts[member] += len(found)
            self.seen.update(one.value for one in found)
            try:
                if found:
                    consumer.commit()
            except CommitFailedError as error:
                print("commit:", error, file=sys.stderr)
        consumer.close()

    def committed(self) -> int:
        consumer = self.consumer()
        offsets = [consumer.committed(place) or 0 for place in self.places]
        consumer.close()
        return sum(offsets)

    def after_half(self) -> int:
        """Reads from the time of the record in the middle to the end."""
        consumer = self.consumer()
        consumer.assign(self.places)
        ends = consumer.end_offsets(self.places)
        starts = consumer.offsets_for_times(dict.fromkeys(self.places, FIRST_TIME + self.records // 2))
        left = 0
        for place in self.places:
            start = ends[place] if starts[place] is None else starts[place].offset
            consumer.seek(place, start)
            left += ends[place] - start
        count, deadline = 0, time.monotonic() + 30
        while count < left and time.monotonic() < deadline:
            count += sum(map(len, consumer.poll(500).values()))
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
