"""The bound of what waits for the store: produce goes on up to it, is refused clearly, and resumes by itself."""

from __future__ import annotations

import asyncio

from engine.tiering.store.file_store import FileStore
from engine.tiering.store.store import StoreUnavailable
from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import Topic, in_process, over_http2

TEXT, BODY = "text/plain", b"v" * 1000
SPOOL_BYTES = 5000


async def fill(topic: Topic, to: int) -> int:
    """Produce and roll until the node refuses; return how many records it took. A thread saves a segment before it
    is counted, so each is awaited.
    """
    for taken in range(100):
        counted = await topic.gateway.metric("penstock_tier_spool_bytes")
        answer = await topic.post(BODY, TEXT, to=to)
        if answer.status != 200:
            assert_problem(answer, "spool_full", retryable=True, no_side_effects=True)
            assert int(answer.headers["Retry-After"]) > 0
            return taken
        await topic.roll()
        while await topic.gateway.metric("penstock_tier_spool_bytes") == counted:
            await asyncio.sleep(0.01)
    raise AssertionError("the spool is never full")


async def test_produce_goes_on_until_the_spool_is_full_and_after_the_store_is_back(tmp_path, monkeypatch):
    def away(*_args: object, **_options: object) -> None:
        raise StoreUnavailable("planted")

    async with in_process(tmp_path, tier_check_ms=10, tier_spool_bytes_max=SPOOL_BYTES) as gateway:
        topic = await gateway.create("t", 2, compression="none")
        compacted = await gateway.create("c", cleanup_policy="compact")
        with monkeypatch.context() as planted:
            planted.setattr(FileStore, "put", away)
            planted.setattr(FileStore, "put_file", away)
            assert 4 <= await fill(topic, 0) <= 7, "segments of 1,061 bytes or more"
            for acks in ("0", "1", "all"):
                assert_problem(await topic.post(BODY, TEXT, to=1, acks=acks), "spool_full")
            assert_problem(await topic.post_lines("1", "2", to=1), "spool_full")
            assert await gateway.metric("penstock_tier_spool_refused_appends_total") == 5
            assert SPOOL_BYTES <= await gateway.metric("penstock_tier_spool_bytes") < SPOOL_BYTES + 3300
            assert await topic.values(), "reads go on"
            assert (await compacted.post_records({"key": "k", "value": 1})).status == 200, "it is never shipped"
        while await gateway.metric("penstock_tier_spool_bytes"):
            await asyncio.sleep(0.02)
        assert (await topic.post(BODY, TEXT, to=0)).status == 200
        assert (await topic.post(BODY, TEXT, to=1)).status == 200


async def test_each_shard_refuses_at_its_share(tmp_path):
    """The store is a file in place of its directory, so that it fails until the directory is back."""
    store, aside = tmp_path / "store", tmp_path / "aside"
    store.mkdir()
    options = {"store": store.as_uri(), "shards": 2, "tier_check_ms": 10, "tier_spool_bytes_max": 2 * SPOOL_BYTES}
    with running_process(tmp_path, **options) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", 2, compression="none")
            store.rename(aside)
            store.touch()
            for partition in (0, 1):
                assert 4 <= await fill(topic, partition) <= 7
            store.unlink()
            aside.rename(store)
            while await gateway.metric("penstock_tier_spool_bytes"):
                await asyncio.sleep(0.02)
            assert (await topic.post(BODY, TEXT, to=0)).status == 200
        assert process.stop() == 0
