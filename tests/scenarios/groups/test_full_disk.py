"""Calls of groups while the disk of their coordinator is full: 507 storage_full, and no part of them is stored."""

from __future__ import annotations

import asyncio
import errno
from contextlib import contextmanager

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import in_process
from tests.scenarios.groups.group_client import GroupClient, ok, problem, values


@pytest.fixture
async def gateway(tmp_path):
    async with in_process(tmp_path) as gateway:
        yield gateway


@pytest.fixture
async def topic(gateway):
    topic = await gateway.create("t")
    await topic.post_lines("1", "2", "3")
    return topic


@pytest.fixture
def full(gateway, monkeypatch):
    @contextmanager
    def full():
        def fail(*_args):
            raise OSError(errno.ENOSPC, "planted")

        with monkeypatch.context() as planted:
            planted.setattr(gateway.node.shard.disk, "pwritev", fail)
            yield

    return full


def assert_full(answer):
    assert answer.status == 507, answer.body
    assert_problem(answer, "storage_full", retryable=True, no_side_effects=True)


def commit(offset):
    return {"offsets": [{"topic": "t", "partition": 0, "offset": offset}], "force": True}


async def test_a_full_disk_refuses_what_changes_a_group_and_serves_the_rest(gateway, topic, full):
    group = GroupClient(gateway, "g")
    first = await group.polled("a", topics=["t"], max_records=1)
    ok(await group.send("PUT", "/offsets", commit(1)))
    with full():
        assert_full(await group.send("PUT", "/offsets", commit(2)))
        assert await group.offsets() == {("t", 0): 1}
        assert_full(await group.poll("a", topics=["t"], token=(await group.polled("a", topics=["t"]))["token"]))
        assert_full(await group.heartbeat(member_id="b", topics=["t"]))
        assert_full(await group.send("PUT", "", {"config": {"start": "latest"}}))
        assert_full(await group.send("POST", "/reset", {"to": "earliest", "force": True}))
        assert_full(await group.leave("a"))
        assert_full(await GroupClient(gateway, "new").poll("a", topics=["t"]))
        described = await group.describe()
        assert [member["member_id"] for member in described["members"]] == ["a"]
        assert described["config"]["start"] == "earliest"
        assert problem(await GroupClient(gateway, "new").send("GET")) == (404, "unknown_group")
    assert await group.offsets() == {("t", 0): 1}
    again = await group.polled("a", topics=["t"], token=first["token"])
    assert values(again) == [2, 3]
    assert values(await group.polled("a", topics=["t"], token=again["token"])) == []
    assert await group.offsets() == {("t", 0): 3}


async def test_a_poll_that_waits_while_its_commit_is_refused_is_answered_at_once(gateway, topic, full):
    group = GroupClient(gateway, "g")
    token = (await group.polled("a", topics=["t"]))["token"]
    with full():
        async with asyncio.timeout(60):
            assert_full(await group.poll("a", topics=["t"], token=token, wait_ms=60_000, min_bytes=2))
            assert_full(await group.poll("a", topics=["t"], token=token, wait_ms=60_000))
    assert await group.offsets() == {("t", 0): 0}


async def test_an_open_poll_goes_on_waiting_when_the_commit_of_another_member_is_refused(gateway, topic, full):
    group = GroupClient(gateway, "g")
    token = (await group.polled("a", topics=["t"]))["token"]
    token = (await group.polled("a", token=token))["token"]
    waiting = asyncio.create_task(group.polled("a", topics=["t"], token=token, wait_ms=60_000))
    async with asyncio.timeout(60):
        while await gateway.metric("penstock_long_polls") == 0:
            await asyncio.sleep(0.01)
        with full():
            assert_full(await group.heartbeat(member_id="b", topics=["t"]))
        await topic.post_lines("4")
        assert values(await waiting) == [4]


async def test_outcomes_that_cannot_be_stored_change_nothing(gateway, topic, full):
    group = GroupClient(gateway, "jobs")
    acquire = {"topics": ["t"], "max_records": 10}
    acquired = ok(await group.send("POST", "/acquire", acquire))
    assert (
        ok(await group.send("POST", "/acknowledge", {"lock": acquired["lock"], "records": [at(0)]}))["acknowledged"]
        == 1
    )
    acknowledgement = {"lock": acquired["lock"]}
    with full():
        for outcome in ("accept", "release", "reject"):
            assert_full(await group.send("POST", "/acknowledge", {**acknowledgement, "outcome": outcome}))
            assert ok(await group.send("POST", "/acquire", acquire))["records"] == [], "its lock holds them"
            await asyncio.sleep(1.1)  # then the disk is tried again, and refuses what the coordinator has decided
        extension = {**acknowledgement, "outcome": "extend", "lock_ms": 60_000}
        assert ok(await group.send("POST", "/acknowledge", extension))["acknowledged"] == 2
    async with asyncio.timeout(60):
        while (answer := await group.send("POST", "/acknowledge", acknowledgement)).status == 507:
            await asyncio.sleep(0.05)
    assert ok(answer)["acknowledged"] == 3, "the one that was stored before, once more"
    assert ok(await group.send("POST", "/acquire", acquire))["records"] == []


def at(offset):
    return {"topic": "t", "partition": 0, "offset": offset}
