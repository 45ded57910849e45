"""Brings work to the shard that owns a partition: here when it is this one, over a link otherwise.

Both ends of the links: what handlers ask for, and what is done for the other shards. Nodes of two versions talk to each
other during an upgrade: arguments grow at their end (`*_` here), and who does not know one may do without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from engine.directory.topics import TopicRecord
from engine.errors import EngineError, UnknownPartition
from engine.producers.append_validator import Appended, terms_of
from engine.producers.partition_keys import FoundKey
from engine.runtime.slices import in_slices
from engine.shard.served_topics import Topic
from gateway.admin.cluster_rows import offline_row, topology_row
from gateway.admin.topic_rows import CALL_S, handler_of_rows, rows_of_owners
from gateway.fetch.multi_fetch import handlers_of_many
from gateway.fetch.partition_reads import READS
from gateway.links.link import Handler, LinkDown, LinkLost
from gateway.metrics.metrics import text_of
from gateway.metrics.process_metrics import text_of_process
from gateway.node import Node
from gateway.produce.idempotency import find_here
from gateway.routing.leader_failover import is_doubt, will_pass
from gateway.routing.retry_budget import Patience
from replication.cluster.keys import partition_name
from replication.cluster.view import ClusterView
from replication.replica.acks import ACKS_BY_WORD, Acks

METRICS_S = 2.0
DESCRIBE_S = 0.5  # for a leader's answer, beside the patience to find one
CHANGES = ("set_fence",)  # the others can be done again, and nobody would know


async def at_owner(
    node: Node,
    name: str,
    topic_name: str,
    number: int,
    arguments: Any,
    *,
    wait_ms: int = 0,
    patience_ms: int | None = None,
) -> tuple[Any, bytes | bytearray]:
    """Do one of READS for a partition, wherever it is. Raises UnknownTopic, UnknownPartition, what the read raises.

    In a cluster it looks for the leader for a while, and goes on at the next one when leadership moves.
    """
    if node.peers.nodes is None:
        return await _at_owner_now(node, name, topic_name, number, arguments, wait_ms)
    patience = Patience(node, wait_ms, patience_ms)
    while True:
        try:
            return await _at_owner_now(node, name, topic_name, number, arguments, wait_ms)
        except EngineError as error:
            if not may_ask_again(name, error):
                raise
            await patience.pause(error)
        if wait_ms:
            wait_ms = patience.wait_left_ms
            if isinstance(arguments, dict):  # a fetch's; those of set_fence have no time in them
                arguments = {**arguments, "wait_ms": wait_ms}


def may_ask_again(name: str, error: EngineError) -> bool:
    """Whether it failed because leadership moved, and may be done once more."""
    return will_pass(error) or (is_doubt(error) and name not in CHANGES)


async def fetch_nearby(
    node: Node, topic_name: str, number: int, query: dict[str, Any], rack: str
) -> tuple[dict[str, str], bytes | bytearray] | None:
    """A fetch from an offset at a follower in sync that stands in the reader's rack.

    None when the leader is to be asked: there is no such follower, or it does not know yet that so much is committed.
    """
    topic_id = topic_id_of(node, topic_name, number)
    owner = None if query["offset"] is None else node.peers.nearby(topic_id, number, rack)
    if owner is None:
        return None
    query = {**query, "from_follower": True}
    try:
        if node.peers.is_here(owner):
            partition = node.answered_partition(topic_name, topic_id, number, from_follower=True)
            return await READS["fetch"](node, partition, query)
        arguments = (topic_id, topic_name, number, node.peers.known_epoch(topic_id, number), query)
        timeout_s = query["wait_ms"] / 1000 + CALL_S
        return await node.peers.link(owner).call("fetch_nearby", arguments, timeout_s=timeout_s)
    except EngineError as error:
        if not may_ask_again("fetch", error):
            raise
        return None


async def _at_owner_now(
    node: Node, name: str, topic_name: str, number: int, arguments: Any, wait_ms: int
) -> tuple[Any, bytes | bytearray]:
    topic_id = topic_id_of(node, topic_name, number)
    if node.peers.nodes is None and node.peers.owns(topic_id, number):
        return await READS[name](node, node.shard.partition(topic_name, number), arguments)
    owner = node.peers.owner(topic_id, number)
    if node.peers.is_here(owner):
        return await READS[name](node, node.answered_partition(topic_name, topic_id, number), arguments)
    link, epoch = node.peers.link(owner), node.peers.known_epoch(topic_id, number)
    try:
        return await link.call(
            name, (topic_id, topic_name, number, epoch, arguments), timeout_s=wait_ms / 1000 + CALL_S
        )
    except LinkLost:
        if name in CHANGES:
            raise  # it may have been done
        raise LinkDown("the process that owns the partition went away") from None


def topic_id_of(node: Node, topic_name: str, number: int) -> str:
    """The topic's id, if it has such a partition, in whichever shard. Raises UnknownTopic, UnknownPartition."""
    topic = node.shard.topic(topic_name)
    if number >= topic.record.partitions:
        last = topic.record.partitions - 1
        raise UnknownPartition(f"topic {topic_name!r} has no partition {number}", hint=f"it has 0 to {last}")
    return topic.record.topic_id


