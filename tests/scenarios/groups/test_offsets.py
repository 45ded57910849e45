"""Committed positions over HTTP, lag, reset, settings, deletion."""

from __future__ import annotations

from tests.scenarios.gateways import in_process_only
from tests.scenarios.groups.group_client import ok, problem, values


def entry(topic, partition, offset, **more):
    return {"topic": topic.name, "partition": partition, "offset": offset, **more}


async def test_positions_are_committed_without_membership_and_read(group, topic):
    await topic.post_lines("1", "2")
    found = ok(await group.send("PUT", "/offsets", {"offsets": [entry(topic, 0, 1, metadata="half")]}))
    assert [(one["offset"], one["metadata"]) for one in found["offsets"]] == [(1, "half")]
    assert await group.offsets() == {(topic.name, 0): 1}
    assert values(await group.polled("a", topics=[topic.name])) == [2]


async def test_a_member_commits_with_its_epoch_and_a_zombie_does_not(group, topic):
    await topic.post_lines("1", "2")
    member = ok(await group.heartbeat(member_id="a", topics=[topic.name]))
    commit = {"member_id": "a", "member_epoch": member["member_epoch"], "offsets": [entry(topic, 0, 1)]}
    ok(await group.send("PUT", "/offsets", commit))
    await group.leave("a")
    ok(await group.heartbeat(member_id="a", topics=[topic.name]))
    zombie = {**commit, "offsets": [entry(topic, 0, 2)]}
    assert problem(await group.send("PUT", "/offsets", zombie)) == (409, "member_fenced")
    outside = {"offsets": [entry(topic, 0, 2)]}
    assert problem(await group.send("PUT", "/offsets", outside)) == (409, "group_not_empty")
    ok(await group.send("PUT", "/offsets", {**outside, "force": True}))
    assert await group.offsets() == {(topic.name, 0): 2}


async def test_a_commit_beyond_the_log_is_refused_and_nothing_of_it_is_stored(group, new_topic):
    topic = await new_topic(2)
    await topic.post_lines("1", partition=0)
    both = {"offsets": [entry(topic, 0, 1), entry(topic, 1, 5)]}
    refused = await group.send("PUT", "/offsets", both)
    assert problem(refused) == (409, "commit_above_high_watermark")
    assert refused.json["high_watermark"] == 0
    assert problem(await group.send("GET", "/offsets")) == (404, "unknown_group")


@in_process_only
async def test_commits_that_make_no_sense_are_refused(group, topic):
    for offsets in ([entry(topic, 7, 0)], [{"topic": "nope", "partition": 0, "offset": 0}]):
        assert (await group.send("PUT", "/offsets", {"offsets": offsets})).status == 404
    large = [entry(topic, number, 0, metadata="m" * 4096) for number in range(1025)]
    assert problem(await group.send("PUT", "/offsets", {"offsets": large})) == (400, "invalid_body")
    twice = [entry(topic, 0, 0), entry(topic, 0, 0)]
    assert problem(await group.send("PUT", "/offsets", {"offsets": twice})) == (400, "invalid_body")
    half = {"member_id": "a", "offsets": [entry(topic, 0, 0)]}
    assert problem(await group.send("PUT", "/offsets", half)) == (400, "invalid_body")


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
    assert {"group": group.name, "kind": "consumer", "state": "stable", "members": 1} in listed


