"""One of READS for all partitions of a topic: each process that owns some is asked once, whatever it owns.

Both ends. It looks for no leader and does not try again: a partition without a row is left to
gateway/routing/routing.py, which asks for that one alone, as long as it takes. Thousands of rows are made in slices of
a turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from engine.runtime.slices import SLICE, in_slices
from gateway.fetch.partition_reads import READS
from gateway.links.link import Handler
from gateway.node import Node
from gateway.routing.peers import Owner
from replication.errors import NoLeader

CALL_S = 30.0  # what the owner may take beyond the wait that was asked for
TOGETHER = ("roll",)  # waits for the disk, which serves many in the time of one

Asked = Sequence[tuple[int, int]]  # partitions, each with the least leader epoch


async def rows_of_owners(node: Node, name: str, record: TopicRecord, timeout_s: float = CALL_S) -> dict[int, Any]:
    """By partition, as far as its owner is known and answers for it; None if the owner is silent for so long."""
    by_owner: dict[Owner, list[int]] = {}
    for number in range(record.partitions):
        try:
            by_owner.setdefault(node.peers.owner(record.topic_id, number), []).append(number)
        except NoLeader:
            continue
    asking = [_rows_of(node, name, record, owner, numbers, timeout_s) for owner, numbers in by_owner.items()]
    return {number: row for rows in await asyncio.gather(*asking) for number, row in rows}


def handler_of_rows(node: Node) -> Handler:
    """What this process does when another one asks."""

    async def rows(arguments: Any, _: bytes) -> tuple[list[tuple[int, Any]], bytes]:
        name, topic_id, topic_name, asked, *_ = arguments
        return await _own_rows(node, name, topic_id, topic_name, asked), b""

    return rows


async def _rows_of(
    node: Node, name: str, record: TopicRecord, owner: Owner, numbers: list[int], timeout_s: float
) -> Sequence[tuple[int, Any]]:
    if node.peers.is_here(owner):
        return await _own_rows(node, name, record.topic_id, record.name, [(number, 0) for number in numbers])
    asked = [(number, node.peers.known_epoch(record.topic_id, number)) for number in numbers]
    arguments = (name, record.topic_id, record.name, asked)
    try:
        async with asyncio.timeout(timeout_s):
            rows, _ = await node.peers.link(owner).call("rows", arguments, timeout_s=CALL_S)
    except TimeoutError:
        return [(number, None) for number in numbers] if timeout_s < CALL_S else []
    except EngineError:  # it restarts, or is of a version that does not know the call
        return []
    return rows  # type: ignore[no-any-return]


async def _own_rows(node: Node, name: str, topic_id: str, topic_name: str, asked: Asked) -> list[tuple[int, Any]]:
    async def row(number: int, epoch: int) -> Any:
        try:
            found, _ = await READS[name](node, node.answered_partition(topic_name, topic_id, number, epoch), None)
        except EngineError:
            return None
        return found

    rows: list[tuple[int, Any]] = []
    if name in TOGETHER:
        for first in range(0, len(asked), SLICE):
            part = asked[first : first + SLICE]
            found = await asyncio.gather(*(row(number, epoch) for number, epoch in part))
            rows += [(number, one) for (number, _), one in zip(part, found, strict=True)]
    else:
        async for number, epoch in in_slices(asked):
            rows.append((number, await row(number, epoch)))
    return [(number, one) for number, one in rows if one is not None]
