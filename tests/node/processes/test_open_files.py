"""A node without free file descriptors: requests get retryable errors; afterwards the node recovers by itself."""

import asyncio
import errno

import pytest

from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from gateway.settings import NodeSettings
from node.processes.process_parts import make_scrubber
from node.processes.server import local_partitions_of
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import in_process

NONE_FREE = [Rule(operation, times=None, error=errno.EMFILE) for operation in ("open", "fsync_dir", "listdir")]


@pytest.fixture
def disk(monkeypatch) -> FaultyDisk:
    disk = FaultyDisk(RealDisk())
    monkeypatch.setattr("node.processes.server.RealDisk", lambda: disk)
    return disk


@pytest.fixture
async def gateway(tmp_path, disk):
    async with in_process(tmp_path, tier_check_ms=50, scrub_bytes_per_second=0) as gateway:
        yield gateway


def is_refused(answer) -> bool:
    assert_problem(answer, "too_many_open_files", no_side_effects=True, retryable=True)
    return answer.status == 503 and bool(answer.headers["Retry-After"])


async def until_tiered(gateway, end: int) -> None:
    partition = gateway.node.shard.partition("t", 0)
    async with asyncio.timeout(60):
        while (await gateway.node.tier.statistics(partition)).tiered_end < end:
            await asyncio.sleep(0.02)


async def scrub(node) -> None:
    settings = NodeSettings(scrub_bytes_per_second=1 << 30)
    scrubber = make_scrubber(settings, node.shard.disk, lambda: local_partitions_of(node.shard), lambda *_: None)
    await scrubber.scrub_all()
    await scrubber.stop()


async def test_requests_are_refused_until_files_are_free_and_nothing_is_lost(gateway, disk):
    node, topic = gateway.node, await gateway.create("t")
    await topic.post_lines("1")
    await topic.roll()
    await until_tiered(gateway, 1)
    await topic.post_lines("2")
    disk.rules = NONE_FREE
    assert is_refused(await topic.fetch(offset=0)), "and the pool has closed what it could"
    assert is_refused(await topic.post_lines("3"))
    assert is_refused(await topic.roll())
    assert is_refused(await gateway.send("PUT", "/v1/topics/other"))
    await scrub(node)
    assert node.shard.quarantine.damaged_found == 0
    disk.rules = []
    await topic.post_lines("3")
    await topic.roll()
    await until_tiered(gateway, 3)
    await scrub(node)
    assert node.shard.quarantine.scrubbed_bytes > 0
    assert (await gateway.send("PUT", "/v1/topics/other")).status == 201
    found = [(await topic.fetch(offset=offset, max_records=1)).json["records"] for offset in range(3)]
    assert [record["value"] for records in found for record in records] == [1, 2, 3]
    assert node.shard.partition("t", 0).offline is None
