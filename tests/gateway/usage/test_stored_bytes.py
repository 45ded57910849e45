"""Stored byte-seconds are the bytes of a real log, times the time between marks; the store's part counts too."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.usage.stored_bytes import DOWN_MS_MAX, StoredBytes, logical_bytes
from tests.gateway.usage.counted import MovedClock, Process
from tests.scenarios.gateways import Gateway, InProcess, in_process
from tests.waiting import until


class SteadyClock(MovedClock):
    def steady_ms(self) -> int:
        return self.now_ms()

    def pass_s(self, seconds: float) -> None:
        self._ms += round(seconds * 1000)


@pytest.fixture
async def gateway(tmp_path):
    async with in_process(tmp_path, tier_check_ms=50) as gateway:
        yield gateway


def counting(gateway: InProcess, directory: Path, clock: SteadyClock) -> tuple[StoredBytes, Process]:
    """Return what a start of the process makes."""
    process, node = Process(directory, clock), gateway.node
    return StoredBytes(node.shard, node.tier, lambda: {"acme"}, process.keeper, node.executor, clock), process


async def make_topic(gateway: Gateway, name: str, size: int = 10_000, **config: object) -> None:
    topic = await gateway.create(name, **config)
    for _ in range(3):
        assert (await topic.post(b"x" * (size // 3))).status == 200


def size_of(gateway: InProcess, name: str) -> int:
    return sum(part.log.size_bytes for part in gateway.node.shard.topic(name).partitions.values())


async def stored(process: Process) -> int:
    return (await process.total("acme")).stored_byte_seconds


async def test_bytes_count_from_mark_to_mark_and_over_a_restart(tmp_path, gateway):
    clock = SteadyClock()
    await make_topic(gateway, "acme.a")
    await make_topic(gateway, "acme.b")
    await make_topic(gateway, "other.a")
    size = size_of(gateway, "acme.a") + size_of(gateway, "acme.b")
    bytes_of, process = counting(gateway, tmp_path, clock)
    await bytes_of.mark()
    assert await stored(process) == 0, "nothing is known of the time before"
    for seconds, total in ((60, 60), (0.5, 60.5), (0.5, 61)):
        clock.pass_s(seconds)
        await bytes_of.mark()
        assert await stored(process) == int(size * total)
    clock.pass_s(100_000)  # it is down
    bytes_of, process = counting(gateway, tmp_path, clock)
    await bytes_of.mark()
    await bytes_of.mark()
    assert await stored(process) == size * 100_061
    clock.pass_s(-50_000)
    bytes_of, process = counting(gateway, tmp_path, clock)
    await bytes_of.mark()
    assert await stored(process) == size * 100_061, "a clock that was set back counts nothing"
    clock.pass_s(50 * 365 * 86400)
    bytes_of, process = counting(gateway, tmp_path, clock)
    await bytes_of.mark()
    assert await stored(process) == size * (100_061 + DOWN_MS_MAX // 1000), "the mark was of a clock that was not set"


async def test_a_mark_that_is_not_understood_is_set_aside(tmp_path, gateway):
    clock = SteadyClock()
    await make_topic(gateway, "acme.a")
    for text in ("", "{", '{"format": 9, "mark_ms": 1, "epochs": {}}'):
        bytes_of, process = counting(gateway, tmp_path, clock)
        process.directory.mkdir(exist_ok=True)
        (process.directory / "marks.0").write_text(text)
        await bytes_of.mark()
        clock.pass_s(1)
        assert (process.directory / f"marks.0.unreadable-{clock.now_ms() - 1000}").read_text() == text
    assert await stored(process) == 0


async def test_a_node_without_tenants_has_no_files(tmp_path, gateway):
    await make_topic(gateway, "acme.a")
    node = gateway.node
    bytes_of = StoredBytes(
        node.shard, node.tier, frozenset, Process(tmp_path, SteadyClock()).keeper, node.executor, SteadyClock()
    )
    await bytes_of.mark()
    assert not (tmp_path / "usage").exists()
    assert not (tmp_path / "data" / "usage").exists()


async def test_what_only_the_store_has_counts(gateway):
    await make_topic(gateway, "acme.a", 300_000, local_retention_bytes=0)
    partition = gateway.node.shard.topic("acme.a").partitions[0]
    whole = await logical_bytes(partition, gateway.node.tier)
    assert whole == partition.log.size_bytes > 290_000
    assert (await gateway.send("POST", "/v1/topics/acme.a/roll")).status == 200
    await until(lambda: gateway.node.tier.tiered_end(partition) == 3)
    await until(lambda: partition.log.size_bytes == 0)
    assert await logical_bytes(partition, gateway.node.tier) == whole
