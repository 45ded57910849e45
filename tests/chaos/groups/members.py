"""Members that poll with tokens, and that hang, die inside and between polls, leave, and come again.

As docs/consumer-groups.md says, a member sends each request until it is answered, after a failure to another node.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import orjson

from tests.chaos.clients.node_client import Answer, NodeClient, now
from tests.checking.group_history import GroupHistory, Poll

SESSION_S = 3.0
HANG_S = 1.5 * SESSION_S
RETRY_S = 0.1
JSON = {"Content-Type": "application/json"}


class Member:
    def __init__(self, group: str, topic: str, number: int, client: NodeClient, codes: Counter[str]) -> None:
        self._path, self._topic, self._number, self._client = f"/v1/groups/{group}/members", topic, number, client
        self._codes = codes
        self._random = random.Random(f"{group} {number}")
        self._life = 0
        self._token = ""
        self._delivery: Poll | None = None  # its token is sent next
        self._last: Poll | None = None

    @property
    def name(self) -> str:
        return f"member-{self._number}.{self._life}"

    async def run(self, history: GroupHistory, stopping: asyncio.Event, calm: asyncio.Event) -> None:
        """Polls until `stopping`. From `calm` on it does nothing unexpected any more."""
        while not stopping.is_set():
            is_calm = calm.is_set()
            poll = Poll(self.name, now(), self._delivery)
            self._ends_holding()
            self._last = poll
            history.polls.append(poll)
            if not is_calm and self._random.random() < 0.02:
                await self._die_within(poll)
                continue
            await self._take(poll, await self._poll())
            await asyncio.sleep(0.03 * self._random.random())
            if not is_calm:
                await self._misbehave()
        self._ends_holding()

    async def _poll(self) -> Answer:
        body: dict[str, Any] = {
            "topics": [self._topic],
            "token": self._token,
            "wait_ms": 300,
            "max_records": 40,
            "session_timeout_ms": int(SESSION_S * 1000),
            "rebalance_timeout_ms": 10_000,
        }
        path = f"{self._path}/{self.name}/poll"
        return await self._client.request("POST", path, orjson.dumps(body), JSON)

    async def _take(self, poll: Poll, answer: Answer) -> None:
        """1. A delivery. 2. A stale token: begin again without one. 3. Else send the same request to another node."""
        if answer.status in (200, 207):
            for part in answer.json["partitions"]:
                if part.get("records"):
                    poll.offsets[part["partition"]] = tuple(record["offset"] for record in part["records"])
            poll.answered_at = now()
            self._token, self._delivery = answer.json["token"], poll
            return
        self._codes[f"member: {answer.status} {answer.code}"] += 1
        if answer.code == "stale_token":
            self._forget()
            return
        self._client.next_node()
        await asyncio.sleep(RETRY_S)

    async def _die_within(self, poll: Poll) -> None:
        try:
            async with asyncio.timeout(0.3 * self._random.random()):
                await self._poll()
        except TimeoutError:
            pass
        poll.held_until = now()
        self._come_again()

    async def _misbehave(self) -> None:
        match self._random.choices(("work", "hang", "die", "leave"), (200, 1, 2, 2))[0]:
            case "hang":
                await asyncio.sleep(HANG_S)
            case "die":
                self._ends_holding()
                self._come_again()
            case "leave":
                self._ends_holding()
                self._last = None
                await self._client.request("DELETE", f"{self._path}/{self.name}")
                self._come_again()

    def _come_again(self) -> None:
        """The same name continues, or another joins while the session of the dead one lasts."""
        self._last = None
        self._life += self._random.random() < 0.5
        self._forget()

    def _forget(self) -> None:
        self._token, self._delivery = "", None

    def _ends_holding(self) -> None:
        if self._last is not None:
            self._last.held_until = min(self._last.held_until, now())
