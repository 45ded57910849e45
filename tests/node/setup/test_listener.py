"""The ports of a node that stops while something else is being done to them. Real listeners."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.links.addresses import free_port
from gateway.settings import NodeSettings
from node.processes.server import running_node
from node.setup.listener import Listener


@pytest.mark.parametrize("ending", ["say_farewell", "drain"])
async def test_a_renewal_under_way_ends_before_the_ports_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    settings = NodeSettings(data_dir=str(tmp_path / "data"), shutdown_deadline_ms=0)
    async with running_node(settings) as node:
        listener = Listener(node, settings, [free_port(settings.host, 0)])
        await listener.open()
        looks_for_second, may_go_on = asyncio.Event(), asyncio.Event()
        until_another_listens = listener._until_another_listens

        async def held_up(serving: asyncio.Task[None], port: int, before: set[str]) -> None:
            looks_for_second.set()
            await may_go_on.wait()
            await until_another_listens(serving, port, before)

        monkeypatch.setattr(listener, "_until_another_listens", held_up)
        renewing = asyncio.create_task(listener.renew())
        await looks_for_second.wait()
        stopping = asyncio.create_task(getattr(listener, ending)())
        done, _ = await asyncio.wait([stopping], timeout=2.0)
        may_go_on.set()
        await renewing
        await stopping
        assert not done, "the ports are closed once it is known which they are"
        assert listener._servers == {}
        await listener.drain()
