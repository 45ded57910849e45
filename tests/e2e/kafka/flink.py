"""Flink's Kafka source and sink against a node: `python -m tests.e2e.kafka.flink`.

A job sums the values of each key in a local cluster. It is killed, and another one goes on from its last checkpoint:
positions and sums belong together, so the last sum of each key is exact, although some sums are written twice.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.e2e.kafka.jars import compiled, jars_of, java, running_java
from tests.e2e.kafka.streams import create, until
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

FLINK, CONNECTOR = "2.2.0", "5.0.0-2.2"
ARTIFACTS = (
    f"org.apache.flink:flink-clients:{FLINK}",
    f"org.apache.flink:flink-streaming-java:{FLINK}",
    f"org.apache.flink:flink-connector-base:{FLINK}",
    f"org.apache.flink:flink-connector-kafka:{CONNECTOR}",
)
FLAGS = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.util.concurrent")]
RECORDS = 3000
KEYS = "abc"


def produce(servers: str, first: int, last: int) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, last):
        producer.produce("in", f"{KEYS[number % 3]} {number}")
    assert producer.flush(60) == 0


def sums(servers: str) -> dict[str, int]:
    """Returns the largest sum of each key; sums only grow."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "looks", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition("out", number, 0) for number in range(3)])
    largest: dict[str, int] = {}
    ends = 0
    while ends < 3:
        for message in consumer.consume(1000, 1):
            if message.error() is not None:
                ends += 1
            else:
                key, text = message.value().decode().split(" ")
                largest[key] = max(int(text), largest.get(key, 0))
    consumer.close()
    return largest


def expected(records: int) -> dict[str, int]:
    return {key: sum(range(place, records, 3)) for place, key in enumerate(KEYS)}


def last_checkpoint(directory: Path) -> list[str]:
    found = sorted(directory.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
    return [f"file://{path.parent}" for path in found[-1:]]


def main() -> int:
    jars = jars_of(*ARTIFACTS)
    with tempfile.TemporaryDirectory() as made:
        directory, servers = Path(made), free_address()
        checkpoints = directory / "checkpoints"
        classes = compiled(Path(__file__).with_name("clients") / "Totals.java", jars, directory / "classes")
        with running_process(directory / "node", shards=2, kafka_listen=servers):
            create(servers, "in", "out")
            for life in (1, 2):
                produce(servers, (life - 1) * RECORDS, life * RECORDS)
                log, start = directory / f"life-{life}.log", last_checkpoint(checkpoints)
                assert len(start) == life - 1
                arguments = [servers, "in", "out", str(checkpoints), *start]
                command = java(jars, "Totals", *arguments, classes=classes, flags=FLAGS)
                with running_java(command, log):
                    until(lambda life=life: sums(servers) == expected(life * RECORDS), log)  # type: ignore[misc]
                    if life == 1:
                        produced = len(list(checkpoints.glob("*/chk-*")))
                        until(lambda: bool(last_checkpoint(checkpoints)), log)
                        print(f"{produced} checkpoints", flush=True)
                print(f"life {life}: {expected(life * RECORDS)}: ok, then killed", flush=True)
    print(f"Flink {FLINK}, connector {CONNECTOR}: all ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
