"""Committed positions over HTTP, lag, reset, settings, deletion."""

from __future__ import annotations

from tests.scenarios.gateways import in_process_only
from tests.scenarios.groups.group_client import ok, problem, values


def entry(topic, partition, offset, **more):
    return {"topic": topic.name, "partition": partition, "offset": offset, **more}


@in_process_only
async def test_a_commit_is_bounded(group, topic):
    large = [entry(topic, number, 0, metadata="m" * 4096) for number in range(1025)]
    assert problem(await group.send("PUT", "/offsets", {"offsets": large})) == (400, "invalid_body")


async def test_a_group_shows_its_members_and_its_lag(group, topic):
    await topic.post_lines("1", "2", "3")
    first = await group.polled("a", topics=[topic.name], max_records=1)
    await group.polled("a", token=first["token"])
    shown = await group.describe()
    [member], [partition] = shown["members"], shown["partitions"]
    assert (shown["state"], member["member_id"], member["topics"]) == ("stable", "a", [topic.name])
    assert member["assignment"] == [{"topic": topic.name, "partition": 0}]
    assert (partition["offset"], partition["high_watermark"], partition["lag"]) == (1, 3, 2)
    assert partition["lag_bytes"] > 0
    assert partition["member_id"] == "a"
    listed = (await group.gateway.send("GET", "/v1/groups")).json["groups"]
    [row] = [row for row in listed if row["group"] == group.name]
    assert (row["kind"], row["state"], row["members"]) == ("consumer", "stable", 1)


async def test_a_reset_of_all_leaves_out_what_was_deleted(group, new_topic):
    remaining, gone = await new_topic(1), await new_topic(1)
    await remaining.post_lines("1")
    ok(await group.send("PUT", "/offsets", {"offsets": [entry(remaining, 0, 1), entry(gone, 0, 0)]}))
    assert (await group.gateway.send("DELETE", f"/v1/topics/{gone.name}")).status == 204
    assert [row["topic"] for row in ok(await group.send("POST", "/reset", {"to": "earliest"}))["offsets"]] == [
        remaining.name
    ]


async def test_positions_of_a_topic_are_deleted_while_the_group_has_no_members(group, new_topic):
    topic = await new_topic(2)
    await topic.post_lines("1", partition=0)
    ok(await group.send("PUT", "/offsets", {"offsets": [entry(topic, 0, 1), entry(topic, 1, 0)]}))
    path = f"/offsets?topic={topic.name}&partition=1"
    for _ in range(2):  # the second time nothing is left to delete
        assert [offset["partition"] for offset in ok(await group.send("DELETE", path))["offsets"]] == [0]
    ok(await group.heartbeat(member_id="a", topics=[topic.name]))
    assert problem(await group.send("DELETE", f"/offsets?topic={topic.name}")) == (409, "group_not_empty")
    assert await group.offsets() == {(topic.name, 0): 1}
    await group.leave("a")
    assert ok(await group.send("DELETE", f"/offsets?topic={topic.name}"))["offsets"] == []
    assert problem(await group.send("DELETE", "/offsets")) == (400, "invalid_query")
    assert values(await group.polled("a", topics=[topic.name])) == [1]
