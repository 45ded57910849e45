"""Topics of members by regular expression."""

from __future__ import annotations

import pytest

from tests.scenarios.gateways import in_process_only
from tests.scenarios.groups.group_client import GroupClient, problem
from tests.tokens import add_token, bearer

pytest.importorskip("re2")


async def test_a_member_reads_topics_by_expression_and_those_that_come_later(group, new_topic):
    first = await new_topic(1)
    prefix = first.name
    await first.post_lines("1")
    pattern = f"{prefix}.*"
    answer = await group.polled("a", topics_pattern=pattern, topics_exclude=".*-not", wait_ms=10_000)
    assert list(answer["topic_ids"]) == [prefix]
    described = (await group.describe())["members"][0]
    assert (described["topics_pattern"], described["topics_exclude"]) == (pattern, ".*-not")
    for suffix in ("-later", "-not"):
        await first.gateway.create(f"{prefix}{suffix}")
    token = answer["token"]
    while len(answer["topic_ids"]) < 2:  # a poll takes over the new topic once the coordinator has found it
        answer = await group.polled("a", token=token, wait_ms=2_000)
        token = answer["token"]
    assert sorted(answer["topic_ids"]) == [prefix, f"{prefix}-later"]


async def test_a_wrong_expression_is_refused_with_its_position(group):
    for answer in (
        await group.poll("a", topics_pattern="orders.(eu"),
        await group.heartbeat(member_id="a", topics_pattern="orders.(eu"),
        await group.heartbeat(member_id="a", topics_pattern=".*", topics_exclude="orders.(eu"),
    ):
        assert problem(answer) == (400, "invalid_pattern")
        assert answer.json["position"] == 7
    assert problem(await group.poll("a", topics_exclude="x")) == (400, "invalid_body")
    assert problem(await group.poll("a", topics_pattern="x" * 1001)) == (400, "invalid_body")
    assert problem(await group.send("GET")) == (404, "unknown_group")


@in_process_only
async def test_only_topics_that_the_token_may_read_are_read(start_gateway, tmp_path):
    path = tmp_path / "tokens.toml"
    admin = add_token(path, "admin", admin=[""], write=[""])
    member = add_token(path, "member", read=["t."], group=[""])
    nobody = add_token(path, "nobody", group=[""])
    gateway = await start_gateway(tokens_file=str(path))
    for name in ("t.1", "u.1"):
        assert (await gateway.send("PUT", f"/v1/topics/{name}", b"{}", bearer(admin))).status == 201
    answer = await GroupClient(gateway, "g", bearer(member)).polled("a", topics_pattern=".*")
    assert list(answer["topic_ids"]) == ["t.1"]
    assert problem(await GroupClient(gateway, "g", bearer(nobody)).poll("b", topics_pattern=".*")) == (403, "forbidden")


@in_process_only
async def test_a_node_without_the_library_says_so(group, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gateway.groups.core.expressions.re2", None)
    assert problem(await group.poll("a", topics_pattern=".*")) == (501, "patterns_unavailable")