async def at_owners(node: Node, name: str, topic: Topic) -> list[Any]:
    """Do one of READS for every partition of a topic; the results in the order of the partitions."""
    found = await rows_of_owners(node, name, topic.record)
    left = [number for number in range(topic.record.partitions) if number not in found]
    results = await asyncio.gather(*(at_owner(node, name, topic.record.name, number, None) for number in left))
    found.update(zip(left, (result for result, _ in results), strict=True))
    return [found[number] for number in range(topic.record.partitions)]


async def described_rows(node: Node, topic: Topic, patience_ms: int | None) -> list[dict[str, Any]]:
    """A row for each partition; of one whose leader cannot be asked within the patience, what is known without it."""
    record, nodes = topic.record, node.peers.nodes
    timeout_s = CALL_S if nodes is None else _describe_s(node, patience_ms)
    found = await rows_of_owners(node, "describe", record, timeout_s)
    if nodes is not None:
        async for number, row in in_slices(list(found.items())):
            found[number] = _in_cluster(nodes.view, record.topic_id, number, row)
    left = [number for number in range(record.partitions) if number not in found]
    rows = await asyncio.gather(*(described_row(node, record, number, patience_ms) for number in left))
    found.update(zip(left, rows, strict=True))
    return [found[number] for number in range(record.partitions)]


async def described_row(node: Node, record: TopicRecord, number: int, patience_ms: int | None) -> dict[str, Any]:
    """See `described_rows`."""
    nodes = node.peers.nodes
    if nodes is None:
        row, _ = await at_owner(node, "describe", record.name, number, None)
        return row  # type: ignore[no-any-return]
    try:
        async with asyncio.timeout(_describe_s(node, patience_ms)):  # a node that stands still does not refuse either
            row, _ = await at_owner(node, "describe", record.name, number, None, patience_ms=patience_ms)
    except TimeoutError:
        return offline_row(nodes.view, record.topic_id, number)
    except EngineError as error:
        if not may_ask_again("describe", error):
            raise
        return offline_row(nodes.view, record.topic_id, number)
    return _in_cluster(nodes.view, record.topic_id, number, row)


def _in_cluster(view: ClusterView, topic_id: str, number: int, row: dict[str, Any] | None) -> dict[str, Any]:
    return offline_row(view, topic_id, number) if row is None else {**row, **topology_row(view, topic_id, number)}


def _describe_s(node: Node, patience_ms: int | None) -> float:
    return (node.settings.leader_wait_ms if patience_ms is None else patience_ms) / 1000 + DESCRIBE_S


async def metrics_of_all(node: Node) -> dict[int | str, str]:
    """The metrics of every process of the node that answers: shards by index, the others by name."""
    links = node.peers.links()
    calls = [link.call("metrics", None, timeout_s=METRICS_S) for link in links]
    texts: dict[int | str, str] = {node.peers.index: await _metrics_text(node)}
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            (index, text), _ = outcome
            texts[index] = text
    of_siblings = [text_of_process(caller, METRICS_S) for caller in node.siblings.values()]
    for name, found in zip(node.siblings, await asyncio.gather(*of_siblings, return_exceptions=True), strict=True):
        if isinstance(found, str):
            texts[name] = found
    return texts


