"""The requests of the comparison with Kafka: each in every version, in an order that later ones rely on.

A request may need what its server has answered before, such as an id: `Known` has it, for each server apart.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.format import batch as record_batch
from gateway.kafka.codec.messages import Message
from gateway.kafka.codec.tables import TABLES
from tests.gateway.kafka.served import batch, fetch, produce, request

TOPIC, COMPACTED, ABSENT = "compared", "compared-keys", "absent"
KAFKA_TAKES = ("append time", "a reserved attribute")


class Known(NamedTuple):
    """What a server has answered: ids of topics, of a producer, and of a session."""

    topic_ids: dict[str, bytes]
    ids: dict[str, int]


Build = Callable[[Known], Message]


class Step(NamedTuple):
    """One request. `learn` takes what later ones need from its answer."""

    name: str
    api: str
    version: int
    build: Build
    learn: Callable[[Known, Message], None] | None = None


def versions(api: str, first: int = 0) -> range:
    return range(max(first, TABLES[api].first), TABLES[api].last + 1)


def altered(data: bytes, at: int, form: str, value: int) -> bytes:
    """Returns a batch with another value in its header, and a valid checksum."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    record_batch.set_crc(changed)
    return bytes(changed)


def steps() -> Iterator[Step]:
    """Yields all requests."""
    yield from _versions_and_topics()
    yield from _produces()
    yield from _fetches()
    yield from _positions()
    yield from _ends()


def _versions_and_topics() -> Iterator[Step]:
    for version in versions("ApiVersions"):
        named = {"client_software_name": "differential", "client_software_version": "1.0"}
        yield Step("all", "ApiVersions", version, lambda _, named=named: request("ApiVersions", **named))
    bad = request("ApiVersions", client_software_name="-bad-", client_software_version="1.0")
    yield Step("a bad name", "ApiVersions", 3, lambda _: bad)

    def created(*topics: tuple[str, int, int, dict[str, str]]) -> Build:
        rows = [
            request(
                "CreateTopics",
                "topics",
                name=name,
                num_partitions=partitions,
                replication_factor=factor,
                configs=[request("CreateTopics", "topics.configs", name=k, value=v) for k, v in configs.items()],
            )
            for name, partitions, factor, configs in topics
        ]
        return lambda _: request("CreateTopics", topics=rows, timeout_ms=30_000)

    yield Step(
        "two topics", "CreateTopics", 7, created((TOPIC, 4, 1, {}), (COMPACTED, 1, 1, {"cleanup.policy": "compact"}))
    )
    for version in versions("CreateTopics"):
        wrong = created((TOPIC, 2, 1, {}), ("no/name", 1, 1, {}), ("t-many", 1, 3, {}), ("t-none", 0, 1, {}))
        yield Step("wrong ones", "CreateTopics", version, wrong)
        unknown = created((f"t-config-{version}", 1, 1, {"no.such.name": "1"}))
        yield Step("an unknown setting", "CreateTopics", version, unknown)
    for version in versions("Metadata"):
        names = [request("Metadata", "topics", name=name) for name in (TOPIC, ABSENT, "no/name")]
        by_name = lambda _, names=names: request("Metadata", topics=names, allow_auto_topic_creation=False)  # noqa: E731
        if version >= 4:  # earlier ones create topics
            yield Step("by name", "Metadata", version, by_name, _learn_topic_ids if version >= 10 else None)
    for version in (12, 13):
        for name in (TOPIC, ABSENT):

            def by_id(known: Known, name: str = name) -> Message:
                topic_id = known.topic_ids.get(name, b"1" * 16)
                return request("Metadata", topics=[request("Metadata", "topics", name=None, topic_id=topic_id)])

            yield Step("by id" if name == ABSENT else "by a known id", "Metadata", version, by_id)
    for version in versions("DescribeCluster"):
        yield Step("brokers", "DescribeCluster", version, lambda _: request("DescribeCluster", endpoint_type=1))


