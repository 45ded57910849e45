"""Push: signed events in order, repeated until they are taken, from where the subscription is."""

from __future__ import annotations

import asyncio
import errno
import re
import threading
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace

from gateway.subscriptions.hosting import LOOK_S
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, Gateway, in_process_only
from tests.scenarios.push.receiver import SECRET, Receiver
from tests.tokens import add_token, bearer
from tests.waiting import until

PROMPT_S = 60
DELIVERY = {"backoff_ms_min": 10, "backoff_ms_max": 50}

pytestmark = in_process_only


@pytest.fixture
async def node(start_gateway) -> Gateway:
    return await start_gateway(push_targets="127.0.0.0/8", push_http=True)


async def call(node: Gateway, method: str, path: str, document=None):
    body = b"" if document is None else orjson.dumps(document)
    headers = {} if document is None else {"Content-Type": JSON}
    return await node.send(method, f"/v1/subscriptions{path}", body, headers)


async def subscribe(node: Gateway, receiver: Receiver, **fields):
    request = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET], "start": "earliest"} | fields
    return await call(node, "PUT", "/s", request | {"delivery": DELIVERY | fields.get("delivery", {})})


async def wait_committed(node: Gateway, offset: int) -> None:
    """Wait for the answers: what a receiver has taken comes once more if a pause or a replay overtakes its answer."""
    async with asyncio.timeout(PROMPT_S):
        while (await call(node, "GET", "/s")).json["offsets"][0]["offset"] != offset:
            await asyncio.sleep(0.02)


async def test_every_record_comes_signed_and_in_the_order_of_its_key(node, receiver):
    topic = await node.create("t", partitions=3)
    answer = await subscribe(node, receiver)
    assert (answer.status, answer.json["state"]) == (201, "running")
    assert SECRET not in answer.body.decode()
    refused = set()

    def once(events):
        key = events[0]["id"], events[0]["source"]
        if key in refused:
            return None
        refused.add(key)
        return web.Response(status=(500, 429, 503)[len(refused) % 3], headers={"Retry-After": "0"})

    receiver.answer = once
    await topic.post_records(*({"key": f"k{at % 5}", "value": at} for at in range(40)))
    await until(lambda: len(receiver.taken) >= 40)
    for key in range(5):
        mine = [event["data"] for event in receiver.taken if event["partitionkey"] == f"k{key}"]
        assert mine == list(range(key, 40, 5))
    assert len({name for name, _ in receiver.requests}) == 40, "each attempt has the id of its record"


async def test_a_key_that_fails_holds_back_only_its_own_records(node, receiver):
    topic = await node.create("t")
    await subscribe(node, receiver)
    receiver.answer = lambda events: web.Response(status=500) if events[0].get("partitionkey") == "bad" else None
    await topic.post_records({"key": "bad", "value": 1}, {"key": "ok", "value": 2}, {"key": "bad", "value": 3})
    await until(lambda: receiver.values() == [2])
    while (view := (await call(node, "GET", "/s")).json)["state"] != "failing":
        await asyncio.sleep(0.02)
    assert view["offsets"][0]["offset"] == 0
    receiver.answer = lambda events: None
    await until(lambda: receiver.values() == [2, 1, 3])


async def test_batches_filters_and_dead_letters(node, receiver):
    topic, dead = await node.create("t"), await node.create("dead")
    delivery = {"form": "batch", "batch_records_max": 10, "deliveries_max": 2, "dead_letter_topic": "dead"}
    await subscribe(node, receiver, delivery=delivery, filter=['value/n^="x"'])
    await topic.post_records(*({"key": "k", "value": {"n": text}} for text in ("x1", "y", "x2")))
    await until(lambda: [value["n"] for value in receiver.values()] == ["x1", "x2"])
    receiver.answer = lambda events: web.Response(status=400)
    await topic.post_records({"key": "k", "value": {"n": "x3"}})
    await until(lambda: len(receiver.requests) >= 3)
    receiver.answer = lambda events: None
    await topic.post_records({"key": "k", "value": {"n": "x4"}})
    await until(lambda: [value["n"] for value in receiver.values()] == ["x1", "x2", "x4"])
    [letter] = await dead.records()
    assert (letter["value"], letter["key"]) == ({"n": "x3"}, "k")
    named = {name.removeprefix("dead-letter-"): text for name, text in letter["headers"].items()}
    assert named == {
        "subscription": "s", "reason": "the receiver answered 400", "attempts": "2",
        "topic": "t", "topic-id": (await topic.describe())["topic_id"], "partition": "0", "offset": "3",
    }  # fmt: skip
    text = (await node.send("GET", "/metrics")).body.decode()
    counts = dict(re.findall(r'^penstock_subscription_(\w+)\{.*subscription="s".*\} (\d+)', text, re.MULTILINE))
    assert counts == {"dead_letters_total": "1", "failures_total": "2", "waiting_requests": "0"}


