"""Producer ids: each is assigned once, by any shard, across any restarts."""

from __future__ import annotations

import asyncio
import fcntl
import time
from pathlib import Path

import pytest

from replication.cluster.producer_ids import BLOCK_IDS
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import Gateway, in_process, over_http2


async def new_id(gateway: Gateway) -> int:
    answer = await gateway.send("POST", "/v1/producers")
    assert answer.status == 201
    assert answer.json["producer_epoch"] == 0
    return answer.json["producer_id"]


async def test_every_id_is_another_one_also_across_blocks(gateway):
    ids = []
    for _ in range(3):  # in total more than a block has
        ids += await asyncio.gather(*(new_id(gateway) for _ in range(BLOCK_IDS // 3 + 20)))
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 0


def until_free(lock: Path) -> None:
    """Wait: a killed supervisor's shards hold the data directory until they notice."""
    deadline = time.monotonic() + 60
    with lock.open("rb") as file:
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


@pytest.mark.e2e
async def test_ids_survive_kills_and_stops_and_other_numbers_of_shards(tmp_path):
    """Two shards are killed, one process is stopped, and then the in-process node runs."""
    ids = []
    for ending, shards in (("kill", {"shards": 2}), ("stop", {})):
        with running_process(tmp_path, **shards) as process:
            async with over_http2(process.port) as gateway:
                ids += [await new_id(gateway) for _ in range(8)]
            getattr(process, ending)()
        until_free(tmp_path / "data" / "lock")
    async with in_process(tmp_path) as gateway:
        ids += [await new_id(gateway) for _ in range(8)]
        assert await gateway.node.server.produce.producer_ids.is_allocated(max(ids))
        assert not await gateway.node.server.produce.producer_ids.is_allocated(max(ids) + BLOCK_IDS)
    assert len(set(ids)) == len(ids)
