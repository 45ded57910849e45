"""`make kafka-clients`: clients of many languages against nodes, and a table of what they did.

Each client runs against one node, a node of two shards, and three nodes, where the leader of a partition is killed
in the middle. Its output is compared with what the topic has, as librdkafka reads it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.kafka.client_programs import MAKERS, Program, programs
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

PARTITIONS = 6
RECORDS, SECONDS = 4000, 6
WITHIN_S = 240
Kill = Callable[[str], None]  # kills the leader of a partition of a topic


class Place(NamedTuple):
    """Where a client runs. `kill` is called in the middle; `mend` before the next client."""

    servers: str
    replicas: int
    kill: Kill | None = None
    mend: Callable[[], None] = lambda: None


@contextmanager
def one_node(shards: int, directory: Path) -> Iterator[Place]:
    address = free_address()
    with running_process(directory, shards=shards, kafka_listen=address):
        yield Place(address, 1)


@contextmanager
def three_nodes(directory: Path) -> Iterator[Place]:
    from tests.e2e.cluster.test_cluster import running_cluster, until

    addresses = {number: free_address() for number in (1, 2, 3)}
    own = {number: {"kafka-listen": address} for number, address in addresses.items()}
    killed: list[int] = []
    with running_cluster(directory, own=own) as cluster:

        def kill(topic: str) -> None:
            leader = metadata(",".join(addresses.values())).topics[topic].partitions[0].leader
            cluster.nodes[leader].kill()
            killed.append(leader)

        def mend() -> None:
            while killed:
                node = cluster.nodes[killed.pop()]
                node.begin_start()
                node.wait_until_ready()
            until(lambda: len(metadata(",".join(addresses.values())).brokers) == len(addresses))

        yield Place(",".join(addresses.values()), 3, kill, mend)


SCENES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "one node": partial(one_node, 1),
    "two shards": partial(one_node, 2),
    "leader killed": three_nodes,
}


def metadata(servers: str) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer({"bootstrap.servers": servers}).list_topics(timeout=20)


def create(place: Place, topic: str) -> None:
    from confluent_kafka import admin

    client = admin.AdminClient({"bootstrap.servers": place.servers})
    client.create_topics([admin.NewTopic(topic, PARTITIONS, place.replicas)])[topic].result(60)


def stored(place: Place, topic: str) -> list[tuple[int, bytes, int]]:
    """Returns what a topic has: partition, key and number, in order of offsets."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": place.servers, "group.id": f"{topic}-judge", "check.crcs": True}
    )
    found: list[tuple[int, bytes, int]] = []
    ends = [consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, one), 20)[1] for one in range(6)]
    consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
    deadline = time.monotonic() + 60
    while len(found) < sum(ends) and time.monotonic() < deadline:
        for one in consumer.consume(1000, 0.5):
            if one.error() is None:
                found.append((one.partition(), one.key(), int(one.value())))
    consumer.close()
    return found


def judge(program: Program, place: Place, topic: str, said: dict[str, Any]) -> Iterator[str]:
    """Yields what is wrong."""
    records = stored(place, topic)
    times = Counter(number for _, _, number in records)
    if missing := set(range(RECORDS)) - times.keys():
        yield f"{len(missing)} records are not stored, the first is {min(missing)}"
    repeats = len(records) - len(times)
    if repeats and program.is_idempotent:
        yield f"{repeats} records are stored twice"
    if program.is_idempotent:
        last: dict[bytes, int] = {}
        for _, key, number in records:
            if number <= last.get(key, -1):
                yield f"record {number} of {key!r} is behind {last[key]}"
                break
            last[key] = number
    if said["seen"] != RECORDS:
        yield f"the group has read {said['seen']} of {RECORDS} records"
    if 0 in said["members"]:
        yield f"a member has read nothing: {said['members']}"
    wanted = len(records)
    least = 0 if place.kill else wanted  # the last commit may have met the kill
    if said["committed"] is not None and not least <= said["committed"] <= wanted:
        yield f"{said['committed']} records are committed of {wanted}"
    if said["after_half"] is not None and not 0 <= said["after_half"] - RECORDS // 2 <= repeats:
        yield f"{said['after_half']} records follow the time of the middle one"


def run(program: Program, place: Place, topic: str) -> list[str]:
    """Runs a client. Returns what is wrong."""
    if program.needs_topic:
        create(place, topic)
    command = [*program.command, place.servers, topic, str(place.replicas), str(RECORDS), str(SECONDS)]
    timer = None if place.kill is None else threading.Thread(target=kill_later, args=(place, topic))
    if timer is not None:
        timer.start()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False, cwd="/")
    except subprocess.TimeoutExpired as error:
        return [f"it did not end within {WITHIN_S} s: {str(error.stderr)[-1000:]}"]
    finally:
        if timer is not None:
            timer.join()
    if done.returncode != 0 or not done.stdout.strip():
        return [f"it ended with {done.returncode}: {done.stderr[-1500:]}"]
    return list(judge(program, place, topic, json.loads(done.stdout.splitlines()[-1])))


def kill_later(place: Place, topic: str) -> None:
    """Kills a leader once records are being sent."""
    assert place.kill is not None
    deadline = time.monotonic() + 60
    while topic not in metadata(place.servers).topics:
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)
    time.sleep(1 + SECONDS / 2)
    place.kill(topic)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default=",".join(MAKERS))
    parser.add_argument("--scenes", default=",".join(SCENES))
    options = parser.parse_args()
    scenes = options.scenes.split(",")
    clients = list(programs(options.clients.split(",")))
    table: dict[tuple[str, str], dict[str, str]] = {(one.name, one.version): {} for one in clients}
    failed = 0
    for scene in scenes:
        with tempfile.TemporaryDirectory() as made, SCENES[scene](Path(made)) as place:
            for number, program in enumerate(clients):
                place.mend()
                began = time.monotonic()
                wrong = run(program, place, f"story-{number}")
                failed += bool(wrong)
                table[program.name, program.version][scene] = "no" if wrong else "yes"
                print(f"{program.name} {program.version}, {scene}: {time.monotonic() - began:.0f} s", flush=True)
                print(*(f"  {line}" for line in wrong or ["ok"]), sep="\n", flush=True)
    print(f"| client | version | {' | '.join(scenes)} |\n|---|---|{'---|' * len(scenes)}")
    for (name, version), found in table.items():
        print(f"| {name} | {version} | {' | '.join(found[scene] for scene in scenes)} |")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
