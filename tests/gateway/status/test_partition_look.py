"""A look at all partitions: in slices, while topics come and go."""

from pathlib import Path

import pytest

from engine.errors import StorageFailed
from gateway.status.partition_look import look_at_partitions, slices_of_partitions
from tests.scenarios.gateways import in_process


async def test_partitions_come_in_slices_and_topics_may_be_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.status.partition_look.SLICE", 100)
    async with in_process(tmp_path) as gateway:
        await gateway.create("a", partitions=110)
        await gateway.create("b")
        shard, sizes = gateway.node.shard, []
        async for partitions in slices_of_partitions(shard):
            sizes.append(len(partitions))
            if len(sizes) == 1:
                assert (await gateway.send("DELETE", "/v1/topics/b")).status == 204
        assert sizes == [100, 11], "the topics are those of the begin"


async def test_what_is_wrong_has_names_and_what_is_large_is_added_up(tmp_path: Path) -> None:
    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("a", partitions=2)
        for number in (0, 1):
            await topic.post(b"x" * 1000, to=number)
        shard = gateway.node.shard
        shard.partition("a", 1).offline = StorageFailed("no disk")
        look = await look_at_partitions(shard, gateway.node.replicas, lambda _: 7.0, 60.0)
        assert look.offline == (("a", 1, "no disk"),)
        assert (look.damaged, look.diverged, look.waiting, look.led, look.tier_lag_s) == ((), (), (), 2, 0.0)
        assert look.log_bytes > 2000
        shard.partition("a", 1).offline = None
