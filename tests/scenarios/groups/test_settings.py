"""Settings of a group that change what its polls read, and partitions that a poll leaves out."""

from __future__ import annotations

from tests.scenarios.groups.group_client import ok, problem, values


async def configure(group, **config):
    return ok(await group.send("PUT", body={"config": config}))


async def test_a_group_begins_at_a_time(group, topic):
    for stamp in (1_000, 2_000, 3_000):
        ok(await topic.post_records({"value": stamp, "timestamp": stamp}))
    assert problem(await group.send("PUT", body={"config": {"start": "time"}})) == (400, "invalid_config")
    assert problem(await group.send("GET")) == (404, "unknown_group")
    await configure(group, start="time", start_time_ms=1_500)
    joined = ok(await group.heartbeat(member_id="a", topics=[topic.name]))
    assert [(assigned["start"], assigned["start_time_ms"]) for assigned in joined["assignment"]] == [("time", 1_500)]
    assert values(await group.polled("a")) == [2_000, 3_000]
    assert (await group.offsets()) == {(topic.name, 0): 1}
    share = {"kind": "share", "start": "time", "start_time_ms": 1}
    assert problem(await group.send("PUT", body={"config": share})) == (400, "invalid_config")


async def test_a_topic_of_lower_priority_is_read_when_the_others_have_nothing(group, new_topic):
    urgent, normal = await new_topic(1), await new_topic(1)
    await normal.post_lines("1", "2")
    await urgent.post_lines("10")
    names = [normal.name, urgent.name]
    await configure(group, topics_priority=f"{urgent.name},missing")
    first = await group.polled("a", topics=names)
    assert values(first) == [10]
    second = await group.polled("a", token=first["token"], max_records=1)
    assert values(second) == [1]
    await urgent.post_lines("11")
    third = await group.polled("a", token=second["token"])
    assert values(third) == [11]
    fourth = await group.polled("a", token=third["token"])
    assert values(fourth) == [2]
    assert values(await group.polled("a", token=fourth["token"])) == []
    assert problem(await group.send("PUT", body={"config": {"topics_priority": "a,,b"}})) == (400, "invalid_config")


async def test_a_poll_returns_a_bounded_part_of_one_partition(group, new_topic):
    """Each partition has two batches, which are larger than the distance of index entries."""
    topic = await new_topic(2)
    for partition in (0, 1):
        for _ in range(2):
            await topic.post_lines(f'"{"x" * 20_000}"', partition=partition)
    await configure(group, partition_bytes_max=1)
    for filters in ([], [f'value^="{"x" * 5}"']):
        answer = await group.polled("a", topics=[topic.name], filter=filters)
        assert [(part["partition"], len(part["records"])) for part in answer["partitions"]] == [(0, 1), (1, 1)]
    await configure(group, topics_priority=topic.name)
    assert len(values(await group.polled("a"))) == 2
    await configure(group, partition_bytes_max=None)
    assert len(values(await group.polled("a"))) == 4


async def test_priority_and_filters_go_together(group, new_topic):
    urgent, normal = await new_topic(1), await new_topic(1)
    await urgent.post_lines("1", "2")
    await normal.post_lines("3")
    await configure(group, topics_priority=urgent.name)
    answer = await group.polled("a", topics=[urgent.name, normal.name], filter=["value=3"], wait_ms=10_000)
    assert values(answer) == [3]
    await group.polled("a", token=answer["token"])
    assert await group.offsets() == {(urgent.name, 0): 2, (normal.name, 0): 1}


async def test_a_share_group_hands_out_by_priority(group, new_topic):
    urgent, normal = await new_topic(1), await new_topic(1)
    await normal.post_lines("1")
    await urgent.post_lines("10")
    await configure(group, kind="share", topics_priority=urgent.name)
    for expected in (10, 1):
        taken = ok(await group.send("POST", "/acquire", {"topics": [normal.name, urgent.name], "max_records": 1}))
        assert [record["value"] for record in taken["records"]] == [expected]


async def test_a_paused_partition_stays_and_is_not_read(group, new_topic):
    topic = await new_topic(2)
    for partition in range(2):
        await topic.post_lines(str(partition), partition=partition)
    paused = [{"topic": topic.name, "partition": 0}]
    first = await group.polled("a", topics=[topic.name], paused=paused)
    assert (values(first), first["assigned"]) == ([1], 2)
    second = await group.polled("a", token=first["token"], paused=[*paused, {"topic": topic.name, "partition": 1}])
    assert (values(second), second["partitions"]) == ([], [])
    assert values(await group.polled("a", token=second["token"])) == [0]


async def test_a_paused_partition_keeps_its_place_where_tokens_do_not_commit(group, new_topic):
    topic = await new_topic(2)
    for partition in range(2):
        await topic.post_lines(str(partition), partition=partition)
    await configure(group, auto_commit=False)
    first = await group.polled("a", topics=[topic.name])
    paused = await group.polled("a", token=first["token"], paused=[{"topic": topic.name, "partition": 0}])
    assert values(paused) == []
    assert values(await group.polled("a", token=paused["token"])) == []