def _learn_topic_ids(known: Known, answer: Message) -> None:
    known.topic_ids.update({one.name: one.topic_id for one in answer.topics if one.name})


def _produces() -> Iterator[Step]:
    good = batch(b"one", b"two", key=b"k")

    def topic_of(version: int, known: Known, name: str = TOPIC) -> str | bytes:
        return known.topic_ids.get(name, b"1" * 16) if version >= 13 else name

    for version in versions("Produce"):
        cases = {
            "a batch": good,
            "a wrong checksum": good[:-1] + b"!",
            "append time": altered(good, 21, ">h", 8),
            "a wrong latest time": altered(good, 35, ">q", 5),
            "a wrong count": altered(good, 57, ">i", 5),
            "a reserved attribute": altered(good, 21, ">h", 0x80),
            "an old magic": good[:16] + b"\1" + good[17:],
            "no batch": b"",
        }
        for name, data in cases.items():
            number = 2 if name in KAFKA_TAKES else 0  # a partition that is not read: its offsets differ
            yield Step(
                name,
                "Produce",
                version,
                lambda known, version=version, data=data, number=number: produce(
                    topic_of(version, known), {number: data}
                ),
            )
        yield Step(
            "to no partition",
            "Produce",
            version,
            lambda known, version=version: produce(topic_of(version, known), {7: good}),
        )
        yield Step(
            "to no topic",
            "Produce",
            version,
            lambda known, version=version: produce(topic_of(version, known, ABSENT), {0: good}),
        )
        yield Step(
            "other acks",
            "Produce",
            version,
            lambda known, version=version: produce(topic_of(version, known), {0: good}, acks=2),
        )
        yield Step(
            "without a key",
            "Produce",
            version,
            lambda known, version=version: produce(topic_of(version, known, COMPACTED), {0: batch(b"x")}),
        )
    for version in versions("InitProducerId"):
        yield Step(
            "a producer",
            "InitProducerId",
            version,
            lambda _: request("InitProducerId", transactional_id=None, transaction_timeout_ms=1000),
            lambda known, answer: known.ids.update(producer=answer.producer_id),
        )
    for name, number, epoch, sequence in (
        ("a late first batch", 3, 0, 5), ("the first batch", 1, 0, 0), ("a repeat", 1, 0, 0), ("the next one", 1, 0, 2),
        ("a gap", 1, 0, 9), ("a newer epoch", 1, 1, 0), ("an older epoch", 1, 0, 4),
    ):  # fmt: skip

        def sequenced(known: Known, number: int = number, epoch: int = epoch, sequence: int = sequence) -> Message:
            return produce(TOPIC, {number: batch(b"a", b"b", sequence=(known.ids["producer"], epoch, sequence))})

        yield Step(name, "Produce", 9, sequenced)


def _fetches() -> Iterator[Step]:
    for version in versions("Fetch"):

        def topic_of(known: Known, name: str = TOPIC, version: int = version) -> str | bytes:
            return known.topic_ids.get(name, b"1" * 16) if version >= 13 else name

        cases: dict[str, tuple[int, int, dict[str, int]]] = {
            "from the start": (0, 0, {}),
            "beyond a shorter log": (1, 10_000, {}),
            "no partition": (9, 0, {}),
            "a negative offset": (0, -1, {}),
            "behind the end": (0, 10_000_000, {}),
            "a known epoch": (0, 0, {"current_leader_epoch": 0}),
            "a later epoch": (0, 0, {"current_leader_epoch": 9}),
        }
        for name, (number, offset, fields) in cases.items():
            yield Step(
                name,
                "Fetch",
                version,
                lambda known, number=number, offset=offset, fields=fields, of=topic_of: fetch(
                    of(known), {number: offset}, **fields
                ),
            )
        yield Step("no topic", "Fetch", version, lambda known, of=topic_of: fetch(of(known, ABSENT), {0: 0}))
        if version < 7:
            continue
        yield Step(
            "a new session",
            "Fetch",
            version,
            lambda known, of=topic_of: fetch(of(known), {0: 0, 1: 0}, session=(0, 0)),
            lambda known, answer: known.ids.update(session=answer.session_id),
        )
        yield Step(
            "an unknown session",
            "Fetch",
            version,
            lambda known, of=topic_of: fetch(of(known), {}, session=(known.ids["session"] - 1, 1)),
        )
        yield Step("a wrong epoch", "Fetch", version, lambda known: fetch("", {}, session=(known.ids["session"], 4)))
        for epoch, offset in ((1, 10_000), (2, 0)):
            yield Step(
                "in the session",
                "Fetch",
                version,
                lambda known, epoch=epoch, offset=offset, of=topic_of: fetch(
                    of(known), {0: offset, 1: 0} if epoch == 2 else {}, session=(known.ids["session"], epoch)
                ),
            )
        yield Step(
            "the end of the session",
            "Fetch",
            version,
            lambda known, of=topic_of: fetch(of(known), {0: 0}, session=(known.ids["session"], -1)),
        )


