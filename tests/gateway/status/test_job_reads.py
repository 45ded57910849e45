"""Ingestion jobs are read from the store once for all who ask."""

import asyncio

import pytest

from engine.tiering.store.store import StoreUnavailable
from gateway.status import job_list
from gateway.status.job_list import JobReads


async def test_a_store_that_hangs_is_asked_once_and_asked_again_after_its_answer(monkeypatch):
    asked: list[asyncio.Future[list]] = []

    async def read() -> list:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    monkeypatch.setattr(job_list, "JOBS_S", 0.01)
    reads = JobReads(read)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await reads.read()
    assert len(asked) == 1
    asked[0].set_exception(StoreUnavailable("no answer"))
    await asyncio.sleep(0)
    monkeypatch.setattr(job_list, "JOBS_S", 30)
    later = [asyncio.ensure_future(reads.read()) for _ in range(3)]
    while len(asked) == 1:
        await asyncio.sleep(0)
    asked[1].set_result([])
    assert await asyncio.gather(*later) == [[], [], []]
    assert len(asked) == 2
