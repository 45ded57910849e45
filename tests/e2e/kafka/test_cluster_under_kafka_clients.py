"""Three nodes, an idempotent producer, and groups of both protocols of Kafka, while a leader is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster.test_cluster import running_cluster, until
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.lifecycle.test_shards import call
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytest.importorskip("confluent_kafka")

import confluent_kafka

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

PARTITIONS = 6
RECORDS = 3000
PROTOCOLS = ("classic", "consumer")


class Readers:
    """Two members of one group, each in a thread. The group has the name of its protocol."""

    def __init__(self, servers: str, protocol: str) -> None:
        self.found: Counter[bytes] = Counter()
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(servers, protocol)) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _read(self, servers: str, protocol: str) -> None:
        own = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000} if protocol == "classic" else {}
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": protocol,
                "group.protocol": protocol,
                "auto.offset.reset": "error",
                **own,
            }
        )
        consumer.subscribe(["t"])
        while not self._stop.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                self.found[message.value()] += 1
            elif message.error().code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                self.failures.append(str(message.error()))
        consumer.close()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def test_nothing_acknowledged_is_lost_or_doubled_when_a_leader_dies(tmp_path: Path) -> None:
    addresses = {number: free_address() for number in (1, 2, 3)}
    own = {number: {"kafka-listen": address} for number, address in addresses.items()}
    servers = ",".join(addresses.values())
    acknowledged: dict[bytes, tuple[int, int]] = {}
    failures: list[str] = []

    def done(error: Any, message: Any) -> None:
        if error is None:
            acknowledged[message.value()] = (message.partition(), message.offset())
        else:
            failures.append(str(error))

    with running_cluster(tmp_path, own=own) as cluster:
        cluster.create("t", PARTITIONS)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        starts = [confluent_kafka.TopicPartition("t", number, 0) for number in range(PARTITIONS)]
        for protocol in PROTOCOLS:
            committer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": protocol})
            until(lambda of=committer: of.commit(offsets=starts, asynchronous=False) is not None)
            committer.close()
        groups = [Readers(servers, protocol) for protocol in PROTOCOLS]
        try:
            for number in range(RECORDS):
                producer.produce("t", b"%d" % number, b"%d" % number, on_delivery=done)
                producer.poll(0.002)
                if number == RECORDS // 3:
                    cluster.nodes[1].kill()
            assert producer.flush(60) == 0
            assert failures == []
            assert len(acknowledged) == len(set(acknowledged.values())) == RECORDS
            deadline = time.monotonic() + 60
            while min(len(one.found) for one in groups) < RECORDS and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            for readers in groups:
                readers.stop()
        for readers in groups:
            assert acknowledged.keys() - readers.found.keys() == set()
            assert readers.failures == []  # no position was ever out of range
        metadata = producer.list_topics(timeout=20)
        assert set(metadata.brokers) == {2, 3}
        assert {one.leader for one in metadata.topics["t"].partitions.values()} <= {2, 3}
        stored = [record["value"] for number in range(PARTITIONS) for record in _records(cluster.nodes[2].url, number)]
        assert sorted(stored) == list(range(RECORDS))


def _records(url: str, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        answer = call(f"{url}/v1/topics/t/partitions/{number}/records?offset={len(found)}")
        if not answer["records"]:
            return found
        found += answer["records"]