def _positions() -> Iterator[Step]:
    for version in versions("ListOffsets"):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1000, 10**12):
            one = request("ListOffsets", "topics.partitions", partition_index=0, timestamp=timestamp)
            topics = [request("ListOffsets", "topics", name=TOPIC, partitions=[one])]
            yield Step(
                f"of the time {timestamp}",
                "ListOffsets",
                version,
                lambda _, topics=topics: request("ListOffsets", replica_id=-1, topics=topics),
            )
        one = request("ListOffsets", "topics.partitions", partition_index=9, timestamp=-1)
        topics = [request("ListOffsets", "topics", name=TOPIC, partitions=[one])]
        yield Step(
            "of no partition",
            "ListOffsets",
            version,
            lambda _, topics=topics: request("ListOffsets", replica_id=-1, topics=topics),
        )
    for version in versions("OffsetForLeaderEpoch"):
        for epoch, current in ((0, -1), (5, -1), (-1, -1), (0, 7)):
            one = request(
                "OffsetForLeaderEpoch",
                "topics.partitions",
                partition=0,
                leader_epoch=epoch,
                current_leader_epoch=current,
            )
            topics = [request("OffsetForLeaderEpoch", "topics", topic=TOPIC, partitions=[one])]
            yield Step(
                f"of the epoch {epoch}",
                "OffsetForLeaderEpoch",
                version,
                lambda _, topics=topics: request("OffsetForLeaderEpoch", replica_id=-1, topics=topics),
            )


def _ends() -> Iterator[Step]:
    for version in versions("FindCoordinator"):
        group = request("FindCoordinator", key="g", key_type=0, coordinator_keys=["g"])
        yield Step("of a group", "FindCoordinator", version, lambda _, group=group: group)
    for version in versions("DeleteRecords"):
        for offset in (1, 10_000_000, -1):
            one = request("DeleteRecords", "topics.partitions", partition_index=0, offset=offset)
            topics = [request("DeleteRecords", "topics", name=TOPIC, partitions=[one])]
            yield Step(
                f"before {offset}",
                "DeleteRecords",
                version,
                lambda _, topics=topics: request("DeleteRecords", topics=topics, timeout_ms=10_000),
            )
    yield Step("below the start", "Fetch", 12, lambda _: fetch(TOPIC, {0: 0}))
    for version in versions("DeleteTopics"):
        if version < 6:
            absent = request("DeleteTopics", topic_names=[ABSENT], timeout_ms=10_000)
            yield Step("an absent one", "DeleteTopics", version, lambda _, absent=absent: absent)
    yield Step(
        "by id",
        "DeleteTopics",
        6,
        lambda known: request(
            "DeleteTopics",
            timeout_ms=10_000,
            topics=[request("DeleteTopics", "topics", name=None, topic_id=known.topic_ids[TOPIC])],
        ),
    )
