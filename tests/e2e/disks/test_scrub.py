"""A flipped bit on the disk of a running node is found, reported, not served, and repaired once the store has a good
copy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.e2e.node_process import running_process

TIMEOUT_S = 60.0


def flip(path: Path, at: int) -> None:
    """Change it in place: a file that is written again is empty for a moment, which the running node may see."""
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


async def until(answer, is_so) -> object:
    """Poll until the condition holds; it takes a round of the scrubber or of the shipper."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_so(found := await answer()):
            await asyncio.sleep(0.05)
        return found


async def test_damage_is_quarantined_then_repaired_from_the_store(tmp_path):
    with running_process(tmp_path, scrub_interval_ms=100, tier_check_ms=50, shards=2) as node:
        async with aiohttp.ClientSession(node.url) as session:

            async def fetched() -> tuple[int, dict]:
                async with session.get("/v1/topics/t/partitions/0/records?offset=0") as answer:
                    return answer.status, await answer.json()

            async def tiered() -> int:
                async with session.get("/v1/topics/t/tier") as answer:
                    status = await answer.json()  # an error document while the worker is not running yet
                    return status["partitions"][0]["tiered_end"] if answer.status == 200 else None

            async def metrics() -> list[str]:
                async with session.get("/metrics") as answer:
                    return (await answer.text()).splitlines()

            async def repaired() -> bool:
                lines = await metrics()
                return any(line.startswith("penstock_repaired_segments_total") and line[-3:] == "1.0" for line in lines)

            await (await session.put("/v1/topics/t", json={"partitions": 1})).read()
            await (await session.post("/v1/topics/t/records", json={"records": [{"value": "x" * 500}] * 3})).read()
            await (await session.post("/v1/topics/t/roll")).read()
            await until(tiered, lambda end: end == 3)
            (file,) = (tmp_path / "data/topics/t").glob("*/0/00000000000000000000.log")
            (stored,) = (tmp_path / "data/store").glob("*/t/*/0/00000000000000000000-*.log")
            good = file.read_bytes()
            flip(stored, 99)
            flip(file, 200)

            status, problem = await until(fetched, lambda answer: answer[0] != 200)
            assert (status, problem["code"], problem["retryable"]) == (500, "records_damaged", False)
            assert (problem["damaged_from"], problem["damaged_end"]) == (0, 3)
            flip(stored, 99)
            await until(fetched, lambda answer: answer[0] == 200)
            assert file.read_bytes() == good
            await until(repaired, bool)  # it is counted when the lock of the segments is given back
            assert 'penstock_background_failures_total{shard="worker",task="scrubbing"} 0.0' in await metrics()
        assert "damaged records were quarantined" in node.errors