async def test_pause_resume_replay_and_delete(node, receiver):
    """The records have a key: without one they have no order."""
    topic = await node.create("t")
    await subscribe(node, receiver)
    await topic.post_records({"key": "k", "value": 1})
    await wait_committed(node, 1)
    assert (await call(node, "POST", "/s/pause")).json["state"] == "paused"
    await topic.post_records({"key": "k", "value": 2})
    assert (await call(node, "POST", "/s/resume")).json["state"] == "running"
    await wait_committed(node, 2)
    assert receiver.values() == [1, 2]
    receiver.taken.clear()
    await call(node, "POST", "/s/replay", {"to": "earliest"})
    await until(lambda: receiver.values() == [1, 2])
    await call(node, "POST", "/s/replay", {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]})
    await until(lambda: receiver.values() == [1, 2, 2])
    in_seconds = await call(node, "POST", "/s/replay", {"to": 1_385_053_862})
    assert in_seconds.headers["Penstock-Hint"] == "1385053862 is a time in January 1970: give milliseconds"
    assert (await call(node, "GET", "")).json["subscriptions"][0]["subscription"] == "s"
    for path in ("partitions/0/records?from=earliest", "table", "table/a"):
        answer = await node.send("GET", f"/v1/topics/__groups/{path}")
        assert_problem(answer, "invalid_topic_name")
    assert (await node.send("GET", "/v1/groups")).json["groups"] == []
    assert (await call(node, "DELETE", "/s")).status == 204
    assert_problem(await call(node, "GET", "/s"), "unknown_subscription")


async def test_a_patch_changes_what_it_names_and_keeps_the_position(node, receiver):
    topic = await node.create("t")
    await subscribe(node, receiver, filter=['value^="x"'])
    await topic.post_records({"value": "x1"}, {"value": "y"})
    await until(lambda: receiver.values() == ["x1"])
    await wait_committed(node, 2)
    before = (await call(node, "GET", "/s")).json
    other = PausingReceiver(node)
    await other.start()
    changes = {"url": other.url, "delivery": {"form": "batch"}, "filter": []}
    answer = await call(node, "PATCH", "/s", changes)
    assert answer.status == 200, answer.body
    unchanged = {"url": other.url, "filter": [], "delivery": before["delivery"] | {"form": "batch"}}
    assert {name: answer.json[name] for name in unchanged} == unchanged
    assert (answer.json["offsets"], answer.json["secrets"]) == (before["offsets"], 1)
    assert answer.json["state"] == "paused", "the handshake paused it, and the change that began before keeps that"
    await topic.post_records({"value": "z"})
    await call(node, "POST", "/s/resume")
    await until(lambda: other.values() == ["z"])
    assert receiver.values() == ["x1"]
    await other.stop()


class PausingReceiver(Receiver):
    """Pauses the subscription while it answers the handshake."""

    def __init__(self, node: Gateway) -> None:
        super().__init__([SECRET])
        self._node = node

    async def _options(self, request: web.Request) -> web.Response:
        assert (await call(self._node, "POST", "/s/pause")).status == 200
        return await super()._options(request)


