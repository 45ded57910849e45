"""Heartbeats, leaving, limits and rights."""

from __future__ import annotations

from tests.scenarios.gateways import in_process_only
from tests.scenarios.groups.group_client import GroupClient, ok, problem
from tests.tokens import add_token, bearer


async def test_the_server_names_a_member_without_a_name(group, topic):
    first = ok(await group.heartbeat(topics=[topic.name]))
    again = await group.heartbeat(member_id=first["member_id"], member_epoch=first["member_epoch"])
    assert ok(again)["member_id"] == first["member_id"]


@in_process_only
async def test_a_group_has_a_limit_of_members(start_gateway):
    gateway = await start_gateway(group_members_max=1)
    topic = await gateway.create("t")
    group = GroupClient(gateway, "g")
    await group.polled("a", topics=[topic.name])
    assert problem(await group.poll("b", topics=[topic.name])) == (409, "too_many_members")


@in_process_only
async def test_a_coordinator_has_a_limit_of_groups(start_gateway):
    gateway = await start_gateway(groups_max=1, groups_partitions=1)
    topic = await gateway.create("t")
    await GroupClient(gateway, "g").polled("a", topics=[topic.name])
    assert problem(await GroupClient(gateway, "h").poll("a", topics=[topic.name])) == (409, "too_many_members")


@in_process_only
async def test_a_member_needs_the_right_to_its_group_and_to_its_topics(start_gateway, tmp_path):
    path = tmp_path / "tokens.toml"
    tokens = {
        "admin": add_token(path, "admin", admin=[""], write=[""]),
        "member": add_token(path, "member", read=["t"], group=["shop."]),
        "reader": add_token(path, "reader", read=["t"]),
        "other": add_token(path, "other", read=["u"], group=["shop."]),
    }
    gateway = await start_gateway(tokens_file=str(path))
    created = await gateway.send("PUT", "/v1/topics/t", b"{}", bearer(tokens["admin"]))
    assert created.status == 201

    def as_(token: str, name: str = "shop.g") -> GroupClient:
        return GroupClient(gateway, name, bearer(tokens[token]))

    await as_("member").polled("a", topics=["t"])
    assert problem(await as_("reader").poll("a", topics=["t"])) == (403, "forbidden")
    assert problem(await as_("other").poll("a", topics=["t"])) == (403, "forbidden")
    assert problem(await as_("other").poll("a")) == (403, "forbidden")  # it may not read what the member reads
    assert problem(await as_("member", "bank.g").poll("a", topics=["t"])) == (403, "forbidden")
    listed = await gateway.send("GET", "/v1/groups", b"", bearer(tokens["reader"]))
    assert listed.json == {"groups": [], "total": 0, "next": None, "limited_to": {"right": "group", "prefixes": []}}
