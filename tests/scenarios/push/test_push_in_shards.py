"""Push on a node of two shards: what needs more than one process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from tests.e2e.node_process import running_process
from tests.scenarios.gateways import JSON, Answer, Gateway, over_http2
from tests.scenarios.push.receiver import SECRET, Receiver
from tests.tokens import add_token, bearer

COUNT = 6  # of subscriptions: some in each shard


class Boss:
    """Sends requests with one token over one connection."""

    def __init__(self, gateway: Gateway, token: str) -> None:
        self._gateway = gateway
        self.token = token

    async def send(self, method: str, path: str, document: object = None, token: str = "") -> Answer:
        body = b"" if document is None else orjson.dumps(document)
        return await self._gateway.send(method, path, body, bearer(token or self.token) | {"Content-Type": JSON})

    async def allow(self, resource: str, operation: str) -> None:
        rule = {"id": resource, "principals": ["token:shop"], "operations": [operation]}
        answer = await self.send("POST", "/v1/access/rules", rule | {"resource": resource, "pattern": "all"})
        assert answer.status == 201, answer.json

    async def wait_states(self, state: str) -> None:
        """Waits until all subscriptions have this state."""
        async with asyncio.timeout(30):
            found: list[str] = []
            while found != [state] * COUNT:
                await asyncio.sleep(0.05)
                listed = (await self.send("GET", "/v1/subscriptions")).json["subscriptions"]
                found = [row["state"] for row in listed]


async def test_the_owner_is_asked_in_the_shard_that_delivers_also_after_a_restart(
    tmp_path: Path,
    receiver: Receiver,
) -> None:
    path = tmp_path / "tokens.toml"
    token = add_token(path, "boss", read=[""], write=[""], admin=[""])
    settings: dict[str, Any] = {"tokens_file": path, "superusers": "token:boss", "shards": 2}
    settings |= {"push_http": True, "push_targets": "127.0.0.0/8"}
    with running_process(tmp_path, **settings) as process:
        async with over_http2(process.port) as gateway:
            boss = Boss(gateway, token)
            await boss.send("PUT", "/v1/topics/t", {})
            shop = (await boss.send("POST", "/v1/access/tokens", {"name": "shop"})).json["token"]
            await boss.allow("subscription", "create")
            await boss.allow("topic", "read")
            request = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET]}
            for number in range(COUNT):
                async with asyncio.timeout(10):
                    while (await boss.send("PUT", f"/v1/subscriptions/s{number}", request, shop)).status != 201:
                        await asyncio.sleep(0.05)  # until the rules are live
            await boss.wait_states("running")
            await boss.send("DELETE", "/v1/access/rules/topic")
            await boss.wait_states("forbidden")
        assert await asyncio.to_thread(process.stop) == 0
    with running_process(tmp_path, **settings) as process:
        async with over_http2(process.port) as gateway:
            boss = Boss(gateway, token)
            await boss.wait_states("forbidden")
            await boss.allow("topic", "read")
            await boss.wait_states("running")