async def test_a_patch_that_is_refused_changes_nothing(node, receiver, start_gateway):
    await node.create("t")
    assert_problem(await call(node, "PATCH", "/s", {"filter": []}), "unknown_subscription")
    await subscribe(node, receiver)
    before = (await call(node, "GET", "/s")).json
    receiver.allowed_origin = None
    elsewhere = receiver.url + "2"
    for changes, code in (
        ({"url": "http://10.0.0.1/"}, "target_not_allowed"),
        ({"url": elsewhere}, "target_not_confirmed"),
        ({"topics": ["u"]}, "unknown_field"),
        ({"delivery": {"timeout": 1}}, "unknown_field"),
        ({"delivery": {"deliveries_max": 3}}, "invalid_body"),
        ({"delivery": {"deliveries_max": 3, "dead_letter_topic": "none"}}, "unknown_topic"),
        ({"delivery": {"deliveries_max": 3, "dead_letter_topic": "__groups"}}, "invalid_topic_name"),
        ({"filter": ["nonsense"]}, "invalid_body"),
        ({"secrets": ["x"]}, "invalid_body"),
        ({}, "invalid_body"),
    ):
        assert_problem(await call(node, "PATCH", "/s", changes), code)
    shown = ("url", "filter", "delivery", "secrets", "offsets")
    after = (await call(node, "GET", "/s")).json
    assert [after[name] for name in shown] == [before[name] for name in shown]
    put = {"url": receiver.url, "topics": ["t"], "delivery": {"timeout": 1}}
    assert_problem(await call(node, "PUT", "/s", put), "unknown_field")
    off = await start_gateway()
    assert_problem(await call(off, "PATCH", "/s", {"filter": []}), "push_disabled")


async def test_a_secret_is_shown_once_and_two_sign_while_it_is_replaced(node, receiver):
    topic = await node.create("t")
    made = (await call(node, "PUT", "/s", {"url": receiver.url, "topics": ["t"]})).json["secret"]
    again = await call(node, "PUT", "/s", {"url": receiver.url, "topics": ["t"]})
    assert (again.status, "secret" in again.json, again.json["secrets"]) == (200, False, 1)
    receiver.secrets = [SECRET, made]
    await call(node, "PUT", "/s", {"url": receiver.url, "topics": ["t"], "secrets": [SECRET, made]})
    await topic.post_records({"value": 1})
    await until(lambda: receiver.values() == [1])


async def test_targets_that_are_not_allowed_get_nothing(node, receiver, start_gateway):
    await node.create("t")
    for url in ("http://10.0.0.1/", "http://localhost/", "http://[::1]/", "ftp://127.0.0.1/", "http://a@127.0.0.1/"):
        refused = await call(node, "PUT", "/s", {"url": url, "topics": ["t"]})
        assert_problem(refused, "target_not_allowed")
        assert "push_targets" in refused.json["hint"]
    receiver.allowed_origin = None
    answer = await call(node, "PUT", "/s", {"url": receiver.url, "topics": ["t"]})
    assert_problem(answer, "target_not_confirmed")
    assert_problem(await call(node, "GET", "/s"), "unknown_subscription")
    bad = {"url": receiver.url, "topics": ["t"], "secrets": ["x"]}
    assert_problem(await call(node, "PUT", "/s", bad), "invalid_body")
    assert_problem(await call(node, "PUT", "/s", {"url": receiver.url, "topics": ["none"]}), "unknown_topic")
    off = await start_gateway()
    assert_problem(await call(off, "PUT", "/s", {"url": receiver.url, "topics": ["t"]}), "push_disabled")


@pytest.fixture
async def other() -> AsyncIterator[Receiver]:
    """Another receiver, to which a subscription may be changed."""
    receiver = Receiver([SECRET])
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def failing(node, receiver) -> None:
    """A subscription whose first delivery has failed and is tried again."""
    receiver.answer = lambda events: web.Response(status=500)
    topic = await node.create("t")
    await subscribe(node, receiver)
    await topic.post_records({"value": 1})
    await until(lambda: receiver.requests)


async def test_a_change_that_a_full_disk_cannot_store_delivers_nothing(node, receiver, other, failing, monkeypatch):
    with monkeypatch.context() as planted:
        planted.setattr(node.node.shard.disk, "pwritev", full)
        assert_problem(await call(node, "PATCH", "/s", {"url": other.url}), "storage_full", no_side_effects=True)
        assert_problem(await call(node, "POST", "/s/pause"), "storage_full", no_side_effects=True)
        assert_problem(await call(node, "DELETE", "/s"), "storage_full", no_side_effects=True)
    receiver.answer = lambda events: None
    await until(lambda: receiver.values() == [1])
    assert (await call(node, "GET", "/s")).json["url"] == receiver.url
    assert other.requests == []


async def test_a_change_whose_sync_takes_long_delivers_nothing_before_it_is_stored(node, other, failing, monkeypatch):
    disk, may_sync = node.node.shard.disk, threading.Event()
    sync = disk.fdatasync
    with monkeypatch.context() as planted:
        planted.setattr(disk, "fdatasync", lambda handle: (may_sync.wait(30), sync(handle)))
        change = asyncio.create_task(call(node, "PATCH", "/s", {"url": other.url}))
        await asyncio.sleep(3 * LOOK_S)
        assert not change.done()
        assert other.requests == []
        may_sync.set()
        assert (await change).status == 200
    await until(lambda: other.values() == [1])


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "planted")


