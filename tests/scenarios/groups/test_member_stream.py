"""Event streams of members: what an id confirms, what is delivered again, and when a stream ends."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from gateway.groups import member_stream
from tests.scenarios.event_source import EventSource, event_source
from tests.scenarios.gateways import in_process_only
from tests.scenarios.groups.group_client import GroupClient, values


def follow(
    group: GroupClient, member: str, query: str = "", event_id: str | None = None
) -> AbstractAsyncContextManager[EventSource]:
    headers = {} if event_id is None else {"Last-Event-ID": event_id}
    return event_source(group.gateway.port, f"{group.path}/members/{member}/events{query}", headers)


async def test_an_id_commits_the_records_up_to_its_event_and_the_others_come_again(group, topic):
    await topic.post_lines("1", "2", "3")
    query = f"?topics={topic.name}"
    async with follow(group, "a", query) as stream:
        assert (stream.status, stream.headers["Content-Type"]) == (200, "text/event-stream")
        first, second, _ = await stream.take(3)
        assert first.json["value"] == 1
        assert (first.json["topic"], first.json["partition"], first.json["offset"]) == (topic.name, 0, 0)
        assert await group.offsets() == {(topic.name, 0): 0}, "an open stream commits nothing"
    async with follow(group, "a", query, second.id) as stream:
        (third,) = await stream.take(1)
        assert third.json["value"] == 3
        assert await group.offsets() == {(topic.name, 0): 2}
        await topic.post_lines("4")
        (fourth,) = await stream.take(1)
    answer = await group.polled("a", token=fourth.id)  # a poll takes the same token
    assert values(answer) == []
    assert await group.offsets() == {(topic.name, 0): 4}


async def test_a_stream_ends_when_the_client_has_to_confirm(group, topic):
    await topic.post_lines(*map(str, range(5)))
    async with follow(group, "a", f"?topics={topic.name}&unconfirmed_max=3") as stream:
        got = await stream.take(5)
        assert await stream.next() is None
        assert stream.retry_ms == 10
    async with follow(group, "a", "", got[-1].id) as stream:
        assert stream.status == 200
        assert await group.offsets() == {(topic.name, 0): 5}


@in_process_only
async def test_a_client_also_confirms_what_no_filter_passed(group, topic, monkeypatch):
    monkeypatch.setattr(member_stream, "CONFIRM_S", 0.05)
    await topic.post_lines("1", "2")
    async with follow(group, "a", f"?topics={topic.name}&filter=value=7") as stream:
        assert await stream.next() is None
    async with follow(group, "a", "", stream.last_id):
        assert await group.offsets() == {(topic.name, 0): 2}


@in_process_only
async def test_a_record_is_to_be_confirmed_after_a_while(group, topic, monkeypatch):
    monkeypatch.setattr(member_stream, "CONFIRM_S", 0.05)
    await topic.post_lines("1")
    async with follow(group, "a", f"?topics={topic.name}") as stream:
        await stream.take(1)
        assert await stream.next() is None


async def test_a_stream_ends_with_its_assignment_and_the_next_request_gives_partitions_up(group, new_topic):
    topic = await new_topic(2)
    for partition in range(2):
        await topic.post_lines(str(partition), partition=partition)
    query = f"?topics={topic.name}"
    async with follow(group, "a", query) as stream:
        got = await stream.take(2)
        await group.polled("b", topics=[topic.name])
        assert await stream.next() is None
    async with follow(group, "a", query, got[-1].id) as stream:
        assert stream.status == 200
        assert (await group.polled("b"))["assigned"] == 1
        assert sorted((await group.offsets()).values()) == [1, 1]


async def test_a_member_that_was_removed_joins_again_and_gets_what_was_not_confirmed(group, topic):
    await topic.post_lines("1", "2")
    async with follow(group, "a", f"?topics={topic.name}") as stream:
        _, second = await stream.take(2)
        await group.leave("a")
        assert await stream.next() is None
    async with follow(group, "a", "", second.id) as stream:
        document = await stream.problem()
        assert (document["status"], document["code"], document["recover"]) == (409, "stale_token", {"token": None})
    async with follow(group, "a", f"?topics={topic.name}", second.id) as stream:
        assert [event.json["value"] for event in await stream.take(2)] == [1, 2]
