"""A real node behind the fault proxy: it can be killed and restarted on its data while clients continue.

Topics are created and the log is read at the node itself: only clients' requests pass through the proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.e2e.node_process import NodeProcess, running_process
from tests.faults.proxy import NODE_BACK_S, FaultProxy
from tests.scenarios.gateways import in_process


class Site:
    """A process with its data in `directory`."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self._settings = settings
        self._stack = ExitStack()
        self._node: NodeProcess | None = None
        self.proxy = FaultProxy(0)
        self.kills = 0
        self._killing = asyncio.Lock()

    @property
    def url(self) -> str:
        assert self._node is not None
        return self._node.url

    async def start(self) -> None:
        context = running_process(self.directory, **self._settings)
        self._node = await asyncio.to_thread(self._stack.enter_context, context)
        self.proxy.upstream_port = self._node.port

    async def kill_and_start(self) -> None:
        """Kill and restart, as in a crash of the process; clients cannot connect until the next one is ready."""
        async with self._killing:
            assert self._node is not None
            await asyncio.to_thread(self._node.kill)
            self.kills += 1
            await self.start()

    def stop(self) -> None:
        self._stack.close()

    async def create(self, topic: str, partitions: int, **config: object) -> None:
        await self._ask("PUT", f"/v1/topics/{topic}", {"partitions": partitions, "config": config})

    async def delete(self, topic: str) -> None:
        await self._ask("DELETE", f"/v1/topics/{topic}")

    async def read(self, topic: str, partitions: int) -> dict[str, list[str]]:
        """Return every value of each partition as its text; asserts gapless offsets from 0."""
        return {str(number): await self._read_partition(topic, number) for number in range(partitions)}

    async def _read_partition(self, topic: str, number: int) -> list[str]:
        values: list[str] = []
        while True:
            path = f"/v1/topics/{topic}/partitions/{number}/records?offset={len(values)}&max_bytes=8000000"
            records = (await self._ask("GET", path))["records"]
            if not records:
                return values
            for record in records:
                assert record["offset"] == len(values), "offsets have a gap"
                values.append(record["value"])

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; retries it while the node is down, since other stories kill it too. All of them are
        idempotent.
        """
        async with asyncio.timeout(NODE_BACK_S):
            while True:
                with suppress(aiohttp.ClientError, OSError):
                    status, text = await self._ask_once(method, path, body)
                    if status < 300 or (method == "DELETE" and status == 404):
                        return orjson.loads(text or b"null")
                    assert status in (503, 504), text
                await asyncio.sleep(0.1)

    async def _ask_once(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        async with aiohttp.ClientSession() as session, session.request(method, self.url + path, json=body) as answer:
            return answer.status, await answer.read()


@asynccontextmanager
async def running_site(directory: Path, **settings: object) -> AsyncIterator[Site]:
    site = Site(directory, **settings)
    try:
        await site.start()
        async with site.proxy:
            yield site
    finally:
        site.stop()


class SiteInside(Site):
    """The same node in this process and loop, behind aiohttp's server: fast, and open to planted faults.

    It is stopped and started, not killed.
    """

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.upstream_port}"

    async def start(self) -> None:
        self._inside = AsyncExitStack()
        gateway = await self._inside.enter_async_context(in_process(self.directory))
        self.proxy.upstream_port = gateway.port

    async def kill_and_start(self) -> None:
        await self._inside.aclose()
        await self.start()


@asynccontextmanager
async def running_inside(directory: Path) -> AsyncIterator[SiteInside]:
    site = SiteInside(directory)
    await site.start()
    try:
        async with site.proxy:
            yield site
    finally:
        await site._inside.aclose()