async def sizes_of_all(node: Node) -> dict[str, int]:
    """How many bytes each partition has on the disks of the nodes that answer: of a partition the largest copy."""
    links = node.peers.links() + ([] if node.peers.nodes is None else node.peers.nodes.links())
    calls = [link.call("sizes", None, timeout_s=METRICS_S) for link in links]
    found = own_sizes(node)
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            for name, size_bytes in outcome[0].items():
                found[name] = max(size_bytes, found.get(name, 0))
    return found


def own_sizes(node: Node) -> dict[str, int]:
    """Of what lies with this process."""
    return {
        partition_name(topic.record.topic_id, number): partition.log.size_bytes
        for topic in node.shard.topics.values()
        for number, partition in topic.partitions.items()
    }


async def _metrics_text(node: Node) -> str:
    families = node.metrics.collected()
    return (await node.in_thread(lambda: text_of(families))).decode()


def handlers_for_peers(node: Node) -> Mapping[str, Handler]:
    """What this shard does when another one calls."""

    async def append(arguments: Any, payload: bytes) -> tuple[Appended | None, bytes]:
        topic_id, topic, number, epoch, acks_word, timeout_ms, fields, *_ = arguments
        node.check_accepting()
        node.check_capacity(len(payload))
        leader = node.local_leader(node.answered_partition(topic, topic_id, number, epoch))
        acks = ACKS_BY_WORD[acks_word]
        terms = terms_of(fields)
        if acks is Acks.NONE:
            leader.append_nowait(payload, terms)
            return None, b""
        return await leader.produce(payload, acks, timeout_ms, terms), b""

    async def check_append(arguments: Any, _: bytes) -> tuple[None, bytes]:
        topic_id, topic, number, epoch, acks_word, *_ = arguments
        node.check_accepting()
        leader = node.local_leader(node.answered_partition(topic, topic_id, number, epoch))
        leader.check_append(ACKS_BY_WORD[acks_word])
        return None, b""

    async def find_key(arguments: Any, _: bytes) -> tuple[FoundKey | None, bytes]:
        topic_name, topic_id, numbers, key_hash, request_hash, *_ = arguments
        now_ms = node.clock.steady_ms()
        topic = node.shard.topics.get(topic_name)
        if node.peers.nodes is None:
            if topic is None or topic.record.topic_id != topic_id:
                return None, b""
            return find_here(topic.partitions.values(), key_hash, request_hash, now_ms), b""
        asked = [node.answered_partition(topic_name, topic_id, number) for number in numbers]
        return find_here(asked, key_hash, request_hash, now_ms), b""

    async def metrics(_: Any, __: bytes) -> tuple[tuple[int, str], bytes]:
        return (node.peers.index, await _metrics_text(node)), b""

    async def sizes(_: Any, __: bytes) -> tuple[dict[str, int], bytes]:
        return own_sizes(node), b""

    def read(name: str) -> Handler:
        async def call(arguments: Any, _: bytes) -> tuple[Any, bytes | bytearray]:
            topic_id, topic_name, number, epoch, read_arguments, *_ = arguments
            return await READS[name](node, node.answered_partition(topic_name, topic_id, number, epoch), read_arguments)

        return call

    async def nearby(arguments: Any, _: bytes) -> tuple[Any, bytes | bytearray]:
        topic_id, topic_name, number, epoch, query, *_ = arguments
        partition = node.answered_partition(topic_name, topic_id, number, epoch, from_follower=True)
        return await READS["fetch"](node, partition, query)

    appending = {"append": append, "check_append": check_append, "find_key": find_key}
    own = {**appending, "rows": handler_of_rows(node), "fetch_nearby": nearby, "metrics": metrics, "sizes": sizes}
    return {**own, **{name: read(name) for name in READS}, **handlers_of_many(node)}
