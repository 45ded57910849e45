"""The worker of a recipe: `python -m tests.exactly_once.worker URL RECIPE MEMBER`. Ends when it is killed.

Each number gives one output by key, and one to a partition by hand. Values differ in each run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from penstock import Output, Record
from penstock.sync import Client

GROUP, INPUT, BY_KEY, BY_HAND = "recipe", "numbers", "by-key", "by-hand"
PARTITIONS = 2  # of each topic of outputs
DELIVERY = {"max_records": 20, "fetch_wait_ms": 200}


def outputs_of(record: Record) -> Iterator[Output]:
    number = record.json()
    value = {"n": number, "run": os.getpid()}
    yield Output(BY_KEY, value, key=f"key-{number % 7}")
    yield Output(BY_HAND, value, partition=number % PARTITIONS)


def exactly_once(client: Client, member: str) -> None:
    with client.processor(
        group=GROUP,
        topics=INPUT,
        process=outputs_of,
        outputs={BY_KEY: PARTITIONS, BY_HAND: PARTITIONS},
        member_id=member,
        batch_bytes=300,  # several requests for a delivery
        **DELIVERY,  # type: ignore[arg-type]
    ) as processor:
        processor.run()


def at_least_once(client: Client, member: str) -> None:
    """A delivery is committed by the poll after its outputs."""
    consumer = client.consumer(group=GROUP, topics=INPUT, member_id=member, **DELIVERY)  # type: ignore[arg-type]
    with consumer, client.producer() as producer:
        while True:
            send(producer, consumer.poll(1000))


def at_most_once(client: Client, member: str) -> None:
    """A delivery is committed before its outputs."""
    consumer = client.consumer(
        group=GROUP,
        topics=INPUT,
        member_id=member,
        auto_commit=False,
        **DELIVERY,  # type: ignore[arg-type]
    )
    with consumer, client.producer() as producer:
        while True:
            records = consumer.poll(1000)
            if consumer.commit():
                send(producer, records)


def send(producer: object, records: list[Record]) -> None:
    for record in records:
        for output in outputs_of(record):
            producer.send(output.topic, output.value, key=output.key, partition=output.partition)  # type: ignore[attr-defined]
    producer.flush()  # type: ignore[attr-defined]


if __name__ == "__main__":
    with Client(sys.argv[1].split(",")) as connected:
        {"exactly_once": exactly_once, "at_least_once": at_least_once, "at_most_once": at_most_once}[sys.argv[2]](
            connected, sys.argv[3]
        )
