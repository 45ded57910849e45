"""Judges the final state of a run: each in-sync log from its disk, and each leader's log over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

from engine.format import batch as record_batch
from engine.format.batch_header import HEADER_BYTES, read_header
from tests.chaos.clients.node_client import NodeClient, now, open_session
from tests.chaos.clients.streams import Streamed
from tests.chaos.judge import Verdict, judge
from tests.chaos.machines.cluster import PARTITIONS, AnyNode, HttpCluster
from tests.checking.checkers import FinalLog
from tests.checking.history import History, Polled

MAX_BYTES = 4_000_000


class Unreadable(Exception):
    """The log cannot be read although the cluster has recovered."""


def read_files(partition_directory: Path, name: str, node_id: int, high_watermark: int) -> FinalLog:
    """Return the batches below the high watermark as they are on disk, in the order of their segments."""
    log = FinalLog(name, node_id, 0, high_watermark)
    for path in sorted(partition_directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while len(data) - at >= HEADER_BYTES:
            header = read_header(data[at : at + HEADER_BYTES])
            batch = data[at : at + header.size_bytes]
            at += header.size_bytes
            if header.next_offset <= high_watermark and len(batch) == header.size_bytes:
                log.batches.append(batch)
                log.records |= {
                    record.offset: orjson.loads(bytes(record.value or b"")) for record in record_batch.decode(batch)
                }
    return log


async def final_logs(cluster: HttpCluster[AnyNode], topic: str) -> list[FinalLog]:
    """Return the log of every in-sync replica, the leader's first."""
    logs = []
    for row in await cluster.wait_until_healthy(topic, is_quiet=True):
        number, leader = row["partition"], row["leader"]
        for node_id in sorted(row["in_sync"], key=lambda node_id: node_id != leader):
            (directory,) = (cluster.nodes[node_id].data / "topics" / topic).glob(f"*/{number}")
            logs.append(read_files(directory, f"{topic}/{number}", node_id, row["high_watermark"]))
    return logs


async def final_polls(client: NodeClient, topic: str, partition: int) -> list[Polled]:
    """Read every partition from its beginning, as a new consumer does."""
    polls, offset = [], 0
    path = f"/v1/topics/{topic}/partitions/{partition}/records?max_bytes={MAX_BYTES}&offset="
    while True:
        for _ in range(30):
            answer = await client.request("GET", f"{path}{offset}")
            if answer.status == 200:
                break
            client.next_node()
        else:
            raise Unreadable(f"{topic}/{partition} at {offset}: {answer.status} {answer.code}")
        answered = answer.json
        records = tuple((record["offset"], record["value"]) for record in answered["records"])
        if not records:
            return polls
        positions = (answered["log_start"], answered["high_watermark"], now())
        polls.append(
            Polled("final reader", f"{topic}/{partition}", answer.node, offset, records, *positions, is_full_read=True)
        )
        offset = answered["next_offset"]


async def judge_what_is_left(
    verdict: Verdict,
    cluster: HttpCluster[AnyNode],
    topic: str,
    history: History,
    began: Sequence[float],
    streams: Sequence[Streamed] = (),
) -> None:
    """Judge the final state. `began`: start time of each injection. Raises NotHealthy, Unreadable."""
    logs = await final_logs(cluster, topic)
    async with open_session() as session:
        for partition in range(PARTITIONS):
            history.polled += await final_polls(NodeClient(session, cluster.urls, 0), topic, partition)
    judge(verdict, history, logs, began, streams)
