"""Whatever changes something is in the audit trail before it is done, and is not done if it cannot be there."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from gateway.audit.trail import NO_CHANGES
from gateway.rest_proxy.routes import V2, V3
from gateway.server.routes import ROUTES
from openapi import load_contract, operations
from tests.e2e.node_process import running_process
from tests.scenarios.admin.audited import CHANGES, FENCE, SECRET, SETTINGS, events_in, make, state_of
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import Topic, in_process, over_http2
from tests.tokens import add_token, bearer

KINDS = "penstock.audit.v1."
NEVER = 10**9


def test_every_operation_that_is_no_reading_is_tried_here_or_is_named_as_no_change():
    """A new operation that changes something calls `Request.intend` before it does, and is added to CHANGES."""
    changing = {one.operation_id for one in operations(load_contract()) if one.method != "GET"} - NO_CHANGES
    assert {change.operation for change in CHANGES} == changing
    assert {handler.__name__ for _, _, _, handler in [*ROUTES, *V2, *V3]} >= NO_CHANGES


async def test_nothing_is_changed_that_the_trail_does_not_take(tmp_path, monkeypatch):
    rule = Rule("pwritev", "audit-", first=NEVER, error=errno.EIO)
    monkeypatch.setattr("node.processes.server.RealDisk", lambda: FaultyDisk(RealDisk(), [rule]))
    async with in_process(tmp_path, **SETTINGS) as gateway:
        for change in CHANGES:
            before = await state_of(gateway)
            rule.first = rule.matched + 1
            answer = await make(gateway, change)
            assert_problem(answer, "audit_unavailable", retryable=True, no_side_effects=True)
            assert "Input/output error" in answer.json["detail"]
            assert await state_of(gateway) == before, change
            rule.first = NEVER
            assert (await make(gateway, change)).status == change.status, change
        assert await gateway.metric("penstock_audit_failures_total") == len(CHANGES)


async def test_a_change_whose_end_is_not_taken_is_answered_as_what_it_is(tmp_path, monkeypatch):
    rule = Rule("pwritev", "audit-", first=3, error=errno.ENOSPC)  # after the start and what was intended
    monkeypatch.setattr("node.processes.server.RealDisk", lambda: FaultyDisk(RealDisk(), [rule]))
    monkeypatch.setattr("gateway.audit.audit_file.claim_spare", lambda *_: None)
    async with in_process(tmp_path, **SETTINGS) as gateway:
        assert (await make(gateway, CHANGES[0])).status == 201
        assert (await gateway.send("GET", "/v1/topics/t")).status == 200
        assert await gateway.metric("penstock_audit_failures_total") == 1
    kinds = [event["type"].removeprefix(KINDS) for event in events_in(tmp_path / "data/audit")]
    assert kinds == ["started", "change.intended"]


async def check_trail(gateway, directory: Path) -> None:
    for change in CHANGES:
        seen = len(events_in(directory))
        answer = await make(gateway, change, {"X-Request-Id": f"mine-{change.operation}"})
        assert answer.status == change.status, (change, answer.body)
        intended, ended = events_in(directory)[seen:]  # both, by the time of the answer
        assert [event["type"] for event in (intended, ended)] == [KINDS + "change.intended", KINDS + "change.ended"]
        for event in (intended, ended):
            data = event["data"]
            assert data["operation"] == change.operation
            assert data["client_request_id"] == f"mine-{change.operation}" != data["request_id"]
            assert data["address"] == "127.0.0.1"
        assert intended["data"]["request_id"] == ended["data"]["request_id"]
        is_shown = (intended["data"]["before"], intended["data"]["after"]) != (None, None)
        assert is_shown or change.operation == "roll_topic"
        assert ended["data"]["outcome"] == ("done" if change.status < 300 else "failed")
    text = b"".join(file.read_bytes() for file in directory.iterdir())
    assert not [secret for secret in (FENCE, SECRET, "whsec_", "firma-7f3c9d", "sha256") if secret.encode() in text]


async def test_every_change_is_in_the_trail_by_its_answer(tmp_path):
    async with in_process(tmp_path, **SETTINGS) as gateway:
        await check_trail(gateway, tmp_path / "data/audit")


@pytest.mark.e2e
async def test_every_change_is_in_the_trail_by_its_answer_over_two_shards_and_http2(tmp_path):
    with running_process(tmp_path, shards=2, **SETTINGS) as process:
        async with over_http2(process.port) as gateway:
            await check_trail(gateway, tmp_path / "data/audit")
        assert process.stop() == 0


async def test_what_is_invalid_or_changes_nothing_is_not_in_the_trail(tmp_path):
    async with in_process(tmp_path, **SETTINGS) as gateway:
        topic = await gateway.create("t")
        seen = len(events_in(tmp_path / "data/audit"))
        for method, path, body in (
            ("PATCH", "/v1/topics/t", b'{"config":{"retention_ms":1}}'),
            ("PATCH", "/v1/topics/missing", b'{"partitions":2}'),
            ("DELETE", "/v1/topics/__groups", b""),
            ("POST", "/v1/access/rules", b"{"),
            ("POST", "/v1/cluster/balance", b"{}"),
            ("GET", "/v1/topics", b""),
        ):
            await gateway.send(method, path, body, {"Content-Type": "application/json"} if body else {})
        assert (await topic.post_records({"value": 1})).status == 200
        assert len(events_in(tmp_path / "data/audit")) == seen


async def test_a_client_that_leaves_leaves_its_change_with_an_unknown_end(tmp_path, monkeypatch):
    held = asyncio.Event()

    async def never(*_: object) -> None:
        held.set()
        await asyncio.Event().wait()

    async with in_process(tmp_path, **SETTINGS) as gateway:
        await gateway.create("t")
        monkeypatch.setattr(gateway.node.topics, "delete", never)
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"DELETE /v1/topics/t HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await held.wait()
        writer.close()
        for _ in range(200):
            last = events_in(tmp_path / "data/audit")[-1]["data"]
            if last.get("outcome") == "unknown":
                break
            await asyncio.sleep(0.02)
        assert (last["operation"], last["outcome"]) == ("delete_topic", "unknown")


async def test_denials_and_refused_credentials_are_reported_once_and_then_counted(tmp_path):
    path = tmp_path / "tokens.toml"
    boss, weak = add_token(path, "boss", admin=[""], read=[""]), add_token(path, "weak", write=["w"])
    settings = {"tokens_file": str(path), "superusers": "token:boss", "bad_attempts_burst": 5}
    async with in_process(tmp_path, **settings) as gateway:
        for _ in range(4):
            assert (await gateway.send("DELETE", "/v1/topics/t", headers=bearer(weak))).status == 403
        inside = {"Penstock-Tenant": "acme", **bearer(weak)}
        assert (await gateway.send("GET", "/v1/topics", headers=inside)).status == 403
        body = b'{"records":[{"topic":"x","value":1}]}'
        given = {"Content-Type": "application/json", **bearer(weak)}
        assert (await gateway.send("POST", "/v1/records", body, given)).status in (403, 404)
        for number in range(7):
            answer = await gateway.send("GET", "/v1/topics", headers=bearer(f"penstock_wrong{number}"))
            assert answer.status == (401 if number < 5 else 429), answer.body
        assert answer.headers["Retry-After"] == "1"
        assert (await gateway.send("GET", "/v1/topics")).status == 401
        for _ in range(3):
            assert (await gateway.send("GET", "/v1/topics/t", headers=bearer(boss))).status == 429
    events = [
        event["data"] | {"kind": event["type"].removeprefix(KINDS)} for event in events_in(tmp_path / "data/audit")
    ]
    counts: dict[str, list[int]] = {}
    for event in events[1:]:
        counts.setdefault(event["kind"], []).append(event["count"])
    assert sum(counts["denied"]) >= 4
    assert counts["refused"] == [1, 5], "one of them had no credential at all"
    assert sum(counts["limited"]) == 5
    assert {event["principal"] for event in events if event["kind"] == "denied"} == {"token:weak"}
    denied = next(event for event in events if event["kind"] == "denied")
    assert (denied["principal"], denied["resource"], denied["rule"]) == (
        "token:weak",
        {"kind": "topic", "name": "t"},
        None,
    )
    refused = next(event for event in events if event["kind"] == "refused")
    assert (refused["principal"], refused["address"]) == (None, "127.0.0.1")
    text = b"".join(file.read_bytes() for file in (tmp_path / "data/audit").iterdir())
    assert b"penstock_wrong" not in text
    assert weak[18:].encode() not in text


async def test_each_use_of_a_superuser_is_in_the_trail_or_counted(tmp_path):
    path = tmp_path / "tokens.toml"
    boss, other = add_token(path, "boss"), add_token(path, "other", read=[""])
    async with in_process(tmp_path, tokens_file=str(path), superusers="token:boss") as gateway:
        for token in (boss, boss, boss, other):
            assert (await gateway.send("GET", "/v1/topics", headers=bearer(token))).status == 200
    events = [event["data"] for event in events_in(tmp_path / "data/audit") if event["type"].endswith("superuser")]
    assert [(event["principal"], event["operation"], event["count"]) for event in events] == [
        ("token:boss", "list_topics", 1),
        ("token:boss", "list_topics", 2),
    ]


async def test_the_trail_is_off_without_tokens_and_can_be_switched_off_with_them(tmp_path):
    path = tmp_path / "tokens.toml"
    boss = add_token(path, "boss", admin=[""])
    async with in_process(tmp_path / "a") as gateway:
        await gateway.create("t")
    async with in_process(tmp_path / "b", tokens_file=str(path), audit="off") as gateway:
        assert (await gateway.send("PUT", "/v1/topics/t", headers=bearer(boss))).status == 201
    assert not list(tmp_path.glob("*/data/audit"))


async def test_a_topic_that_a_produce_creates_is_in_the_trail(tmp_path, monkeypatch):
    rule = Rule("pwritev", "audit-", first=NEVER, error=errno.EIO)
    monkeypatch.setattr("node.processes.server.RealDisk", lambda: FaultyDisk(RealDisk(), [rule]))
    async with in_process(tmp_path, auto_create_topics=True, **SETTINGS) as gateway:
        topic = Topic(gateway, "new")
        rule.first = rule.matched + 1
        assert_problem(await topic.post_records({"value": 1}), "audit_unavailable", retryable=True)
        assert (await gateway.send("GET", topic.path)).status == 404
        rule.first = NEVER
        assert (await topic.post_records({"value": 1})).status == 200
        assert (await topic.post_records({"value": 2})).status == 200
    events = [event["data"] for event in events_in(tmp_path / "data/audit")][1:]
    found = [(event["operation"], event["right"], event["resource"]["name"]) for event in events]
    assert found == [("produce", "auto_create", "new")] * 2
    assert events[1]["outcome"] == "done"
