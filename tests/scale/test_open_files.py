"""Many segments and partitions under a low limit of open files: everything works, with few files open.

500 of them by default; `make scale-long` has 10,000.
"""

import asyncio
import json
import subprocess
import sys
from functools import partial

import pytest

from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.e2e.node_process import ROOT, limit_files
from tests.engine.conftest import HandClock, running_node
from tests.scale.count import SCALE

LIMIT = 128 if SCALE < 1024 else 1024  # below the number of segments in either case
FEW = 16
THREADS = 2 + 1  # the executor's and the writer


@pytest.mark.long
@pytest.mark.e2e
def test_segments_are_made_read_shipped_scrubbed_and_deleted_under_a_low_limit(tmp_path):
    """The limit is hard: a node that kept segments open would fail at the 112th."""

    command = [sys.executable, "-m", "tests.scale.many_segments", str(tmp_path / "data"), str(SCALE)]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=partial(limit_files, LIMIT)
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    counts = {name: found[name] for name in ("first_life", "second_life", "from_store", "tiered")}
    assert counts == dict.fromkeys(counts, SCALE)
    assert found["is_scrubbed_whole"]
    assert found["offline"] == []
    assert found["most"] < LIMIT
    assert found["left"] <= found["at_rest"] + 4, "files of a deleted topic stay open"


async def test_partitions_written_in_one_group_share_a_few_files(tmp_path):
    """Also between the writes and the syncs of the group, when each partition has unsynced bytes."""
    clock = HandClock()
    pool = PooledDisk(RealDisk(), FEW)
    most = 0

    def count(_: str) -> None:
        nonlocal most
        most = max(most, pool.open_files)

    disk = FaultyDisk(pool, [Rule("fdatasync", times=None, act=count)])
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", SCALE, 1, {})
        for text in (b"a", b"b"):
            records = batch.encode_values([text], 5)
            produced = [node.leaders["t", one].produce(bytearray(records), Acks.ALL, 600_000) for one in range(SCALE)]
            await asyncio.gather(*produced)
        await node.shard.roll_topic("t")
        assert most <= FEW + THREADS
        assert not [one for one in node.shard.partitions() if one.offline is not None]
        for number in (0, 1, SCALE // 2, SCALE - 1):
            partition = node.shard.partition("t", number)
            found = (await node.shard.reader.read(partition, 0, 1000)).data
            assert [record.value for record in batch.decode(found)] == [b"a", b"b"]
            assert (partition.durable_end, partition.log.sealed_end) == (2, 2)
    assert pool.open_files == 0
