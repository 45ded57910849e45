"""MirrorMaker 2 both ways, with keyed records: `python -m tests.e2e.kafka.mirror_maker`.

Between Apache Kafka and a node, and between two nodes. The link to the second cluster is cut in the middle. Each
partition must then have the records of its source in their order, and a group its translated positions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from loadtests.peers.downloads import default_cache, find_programs
from loadtests.peers.kafka_server import kafka
from tests.e2e.kafka.jars import jars_of, java, running_java
from tests.e2e.kafka.link import Link
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

KAFKA = "4.3.1"
PARTITIONS = 3
KEYS = 10_007
CUT_S = 10
WITHIN_S = 900
TRANSLATED_S = 120
PROPERTIES = """\
clusters=a,b
a.bootstrap.servers={a}
b.bootstrap.servers={b}
a->b.enabled=true
b->a.enabled=true
topics=of-.*
groups=g
tasks.max=2
a.scheduled.rebalance.max.delay.ms=5000
b.scheduled.rebalance.max.delay.ms=5000
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
refresh.topics.interval.seconds=5
refresh.groups.interval.seconds=5
emit.checkpoints.interval.seconds=2
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=2
producer.enable.idempotence=true
a.producer.enable.idempotence=true
b.producer.enable.idempotence=true
"""


class Cluster(NamedTuple):
    """A cluster by its letter in the settings of MirrorMaker."""

    letter: str
    servers: str


def create(cluster: Cluster, topic: str) -> None:
    from confluent_kafka import admin

    client = admin.AdminClient({"bootstrap.servers": cluster.servers})
    client.create_topics([admin.NewTopic(topic, PARTITIONS, 1)])[topic].result(60)


def produce(cluster: Cluster, topic: str, first: int, last: int) -> None:
    import confluent_kafka

    settings = {"bootstrap.servers": cluster.servers, "enable.idempotence": True, "linger.ms": 20}
    producer = confluent_kafka.Producer(settings)
    for number in range(first, last):
        while True:
            try:
                producer.produce(topic, b"%d" % number, b"key-%d" % (number % KEYS), headers=[("n", b"%d" % number)])
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def ends(cluster: Cluster, topic: str) -> list[int]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.servers, "group.id": "looks"})
    try:
        places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [consumer.get_watermark_offsets(place, 20)[1] for place in places]
    except confluent_kafka.KafkaException:
        return []
    finally:
        consumer.close()


def records(cluster: Cluster, topic: str, number: int, end: int) -> list[tuple[Any, ...]]:
    """Returns what a partition has: keys, values, headers and times."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.servers, "group.id": "looks", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0)])
    found: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + 120
    while len(found) < end and time.monotonic() < deadline:
        for one in consumer.consume(10_000, 1):
            assert one.error() is None, one.error()
            found.append((one.key(), one.value(), one.headers(), one.timestamp()))
    consumer.close()
    return found


def commit(cluster: Cluster, topic: str, offset: int) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.servers, "group.id": "g"})
    places = [confluent_kafka.TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            break
        except confluent_kafka.KafkaException:  # Kafka makes the topic of its positions now
            assert time.monotonic() < deadline
            time.sleep(1)
    consumer.close()


def committed(cluster: Cluster, topic: str) -> list[int]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.servers, "group.id": "g"})
    try:
        places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [one.offset for one in consumer.committed(places, 20)]
    finally:
        consumer.close()


def wait_mirrored(source: Cluster, target: Cluster, topic: str) -> None:
    """Waits until the copy has as many records as its source."""
    wanted, copy = ends(source, topic), f"{source.letter}.{topic}"
    deadline = time.monotonic() + WITHIN_S
    while (found := ends(target, copy)) < wanted:
        assert time.monotonic() < deadline, f"{copy} has {found} of {wanted}"
        time.sleep(1)


def judge(source: Cluster, target: Cluster, topic: str) -> str:
    """Compares each partition with its copy. Returns how many records there are, and how many are repeats."""
    copy = f"{source.letter}.{topic}"
    count = repeated = 0
    for number, (own, other) in enumerate(zip(ends(source, topic), ends(target, copy), strict=True)):
        wanted, found = records(source, topic, number, own), records(target, copy, number, other)
        first_seen = list(dict.fromkeys((key, value, str(headers), time_) for key, value, headers, time_ in found))
        assert first_seen == [(key, value, str(headers), time_) for key, value, headers, time_ in wanted], number
        count, repeated = count + len(wanted), repeated + len(found) - len(wanted)
    return f"{source.letter} -> {target.letter}: {count:,} records in order, {repeated} repeats"


def mirror(directory: Path, a: Cluster, b: Cluster, link: Link, count: int) -> None:
    """Copies both ways, cuts the link to `b` in the middle, and compares."""
    artifacts = [f"org.apache.kafka:{name}:{KAFKA}" for name in ("connect-mirror", "connect-runtime", "connect-json")]
    jars = jars_of(*artifacts)
    properties = directory / "mirror.properties"
    properties.write_text(PROPERTIES.format(a=a.servers, b=b.servers))
    for source in (a, b):
        create(source, f"of-{source.letter}")
        produce(source, f"of-{source.letter}", 0, count // 2)
    command = java(jars, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties))
    with running_java(command, directory / "mirror.log"):
        deadline = time.monotonic() + WITHIN_S
        while sum(ends(b, "a.of-a")) < count // 10:
            assert time.monotonic() < deadline, "nothing is mirrored"
            time.sleep(0.2)
        link.cut()
        time.sleep(CUT_S)
        link.mend()
        for source in (a, b):
            produce(source, f"of-{source.letter}", count // 2, count)
        wait_mirrored(a, b, "of-a")
        wait_mirrored(b, a, "of-b")
        print(judge(a, b, "of-a"), judge(b, a, "of-b"), sep="\n", flush=True)
        for source in (a, b):
            commit(source, f"of-{source.letter}", min(ends(source, f"of-{source.letter}")))
        deadline = time.monotonic() + TRANSLATED_S
        while min(committed(b, "a.of-a")) < 0 or min(committed(a, "b.of-b")) < 0:
            assert time.monotonic() < deadline, "the positions of the group are not translated"
            time.sleep(1)
        print(f"group g: {committed(b, 'a.of-a')} of b, {committed(a, 'b.of-b')} of a", flush=True)


@contextmanager
def node(directory: Path) -> Iterator[tuple[str, Link]]:
    """Runs a node of two shards behind a link. Returns the address of the link."""
    own, outer = free_address(), free_address()
    with (
        Link(outer, own) as link,
        running_process(directory, shards=2, kafka_listen=own, kafka_advertised=outer),
    ):
        yield outer, link


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--between", default="kafka,penstock")
    options = parser.parse_args()
    programs = find_programs(default_cache(), ["kafka"])
    if programs.kafka_jars is None:
        print("\n".join(programs.missing))
        return 3
    for first in options.between.split(","):
        with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
            directory = Path(made)
            if first == "kafka":
                a = Cluster("a", stack.enter_context(kafka(programs.kafka_jars, directory / "kafka")).address)
            else:
                a = Cluster("a", stack.enter_context(node(directory / "a"))[0])
            servers, link = stack.enter_context(node(directory / "b"))
            began = time.monotonic()
            try:
                mirror(directory, a, Cluster("b", servers), link, options.records)
            except BaseException:
                with suppress(FileNotFoundError):
                    print((directory / "mirror.log").read_text()[-4000:])
                raise
            print(f"{first} and penstock: ok, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
