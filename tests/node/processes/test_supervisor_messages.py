"""A change is sent to every process of a node; the sender gets a list of those that have not applied it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.directory.topics import TopicRecord
from gateway.links.link import LinkLost, handler
from gateway.links.link_client import LinkClient, listen
from node import messages
from node.child_processes import call_links
from node.messages import hand_over_socket, record_to
from node.processes.shard_process import SupervisedChanges

SOON_S = 0.05


class SlowShard:
    """Its recovery takes as long as the test wants; it opens a topic as a shard does."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.begun = self.added = 0
        self.may_open = asyncio.Event()

    async def open_topic(self, record: TopicRecord) -> TopicRecord:
        self.begun += 1
        await self.may_open.wait()
        self.topics[record.name] = record
        return record

    async def open_added(self, _: TopicRecord) -> None:
        """Open the missing partitions, as a shard does: those missing at its begin."""
        is_missing = self.added == 0
        self.begun += 1
        await self.may_open.wait()
        self.added += is_missing

    async def close_topic(self, name: str) -> None:
        del self.topics[name]


@asynccontextmanager
async def linked(shard: Any, path: Path) -> AsyncIterator[tuple[SupervisedChanges, LinkClient]]:
    async def all_ready(_: Any, __: bytes) -> tuple[None, bytes]:
        return None, b""

    caller = LinkClient(str(path))
    changes = SupervisedChanges(shard, caller, replication_factor_max=1)
    server = await listen(str(path), {**changes.handlers(), "all_ready": handler(Any, all_ready)})
    caller.connect()
    await caller.wait_connected_within(60)
    yield changes, caller
    caller.close()
    server.close()


RECORD = TopicRecord("t", "id-of-t", 1, 1, {}, 5)


async def test_a_process_that_is_slow_to_apply_a_change_is_logged_and_applies_it_the_next_time(tmp_path):
    shard = SlowShard()
    async with linked(shard, tmp_path / "s") as (changes, caller):
        with pytest.raises(LinkLost):  # it is still recovering
            await call_links([caller.link()], "open_topic", record_to(RECORD), SOON_S)
        assert shard.begun == 0
        changes.is_started.set()
        with pytest.raises(LinkLost):  # it opens, and no caller waits for it any more
            await call_links([caller.link()], "open_topic", record_to(RECORD), SOON_S)
        telling = asyncio.create_task(call_links([caller.link()], "open_topic", record_to(RECORD), 30))
        await caller.link().call("all_ready", None, timeout_s=30)  # a later call on the link
        shard.may_open.set()
        await telling
        assert (shard.topics["t"].topic_id, shard.begun) == ("id-of-t", 1), "opened once, by the first message"


async def test_a_topic_is_closed_once_it_has_been_opened(tmp_path):
    """The sender has timed out, and the opening continues."""
    shard = SlowShard()
    async with linked(shard, tmp_path / "s") as (changes, caller):
        changes.is_started.set()
        with pytest.raises(LinkLost):
            await call_links([caller.link()], "open_topic", record_to(RECORD), SOON_S)
        closing = asyncio.create_task(call_links([caller.link()], "close_topic", "t", 30))
        await caller.link().call("all_ready", None, timeout_s=30)
        shard.may_open.set()
        await closing
        assert (shard.topics, shard.begun) == ({}, 1)


async def test_added_partitions_are_opened_once_however_often_they_are_reported(tmp_path):
    """Before the fix two concurrent openings created two partitions of the same files."""
    shard = SlowShard()
    async with linked(shard, tmp_path / "s") as (changes, caller):
        changes.is_started.set()
        with pytest.raises(LinkLost):  # it opens, and no caller waits for it any more
            await call_links([caller.link()], "open_added", record_to(RECORD), SOON_S)
        telling = asyncio.create_task(call_links([caller.link()], "open_added", record_to(RECORD), 30))
        await caller.link().call("all_ready", None, timeout_s=30)  # a later call on the link
        assert shard.begun == 1
        shard.may_open.set()
        await telling
        assert (shard.begun, shard.added) == (2, 1)


async def test_a_process_that_goes_down_meanwhile_is_no_failure(tmp_path):
    """It requests all topics after its restart."""
    async with linked(SlowShard(), tmp_path / "s") as (_, caller):
        link = caller.link()
        telling = asyncio.create_task(call_links([link], "open_topic", record_to(RECORD), 30))
        await asyncio.sleep(0)
        link.close()
        await telling
        assert not link.is_up


def test_connections_do_not_move_between_processes_of_two_versions(monkeypatch):
    """A process that was restarted after an upgrade would misread the state of a connection."""
    run_dir = "/tmp/penstock-12345678".rjust(88, "d")
    before = hand_over_socket(run_dir, 10)
    assert before == hand_over_socket(run_dir, 10) != hand_over_socket(run_dir, 1)
    monkeypatch.setattr(messages, "VERSION", "99.0")
    assert hand_over_socket(run_dir, 10) != before
    assert len(before) <= 107
