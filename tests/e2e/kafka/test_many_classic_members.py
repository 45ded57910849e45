"""Many groups and many members of Kafka's classic protocol, by single messages against a node of two shards.

`python -m pytest -m long -s tests/e2e/kafka/test_many_classic_members.py` prints the figures.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.kafka.errors import Error
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.lifecycle.test_shards import call
from tests.e2e.node_process import running_process
from tests.gateway.kafka.served import Connection, request

pytestmark = [pytest.mark.e2e, pytest.mark.long]

GROUPS, MEMBERS = 1000, 10
CONNECTIONS = 50
SESSION_MS = 600_000  # longer than all groups take to join on a busy machine
REBALANCE_S_MAX = 2.0
BEAT_S = 0.3


async def connect(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    return Connection(*await asyncio.open_connection(host, int(port)))


class Member:
    """A member with a connection of its own, or with one of those of many members."""

    def __init__(self, connection: Connection, group: str, name: str) -> None:
        self.connection, self.group, self.member_id, self.name = connection, group, "", name
        self.generation, self.assignment = -1, b""

    async def ask(self, api: str, version: int, **fields: Any) -> Any:
        self.connection.send(api, version, request(api, group_id=self.group, **fields), self.name)
        return await asyncio.wait_for(self.connection.receive(), 120)

    async def join(self) -> None:
        """Joins and syncs, until it has an assignment."""
        while True:
            protocols = [request("JoinGroup", "protocols", name="range", metadata=self.name.encode())]
            joined = await self.ask(
                "JoinGroup",
                3,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=protocols,
            )
            assert joined.error_code == 0, joined
            self.member_id, self.generation = joined.member_id, joined.generation_id
            given = [request("SyncGroup", "assignments", member_id=one.member_id, assignment=one.metadata)
                     for one in joined.members]  # fmt: skip
            synced = await self.ask(
                "SyncGroup", 3, generation_id=self.generation, member_id=self.member_id, assignments=given
            )
            if synced.error_code != Error.REBALANCE_IN_PROGRESS:
                assert (synced.error_code, synced.assignment) == (0, self.name.encode()), synced
                return

    async def beat(self) -> int:
        answer = await self.ask("Heartbeat", 3, generation_id=self.generation, member_id=self.member_id)
        code: int = answer.error_code
        return code

    async def follow(self, generation: int) -> None:
        """Sends heartbeats, and joins again when it is asked to, until it is in this generation."""
        while self.generation < generation:
            await asyncio.sleep(BEAT_S)
            if await self.beat() == Error.REBALANCE_IN_PROGRESS:
                await self.join()


async def test_a_rebalance_of_100_members(tmp_path: Path) -> None:
    address = free_address()
    with running_process(tmp_path / "node", shards=2, kafka_listen=address):
        members = [Member(await connect(address), "g", f"m{number}") for number in range(101)]
        *first, last = members
        await asyncio.gather(*(one.join() for one in first))
        generation = max(one.generation for one in first)
        await asyncio.gather(*(one.follow(generation) for one in first))
        figures = []
        for step in range(3):
            began = time.monotonic()
            await asyncio.gather(last.join(), *(one.follow(generation + 1) for one in first))
            figures.append(time.monotonic() - began)
            generation = last.generation
            assert {one.generation for one in members} == {generation}, step
            await asyncio.gather(*(one.follow(generation) for one in members))
            await last.ask("LeaveGroup", 1, member_id=last.member_id)
            last.member_id, last.generation = "", -1
            generation += 1
            await asyncio.gather(*(one.follow(generation) for one in first))
        print(f"a rebalance of {len(members)} members took {sorted(figures)} s, heartbeats each {BEAT_S} s")
        assert min(figures) < REBALANCE_S_MAX
        for one in members:
            one.connection.close()


async def test_a_thousand_groups_of_ten_members(tmp_path: Path) -> None:
    """Members of a group have connections of their own; each connection has one member of many groups."""
    address = free_address()
    with running_process(tmp_path / "node", shards=2, kafka_listen=address) as node:
        gate = asyncio.Semaphore(CONNECTIONS)

        async def group(number: int) -> None:
            async with gate:
                members = [Member(await connect(address), f"g{number}", f"m{index}") for index in range(MEMBERS)]
                await asyncio.gather(*(one.join() for one in members))
                codes = await asyncio.gather(*(one.beat() for one in members))
                assert set(codes) <= {0, Error.REBALANCE_IN_PROGRESS}, codes
                for one in members:
                    one.connection.close()

        began = time.monotonic()
        await asyncio.gather(*map(group, range(GROUPS)))
        joined_s = time.monotonic() - began
        rows = call(f"{node.url}/v1/groups")["groups"]
        assert len(rows) == GROUPS
        assert {(one["kind"], one["members"]) for one in rows} == {("classic", MEMBERS)}
        print(f"{GROUPS} groups of {MEMBERS} members were joined in {joined_s:.1f} s, {CONNECTIONS} groups at once")