async def test_a_dead_letter_topic_is_one_that_the_token_may_write_to(tmp_path, start_gateway, receiver):
    path = tmp_path / "tokens.toml"
    reader = add_token(path, "reader", read=[""], write=["mine."])
    boss = bearer(add_token(path, "boss", admin=[""]))
    node = await start_gateway(push_targets="127.0.0.0/8", push_http=True, tokens_file=str(path))
    for topic in ("t", "mine.dead", "other"):
        created = await node.send("PUT", f"/v1/topics/{topic}", b"{}", boss | {"Content-Type": JSON})
        assert created.status == 201, created.body

    async def put(dead_letter_topic):
        request = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET]}
        request["delivery"] = {"deliveries_max": 1, "dead_letter_topic": dead_letter_topic}
        headers = bearer(reader) | {"Content-Type": JSON}
        return await node.send("PUT", "/v1/subscriptions/s", orjson.dumps(request), headers)

    assert_problem(await put("other"), "forbidden", right="write", topic="other")
    assert_problem(await put("__groups"), "invalid_topic_name")
    assert_problem(await put("mine.none"), "unknown_topic")
    assert (await put("mine.dead")).status == 201


async def test_a_coordinator_has_a_limit_of_subscriptions(start_gateway, receiver):
    settings = {"push_targets": "127.0.0.0/8", "push_http": True, "groups_partitions": 1, "subscriptions_max": 1}
    node = await start_gateway(**settings)
    await node.create("t")
    request = {"url": receiver.url, "topics": ["t"]}
    assert (await call(node, "PUT", "/one", request)).status == 201
    assert_problem(await call(node, "PUT", "/two", request), "too_many_members", limit=1)
    assert (await call(node, "PUT", "/one", request)).status == 200


async def test_a_receiver_that_is_gone_pauses_its_subscription(node, receiver):
    """Standard Webhooks: 410 asks for no more deliveries. Before the fix they went on for as long as the topic grew."""
    receiver.answer = lambda events: web.Response(status=410)
    topic = await node.create("t")
    await subscribe(node, receiver)
    await topic.post_records({"value": 1})
    async with asyncio.timeout(PROMPT_S):
        while (shown := (await call(node, "GET", "/s")).json)["state"] != "paused":
            await asyncio.sleep(0.02)
    assert "410 (Gone)" in shown["last_error"]
    assert (await call(node, "GET", "")).json["subscriptions"][0]["last_error"] == shown["last_error"]
    await asyncio.sleep(2 * LOOK_S)
    count = len(receiver.requests)
    await asyncio.sleep(0.2)
    assert len(receiver.requests) == count
    receiver.answer = lambda events: None
    resumed = await call(node, "POST", "/s/resume")
    assert "Gone" not in resumed.json["last_error"]
    await until(lambda: receiver.values() == [1])


async def test_an_answer_whose_head_has_come_is_delivered_whatever_its_body_does(node):
    """Before the fix a body that broke off made the receiver take the record again and again."""
    heads = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"OPTIONS"):
            writer.write(b"HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: *\r\nContent-Length: 0\r\n\r\n")
        else:
            heads.append(head)
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    topic = await node.create("t")
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    put = await call(node, "PUT", "/s", {"url": url, "topics": ["t"], "start": "earliest", "delivery": DELIVERY})
    assert put.status == 201, put.body
    await topic.post_records({"value": 1})
    await wait_committed(node, 1)
    server.close()
    assert len(heads) == 1


async def test_an_error_of_a_delivery_is_the_last_error(node, receiver, monkeypatch):
    topic = await node.create("t")
    put = {"url": "http://hook.example/", "topics": ["t"], "start": "earliest", "delivery": DELIVERY}
    sender = node.node.server.push.sender
    monkeypatch.setattr(sender, "allowed", sender.allowed._replace(hosts=frozenset(["hook.example"])))
    monkeypatch.setattr("gateway.subscriptions.routes.confirm", _confirm)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", _private)
    assert (await call(node, "PUT", "/s", put)).status == 201
    await topic.post_records({"value": 1})
    async with asyncio.timeout(PROMPT_S):
        while "no address of hook.example is allowed" not in (await call(node, "GET", "/s")).json["last_error"]:
            await asyncio.sleep(0.02)


