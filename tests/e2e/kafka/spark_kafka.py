"""Spark's own Kafka source and sink against a node: `python -m tests.e2e.kafka.spark_kafka`.

Bounded reads by offsets and by times, and a stream that stops at the end of the log and goes on from its checkpoint.
Each log ends with a control batch, which has no record: a bounded read must not wait for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from tests.e2e.kafka.client_programs import python_client
from tests.e2e.kafka.jars import jars_of
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

SPARK = "4.1.1"  # the newest whose source Maven Central serves
PARTITIONS = 3
RECORDS = 3000
FIRST_TIME = 1_700_000_000_000


def put(url: str, body: object) -> None:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def produce(servers: str, first: int, last: int) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, last):
        key, value = b"k%d" % (number % 7), b"%d" % number
        producer.produce("in", value, key, number % PARTITIONS, timestamp=FIRST_TIME + number)
    assert producer.flush(60) == 0


def end_with_control(url: str) -> None:
    """Sets a token of each partition and takes it away."""
    for number in range(PARTITIONS):
        put(f"{url}/v1/topics/in/partitions/{number}/fence", {"token": "t", "expected": None})
        put(f"{url}/v1/topics/in/partitions/{number}/fence", {"token": None, "expected": "t"})


def main() -> int:
    jars = ",".join(map(str, jars_of(f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}").glob("*.jar")))
    program = python_client("pyspark", SPARK, "tests.e2e.kafka.clients.with_spark")
    with tempfile.TemporaryDirectory() as made:
        directory, servers = Path(made), free_address()
        with running_process(directory / "node", shards=2, kafka_listen=servers) as node:
            put(f"{node.url}/v1/topics/in", {"partitions": PARTITIONS})
            put(f"{node.url}/v1/topics/out", {"partitions": PARTITIONS})
            for step, first, last in (("reads", 0, RECORDS), ("stream", 0, 0), ("stream", RECORDS, 2 * RECORDS)):
                produce(servers, first, last)
                end_with_control(node.url)
                arguments = [servers, str(directory / "state"), str(last or RECORDS), str(FIRST_TIME), jars, step]
                done = subprocess.run([*program.command, *arguments], stdout=subprocess.PIPE, text=True, check=False)
                print(done.stdout, end="", flush=True)
                if done.returncode:
                    return 1
    print(f"Spark's Kafka source {SPARK}: all ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
