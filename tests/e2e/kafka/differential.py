"""`make kafka-differential`: the same requests to Apache Kafka and to a node, their answers compared field by field.

Maven fetches Kafka's jars, as for `make bench-peers`; Java 17 runs them. `EXPLAINED` has every difference that is
there on purpose, with its reason. Another one fails the run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gateway.kafka.codec.messages import Message
from loadtests.peers.downloads import default_cache, find_programs
from loadtests.peers.kafka_server import kafka
from tests.e2e.kafka.differential_requests import Known, Step, steps
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process
from tests.gateway.kafka.served import Connection

ANSWER_S = 60.0
TRIES, LOADING = 30, (14, 15)  # while Kafka makes its own topics
CLOSED = "the connection was closed"

BY_NATURE = {  # numbers and names that each server chooses
    *("throttle_time_ms", "host", "port", "node_id", "broker_id", "leader_id", "replica_nodes", "isr_nodes", "rack"),
    *("controller_id", "cluster_id", "topic_id", "session_id", "producer_id", "error_message"),
    *("batch_index_error_message", "topic_authorized_operations", "cluster_authorized_operations"),
    *("supported_features", "finalized_features", "finalized_features_epoch", "zk_migration_ready"),
}


class Explained(NamedTuple):
    """A difference on purpose: of an API, of steps whose name begins so, of a field."""

    api: str
    step: str
    field: str
    why: str


EXPLAINED = [
    Explained("CreateTopics", "two topics", "*", "each server shows the settings that it has, with its defaults"),
    Explained("Produce", "append time", "*", "only the server sets append times; Kafka takes the bit of a client"),
    Explained("Produce", "a reserved attribute", "*", "attributes without a meaning are refused; Kafka stores them"),
    Explained("Produce", "a late first batch", "*", "Kafka 4.3 takes it, and loses the first one (KAFKA-15591)"),
    Explained(
        "Produce", "a repeat", "log_append_time_ms", "without append times there is none; Kafka names the latest"
    ),
    Explained("Produce", "an old magic", "log_start_offset", "the start of the log is there with refused records"),
    Explained("Produce", "no batch", "log_start_offset", "the start of the log is there with refused records"),
    Explained("Metadata", "by id", "*", "Kafka 4.3 fails where no id of a request is known"),
    Explained("ListOffsets", "of the time -6", "*", "a node has a store by default; Kafka's is off"),
    Explained("Fetch", "no ", "aborted_transactions#", "null and an empty list are both none to clients"),
]


class Difference(NamedTuple):
    step: Step
    field: str
    kafka: Any
    ours: Any


def fields_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the fields of an answer by their paths. Batches are bytes, without the epoch of their leader."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name not in BY_NATURE:
                yield from fields_of(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        yield f"{path}#", len(value)
        for index, one in enumerate(value):
            yield from fields_of(one, f"{path}[{index}]")
    elif isinstance(value, memoryview):
        yield path, bytes(value)
    else:
        yield path, value


def api_versions_of(answer: Message) -> Message:
    """Returns an answer of ApiVersions without what it lists: the two servers have different APIs."""
    answer.api_keys = []
    return answer


async def ask(client: Connection, step: Step, known: Known) -> Message | str:
    """Returns the answer, or that there is none."""
    for _ in range(TRIES):
        client.send(step.api, step.version, step.build(known))
        try:
            answer = await asyncio.wait_for(client.receive(), ANSWER_S)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return CLOSED
        if getattr(answer, "error_code", 0) not in LOADING:
            break
        await asyncio.sleep(1)
    if step.learn is not None:
        step.learn(known, answer)
    return api_versions_of(answer) if step.api == "ApiVersions" else answer


async def connect(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    return Connection(*await asyncio.open_connection(host, int(port)))


async def compare(kafka_address: str, own_address: str) -> tuple[int, list[Difference]]:
    """Returns how many requests were sent to both, and how their answers differ."""
    clients = [await connect(kafka_address), await connect(own_address)]
    known = [Known({}, {}), Known({}, {})]
    differences: list[Difference] = []
    count = 0
    for step in steps():
        count += 1
        answers = [await ask(client, step, of) for client, of in zip(clients, known, strict=True)]
        for index, (answer, address) in enumerate(zip(answers, (kafka_address, own_address), strict=True)):
            if answer == CLOSED:
                clients[index].close()
                clients[index] = await connect(address)
        theirs, ours = (dict(fields_of(answer)) for answer in answers)
        for field in [*theirs, *(name for name in ours if name not in theirs)]:
            if theirs.get(field) != ours.get(field):
                differences.append(Difference(step, field, theirs.get(field), ours.get(field)))
    return count, differences


def explanation(difference: Difference) -> str | None:
    """Returns why a difference is there; None for one that is not on purpose."""
    step, field = difference.step, difference.field.split("[")[-1].split("].")[-1]
    for one in EXPLAINED:
        if one.api == step.api and step.name.startswith(one.step) and one.field in (field, "*"):
            return one.why
    return None


def main() -> int:
    """Compares both servers. Returns 1 for a difference that is not explained."""
    programs = find_programs(default_cache(), ["kafka"])
    if programs.kafka_jars is None:
        print("\n".join(programs.missing))
        return 3
    with tempfile.TemporaryDirectory() as made:
        directory, address = Path(made), free_address()
        with (
            kafka(programs.kafka_jars, directory / "kafka") as peer,
            running_process(directory / "node", kafka_listen=address),
        ):
            count, differences = asyncio.run(compare(peer.address, address))
    reasons: Counter[str] = Counter()
    unexplained = 0
    for one in differences:
        why = explanation(one)
        if why is None:
            unexplained += 1
            step = f"{one.step.api} {one.step.version}, {one.step.name}"
            print(f"{step}: {one.field} is {str(one.kafka)[:90]!r} of Kafka, {str(one.ours)[:90]!r} here")
        else:
            reasons[why] += 1
    print(f"\n{count} requests, {len(differences)} fields differ, {unexplained} of them without an explanation")
    for why, number in reasons.most_common():
        print(f"{number:5}  {why}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