async def _confirm(*_: object) -> None:
    """Confirms any target."""


async def _private(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
    return [(2, 1, 6, "", ("10.0.0.1", 80))]


async def test_a_secret_that_cannot_sign_is_refused_when_it_is_set(node, receiver):
    """Its deliveries failed at every attempt, with an error of the base64 module."""
    await node.create("t")
    await subscribe(node, receiver)
    for secret in ("whsec_" + "A" * 33, "whsec_" + "A" * 37 + "="):
        put = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET, secret]}
        assert "secret 1" in assert_problem(await call(node, "PUT", "/s", put), "invalid_body")["detail"]
        assert_problem(await call(node, "PATCH", "/s", {"secrets": [secret]}), "invalid_body")


async def test_a_token_without_rights_learns_no_subscription(tmp_path, start_gateway, receiver):
    """Before the fix a name that exists was 403 with the name of its topic, and another one 404."""
    path = tmp_path / "tokens.toml"
    boss = bearer(add_token(path, "boss", admin=[""], read=[""])) | {"Content-Type": JSON}
    other = bearer(add_token(path, "other", read=["mine."])) | {"Content-Type": JSON}
    node = await start_gateway(push_targets="127.0.0.0/8", push_http=True, tokens_file=str(path))
    for topic in ("secret", "mine.t"):
        await node.send("PUT", f"/v1/topics/{topic}", b"{}", boss)
    request = {"url": receiver.url, "topics": ["secret"], "secrets": [SECRET]}
    assert (await node.send("PUT", "/v1/subscriptions/s", orjson.dumps(request), boss)).status == 201
    for method, tail, body in (
        ("GET", "", b""), ("DELETE", "", b""), ("PATCH", "", b'{"filter":[]}'), ("POST", "/pause", b""),
        ("POST", "/resume", b""), ("POST", "/replay", b'{"to":"latest"}'),
    ):  # fmt: skip
        seen, none = [await node.send(method, f"/v1/subscriptions/{name}{tail}", body, other) for name in ("s", "n")]
        assert_problem(seen, "unknown_subscription")
        assert seen.json["detail"].replace("'s'", "'n'") == none.json["detail"]
    refused = await node.send("PUT", "/v1/subscriptions/s", orjson.dumps(request | {"topics": ["mine.t"]}), other)
    assert "secret" not in assert_problem(refused, "forbidden", right="read")["detail"]


async def test_a_topic_that_is_created_again_is_delivered_from_its_start(node, receiver):
    """Once with more records than the position of the old topic, and once with fewer."""
    topic = await node.create("t")
    await topic.post_lines(*(f'"r{n}"' for n in range(5)))
    await subscribe(node, receiver, start="latest", topics=["t"])
    await call(node, "POST", "/s/replay", {"to": "earliest"})
    await until(lambda: len(receiver.taken) == 5)
    await wait_committed(node, 5)
    for name, count in (("n", 8), ("m", 2)):
        assert (await node.send("DELETE", "/v1/topics/t")).status == 204
        topic = await node.create("t")
        await topic.post_lines(*(f'"{name}{n}"' for n in range(count)))
        await until(lambda name=name, count=count: len(of(receiver, name)) >= count)
        assert of(receiver, name) == [f"{name}{n}" for n in range(count)]
        await wait_committed(node, count)
    view = (await call(node, "GET", "/s")).json
    assert (view["state"], len(view["offsets"])) == ("running", 1)


async def test_a_position_above_a_log_that_became_shorter_is_reset_to_its_end(node, receiver):
    topic = await node.create("t")
    await topic.post_lines('"a"')
    await subscribe(node, receiver)
    await wait_committed(node, 1)
    await call(node, "POST", "/s/pause")
    hosted = next(iter(node.node.groups._hosted.values()))
    group = hosted.coordinator.groups["push:s"]
    slot, committed = next(iter(group.offsets.items()))
    group.offsets[slot] = replace(committed, offset=100)  # as after an unclean election
    await call(node, "POST", "/s/resume")
    await wait_committed(node, 1)
    await topic.post_lines('"b"')
    await until(lambda: "b" in receiver.values())


def of(receiver: Receiver, name: str) -> list[str]:
    """Return the values of one of the topics, each once: deliveries may be repeated."""
    return list(dict.fromkeys(value for value in receiver.values() if str(value).startswith(name)))