async def test_a_group_is_reset_in_every_way(group, topic):
    await topic.post_records(*({"value": number, "timestamp": 1000 * number} for number in range(1, 6)))

    async def reset(**body: object) -> int:
        found = ok(await group.send("POST", "/reset", body))
        [row] = found["offsets"]
        if not body.get("dry_run"):
            assert (await group.offsets())[topic.name, 0] == row["offset"]
        return int(row["offset"])

    ok(await group.send("PUT", "/offsets", {"offsets": [entry(topic, 0, 2)]}))
    assert await reset(to="latest", dry_run=True) == 5
    assert await group.offsets() == {(topic.name, 0): 2}
    assert await reset(shift=2) == 4
    assert await reset(shift=-100) == 0
    assert await reset(to="1970-01-01T00:00:03Z") == 2
    assert await reset(to=4000) == 3
    assert await reset(ago_ms=1000) == 5
    assert await reset(to="earliest", topics=[topic.name]) == 0
    assert await reset(offsets=[entry(topic, 0, 3)]) == 3
    assert problem(await group.send("POST", "/reset", {"to": "noon"})) == (400, "invalid_body")
    for early in (-5, "1969-12-31T23:59:59Z"):
        detail = (await group.send("POST", "/reset", {"to": early})).json["detail"]
        assert detail.startswith(f"to {early!r} is before 1970; give ")
    in_seconds = await group.send("POST", "/reset", {"to": 1_385_053_862})
    assert in_seconds.headers["Penstock-Hint"] == "1385053862 is a time in January 1970: give milliseconds"
    assert "Penstock-Hint" not in (await group.send("GET", "")).headers, "no later answer has it"
    assert problem(await group.send("POST", "/reset", {})) == (400, "invalid_body")


async def test_a_reset_ends_tokens_and_needs_an_empty_group(group, topic):
    await topic.post_lines("1", "2")
    first = await group.polled("a", topics=[topic.name])
    assert problem(await group.send("POST", "/reset", {"to": "earliest"})) == (409, "group_not_empty")
    ok(await group.send("POST", "/reset", {"to": "earliest", "force": True}))
    assert problem(await group.poll("a", token=first["token"])) == (409, "stale_token")
    assert values(await group.polled("a")) == [1, 2]


async def test_a_reset_of_all_leaves_out_what_was_deleted(group, new_topic):
    kept, gone = await new_topic(1), await new_topic(1)
    await kept.post_lines("1")
    ok(await group.send("PUT", "/offsets", {"offsets": [entry(kept, 0, 1), entry(gone, 0, 0)]}))
    assert (await group.gateway.send("DELETE", f"/v1/topics/{gone.name}")).status == 204
    assert [row["topic"] for row in ok(await group.send("POST", "/reset", {"to": "earliest"}))["offsets"]] == [
        kept.name
    ]


async def test_a_deleted_group_has_no_positions(group, topic):
    await topic.post_lines("1")
    first = await group.polled("a", topics=[topic.name])
    await group.polled("a", token=first["token"])
    assert problem(await group.send("DELETE")) == (409, "group_not_empty")
    await group.leave("a")
    assert (await group.send("DELETE")).status == 204
    assert problem(await group.send("GET", "/offsets")) == (404, "unknown_group")
    assert values(await group.polled("a", topics=[topic.name])) == [1]


@in_process_only
async def test_without_auto_commit_only_commits_move_the_group(group, topic):
    await topic.post_lines("1", "2")
    await group.send("PUT", "", {"config": {"auto_commit": False}})
    first = await group.polled("a", topics=[topic.name], max_records=1)
    second = await group.polled("a", token=first["token"])
    assert (values(first), values(second)) == ([1], [2])
    assert await group.offsets() == {(topic.name, 0): 0}
    commit = {"member_id": "a", "member_epoch": second["member_epoch"], "offsets": [entry(topic, 0, 1)]}
    ok(await group.send("PUT", "/offsets", commit))
    assert values(await group.polled("a")) == [2]


async def test_positions_of_a_topic_are_deleted_while_the_group_has_no_members(group, new_topic):
    topic = await new_topic(2)
    await topic.post_lines("1", partition=0)
    ok(await group.send("PUT", "/offsets", {"offsets": [entry(topic, 0, 1), entry(topic, 1, 0)]}))
    one = f"/offsets?topic={topic.name}&partition=1"
    for _ in range(2):  # the second time nothing is left to delete
        assert [found["partition"] for found in ok(await group.send("DELETE", one))["offsets"]] == [0]
    ok(await group.heartbeat(member_id="a", topics=[topic.name]))
    assert problem(await group.send("DELETE", f"/offsets?topic={topic.name}")) == (409, "group_not_empty")
    assert await group.offsets() == {(topic.name, 0): 1}
    await group.leave("a")
    assert ok(await group.send("DELETE", f"/offsets?topic={topic.name}"))["offsets"] == []
    assert problem(await group.send("DELETE", "/offsets")) == (400, "invalid_query")
    assert values(await group.polled("a", topics=[topic.name])) == [1]
