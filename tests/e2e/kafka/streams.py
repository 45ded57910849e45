"""A Kafka Streams application against a node: `python -m tests.e2e.kafka.streams`.

It is killed, and another one with an empty directory restores its state from the changelog and counts on.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.kafka.jars import compiled, jars_of, java, running_java
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

KAFKA = "4.3.1"
RECORDS = 3000
WITHIN_S = 120
LETTERS = "abc"


def create(servers: str, *topics: str) -> None:
    from confluent_kafka import admin

    client = admin.AdminClient({"bootstrap.servers": servers})
    for made in client.create_topics([admin.NewTopic(topic, 3, 1) for topic in topics]).values():
        made.result(60)


def produce(servers: str, topic: str) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, f"{LETTERS[number % 3]}{number}", str(number))
    assert producer.flush(60) == 0


def counts(servers: str, topic: str) -> dict[str, int]:
    """Returns the last count of each letter."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "looks", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(3)])
    found: dict[str, int] = {}
    ends = 0
    while ends < 3:
        for one in consumer.consume(1000, 1):
            if one.error() is not None:
                ends += 1
            else:
                found[one.key().decode()] = int.from_bytes(one.value())
    consumer.close()
    return found


def until(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.5)


def main() -> int:
    jars = jars_of(f"org.apache.kafka:kafka-streams:{KAFKA}")
    with tempfile.TemporaryDirectory() as made:
        directory, servers = Path(made), free_address()
        classes = compiled(Path(__file__).with_name("clients") / "Counts.java", jars, directory / "classes")
        with running_process(directory / "node", shards=2, kafka_listen=servers):
            create(servers, "words", "counts")
            for life in (1, 2):
                produce(servers, "words")
                log = directory / f"life-{life}.log"
                arguments = [servers, "counting", "words", "counts", str(directory / f"state-{life}"), "1"]
                with running_java(java(jars, "Counts", *arguments, classes=classes), log):
                    wanted = dict.fromkeys(LETTERS, life * RECORDS // 3)
                    until(lambda wanted=wanted: counts(servers, "counts") == wanted, log)  # type: ignore[misc]
                print(f"life {life}: {wanted}: ok, then killed", flush=True)
            restored = [line for line in log.read_text().splitlines() if line.startswith("restored")]
            assert sum(int(line.rpartition(" ")[2]) for line in restored) >= len(LETTERS), restored
            print(*restored, sep="\n")
    print(f"Kafka Streams {KAFKA}: all ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
