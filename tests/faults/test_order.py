"""Sequenced requests of one HTTP/2 connection, many in flight: stored in order, in one process and over shards.

A batch that arrives too early is rejected as a gap and retried, as docs/produce.md says.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from tests.faults.reference import body_of
from tests.faults.site import running_site
from tests.scenarios.http2_client import Http2Client

pytestmark = pytest.mark.e2e

REQUESTS = 61
AT_ONCE = 15  # the window, with one to spare
NDJSON = {"content-type": "application/x-ndjson"}


class Sequenced:
    """A producer over one HTTP/2 connection that retries batches that arrived too early."""

    def __init__(self, client: Http2Client, producer_id: int, partition: int) -> None:
        self._client = client
        self._headers = {**NDJSON, "producer-id": str(producer_id), "producer-epoch": "0"}
        self._path = f"/v1/topics/t/partitions/{partition}/records"

    async def store(self, sequence: int, value: str) -> None:
        headers = {**self._headers, "producer-seq": str(sequence)}
        while True:
            status, _, body = await self._client.request("POST", self._path, headers, body_of([value]))
            if status == 200:
                return
            assert orjson.loads(body)["code"] == "sequence_gap"


async def test_sequences_keep_their_order_under_multiplexing(tmp_path: Path) -> None:
    """Large and small bodies alternate."""
    async with running_site(tmp_path, shards=2) as site:
        await site.create("t", 2)  # one partition belongs to the other shard
        client = await Http2Client.open("127.0.0.1", site.proxy.upstream_port)
        for partition in range(2):
            _, _, body = await client.request("POST", "/v1/producers", {}, b"")
            producer = Sequenced(client, orjson.loads(body)["producer_id"], partition)
            sent = [f"{n} {'x' * (600_000 if n % 20 == 0 else 10)}" for n in range(REQUESTS)]
            await producer.store(0, sent[0])
            for first in range(1, REQUESTS, AT_ONCE):
                batch = range(first, min(first + AT_ONCE, REQUESTS))
                await asyncio.gather(*(producer.store(n, sent[n]) for n in batch))
            assert (await site.read("t", 2))[str(partition)] == sent
        await client.close()
