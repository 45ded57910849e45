"""Callers of a share group, that accept, release, hang beyond their locks and die with records.

They repeat some outcomes that were answered, as a proxy or a client does that has lost the answer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import orjson

from gateway.groups.share.values import Outcome
from tests.chaos.clients.node_client import NodeClient, now
from tests.checking.group_history import Acquisition, Record, Settlement, ShareHistory

LOCK_S = 1.5
RETRY_S = 0.1
TRIES_MAX = 20  # of an outcome: longer than the lock and a failover
JSON = {"Content-Type": "application/json"}


class Caller:
    def __init__(self, group: str, topic: str, number: int, client: NodeClient, codes: Counter[str]) -> None:
        self._path, self._topic, self._client, self._codes = f"/v1/groups/{group}", topic, client, codes
        self._name = f"caller-{number}"
        self._random = random.Random(f"{group} {number}")

    async def run(self, history: ShareHistory, stopping: asyncio.Event, calm: asyncio.Event) -> None:
        """Works until `stopping`. From `calm` on it accepts all that it gets."""
        while not stopping.is_set():
            lock, answer = await self._acquire(history)
            if not answer.records:
                continue
            weights = (1, 0, 0, 0) if calm.is_set() else (100, 10, 1, 3)
            work = self._random.choices(("accept", "release", "hang", "die"), weights)[0]
            await asyncio.sleep(0.05 * self._random.random())
            if work == "die":
                answer.held_until = now()
                continue
            if work == "hang":
                await asyncio.sleep(1.2 * LOCK_S)
            await self._end(lock, answer, history, is_accept=work != "release")

    async def _acquire(self, history: ShareHistory) -> tuple[str, Acquisition]:
        body = {"topics": [self._topic], "max_records": self._random.choice((1, 5, 30)), "wait_ms": 300}
        body |= {"lock_ms": int(LOCK_S * 1000), "member_id": self._name}
        asked_at = now()
        acquisition = Acquisition(self._name, asked_at, asked_at + LOCK_S)
        answer = await self._client.request("POST", f"{self._path}/acquire", orjson.dumps(body), JSON)
        if answer.status == 200:
            acquisition.records = {
                (record["partition"], record["offset"]): record["delivery_count"] for record in answer.json["records"]
            }
            acquisition.answered_at = now()
            if acquisition.records:
                history.acquisitions.append(acquisition)
            return answer.json["lock"] or "", acquisition
        self._codes[f"acquire: {answer.status} {answer.code}"] += 1
        self._client.next_node()
        await asyncio.sleep(RETRY_S)
        return "", acquisition

    async def _end(self, lock: str, acquisition: Acquisition, history: ShareHistory, *, is_accept: bool) -> None:
        """Sends the outcome until it is answered, and some of them again, at once or later."""
        records = [
            {"topic": self._topic, "partition": number, "offset": at} for number, at in sorted(acquisition.records)
        ]
        body = orjson.dumps({"lock": lock, "outcome": "accept" if is_accept else "release", "records": records})
        acquisition.held_until = now()
        outcome = Outcome.ACCEPT if is_accept else Outcome.RELEASE
        again = self._random.choices((0, 1, 3), (6, 3, 1))[0]
        for _ in range(TRIES_MAX):
            settlement = Settlement(acquisition, outcome, frozenset(acquisition.records), now())
            history.settlements.append(settlement)
            answer = await self._client.request("POST", f"{self._path}/acknowledge", body, JSON)
            if answer.status in (200, 207) or answer.code == "lock_expired":
                refused = answer.json["refused"]
                settlement.answered_at, settlement.refused = now(), _records(refused)
                settlement.ended = _records([part for part in refused if part["code"] == "already_acknowledged"])
                if not again:
                    return
                again -= 1
                await asyncio.sleep(LOCK_S * self._random.random())
                continue
            self._codes[f"acknowledge: {answer.status} {answer.code}"] += 1
            if answer.code == "lock_unknown":  # an earlier request may have been stored: it counts as not answered
                return
            self._client.next_node()
            await asyncio.sleep(RETRY_S)


def _records(parts: list[dict[str, Any]]) -> frozenset[Record]:
    ranges = ((part["partition"], range(part["offset"], part["last_offset"] + 1)) for part in parts)
    return frozenset((partition, offset) for partition, offsets in ranges for offset in offsets)
