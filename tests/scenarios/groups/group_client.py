"""The calls of a group as clients make them."""

from __future__ import annotations

from typing import Any

import orjson

from tests.scenarios.gateways import JSON, Answer, Gateway


class GroupClient:
    """One group of a gateway. Every answer is checked against the contract."""

    def __init__(self, gateway: Gateway, name: str, headers: dict[str, str] | None = None) -> None:
        self.gateway = gateway
        self.name = name
        self.path = f"/v1/groups/{name}"
        self.headers = headers or {}

    async def send(self, method: str, path: str = "", body: dict[str, Any] | None = None) -> Answer:
        data = b"" if body is None else orjson.dumps(body)
        headers = self.headers if body is None else {"Content-Type": JSON, **self.headers}
        return await self.gateway.send(method, self.path + path, data, headers)

    async def poll(self, member: str, **body: Any) -> Answer:
        return await self.send("POST", f"/members/{member}/poll", body)

    async def polled(self, member: str, **body: Any) -> dict[str, Any]:
        return ok(await self.poll(member, **body))

    async def heartbeat(self, **body: Any) -> Answer:
        return await self.send("POST", "/heartbeat", body)

    async def leave(self, member: str) -> Answer:
        return await self.send("DELETE", f"/members/{member}")

    async def describe(self) -> dict[str, Any]:
        return ok(await self.send("GET"))

    async def offsets(self) -> dict[tuple[str, int], int]:
        offsets = ok(await self.send("GET", "/offsets"))["offsets"]
        return {(offset["topic"], offset["partition"]): offset["offset"] for offset in offsets}


def ok(answer: Answer) -> dict[str, Any]:
    assert answer.status in (200, 201), answer.body
    return dict(answer.json)


def values(delivery: dict[str, Any]) -> list[Any]:
    return sorted(record["value"] for part in delivery["partitions"] for record in part["records"])


def problem(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["code"]
