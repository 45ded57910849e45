"""The life of a topic: created, described, altered, rolled, deleted, created again."""

import asyncio
import json

import orjson
import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, Topic, in_process_only


async def put(gateway, name, **wish):
    body = json.dumps(wish).encode() if wish else b""
    return await gateway.send("PUT", f"/v1/topics/{name}", body, {"Content-Type": JSON})


async def test_a_topic_needs_nothing_but_a_name(gateway, new_name):
    name = new_name()
    created = await gateway.send("PUT", f"/v1/topics/{name}")
    assert created.status == 201
    assert len(created.json["partitions"]) == 1
    assert (await gateway.send("GET", f"/v1/topics/{name}")).json == created.json


async def test_creating_the_same_topic_again_confirms_it(gateway, new_name):
    name = new_name()
    first = await put(gateway, name, partitions=2, config={"compression": "zstd"})
    again = await put(gateway, name, partitions=2, config={"compression": "zstd"})
    assert (first.status, again.status) == (201, 200)
    assert first.json["topic_id"] == again.json["topic_id"]


@in_process_only
async def test_settings_at_their_defaults_are_the_same_as_settings_left_out(gateway, new_name):
    name = new_name()
    await put(gateway, name)
    assert (await put(gateway, name, partitions=1, replication_factor=1, config={"flush_ms": 20})).status == 200


@pytest.mark.parametrize("wish", [{"partitions": 3}, {"config": {"compression": "zstd"}}])
async def test_creating_another_topic_of_that_name_is_refused(gateway, new_name, wish):
    name = new_name()
    await put(gateway, name, partitions=2)
    assert_problem(await put(gateway, name, **wish), "topic_exists", retryable=False)


async def test_one_of_many_who_create_at_once_creates_it(gateway, new_name):
    name = new_name()
    answers = await asyncio.gather(*(put(gateway, name, partitions=2) for _ in range(10)))
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201]
    assert len({answer.json["topic_id"] for answer in answers}) == 1


@in_process_only
@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 200, "..."])
async def test_names_that_can_be(gateway, name):
    assert (await put(gateway, name)).status == 201
    topic = Topic(gateway, name)
    await topic.post_lines("1")
    assert await topic.values() == [1]
    assert (await gateway.send("DELETE", topic.path)).status == 204


@in_process_only
@pytest.mark.parametrize(
    "name", ["__internal", "x" * 201, "a%2Fb", "a%20b", "caf%C3%A9", "%2E", "%2e%2e", "a%00b", "a:b"]
)
async def test_names_that_cannot_be(gateway, name):
    answer = await put(gateway, name)
    assert answer.status in (400, 404)
    if answer.status == 400:
        assert_problem(answer, "invalid_topic_name")


@in_process_only
@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"partitions": 0}, "invalid_config"),
        ({"partitions": 10_001}, "invalid_config"),
        ({"partitions": "3"}, "invalid_body"),
        ({"partitions": None}, "invalid_body"),
        ({"partitions": 2.5}, "invalid_body"),
        ({"partitions": 10**30}, "invalid_config"),
        ({"replication_factor": 2}, "invalid_config"),
        ({"config": []}, "invalid_body"),
        ({"config": {"retention": 1}}, "invalid_config"),
        ({"config": {"retention_ms": 1}}, "invalid_config"),
        ({"config": {"retention_ms": "1 week"}}, "invalid_config"),
        ({"config": {"delete_retention_ms": 1}}, "invalid_config"),
        ({"config": {"min_cleanable_dirty_percent": 10}}, "invalid_config"),
        ({"config": {"cleanup_policy": "compact", "retention_ms": 60_000}}, "invalid_config"),
        ({"config": {"cleanup_policy": "compact", "local_retention_bytes": 0}}, "invalid_config"),
        ({"config": {"retention_wait_max_ms": 60_000}}, "invalid_config"),
        ({"config": {"flush_ms": None}}, "invalid_config"),
        ({"config": {"flush_ms": True}}, "invalid_config"),
        ({"config": {"compression": "brotli"}}, "invalid_config"),
        ({"config": {"segment_bytes": 65_536, "batch_bytes_max": 65_537}}, "invalid_config"),
        ({"config": {"batch_bytes_max": 2_000, "record_bytes_max": 2_001}}, "invalid_config"),
        ({"config": {"min_insync_replicas": 0}}, "invalid_config"),
        ({"colour": "red"}, "unknown_field"),
    ],
    ids=str,
)
async def test_a_wish_that_cannot_be_is_refused_and_leaves_no_topic(gateway, new_name, wish, code):
    name = new_name()
    assert_problem(await put(gateway, name, **wish), code)
    assert_problem(await gateway.send("GET", f"/v1/topics/{name}"), "unknown_topic")


@in_process_only
@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"{", JSON, "malformed_json"),
        (b'{"partitions":1,}', JSON, "malformed_json"),
        (b'{"config":{"compression":"\xff"}}', JSON, "invalid_utf8"),
        (b"[]", JSON, "invalid_body"),
        (b"1", JSON, "invalid_body"),
        (b'{"config":{"a":' + b"[" * 100_000, JSON, "json_too_complex"),
        (b"<topic/>", "application/xml", "unsupported_media_type"),
        (b"{}", "text/plain", "unsupported_media_type"),
    ],
)
async def test_a_body_that_is_no_wish_is_refused(gateway, new_name, body, content_type, code):
    path = f"/v1/topics/{new_name()}"
    assert_problem(await gateway.send("PUT", path, body, {"Content-Type": content_type}), code)
    assert_problem(await gateway.send("GET", path), "unknown_topic")


@in_process_only
@pytest.mark.parametrize("name", ["a%2Fpartitions", "a%20b", "..%2Fx"])
async def test_a_name_that_no_topic_can_have_is_not_said_to_be_creatable(gateway, name):
    """The hint named another route: `PUT /v1/topics/a/partitions`."""
    answer = assert_problem(await gateway.send("GET", f"/v1/topics/{name}"), "unknown_topic")
    assert "PUT" not in answer["detail"]
    assert "A-Z a-z" in answer["detail"]


async def test_a_wish_may_be_sent_as_plain_curl_does(gateway, new_name):
    """`curl -d '{…}'` declares form data; this endpoint takes no forms, so JSON is accepted."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await gateway.send("PUT", f"/v1/topics/{new_name()}", b'{"partitions":2}', headers)
    assert len(answer.json["partitions"]) == 2


async def test_topics_are_listed_by_name(gateway, new_name):
    mine = new_name()
    for end in ("b", "a", "C", "a.1"):
        await gateway.create(f"{mine}.{end}", 2)
    topics = [one for one in (await gateway.send("GET", "/v1/topics")).json["topics"] if one["topic"].startswith(mine)]
    assert [topic["topic"].removeprefix(mine + ".") for topic in topics] == ["C", "a", "a.1", "b"]
    assert {topic["partitions"] for topic in topics} == {2}


async def test_altering_changes_what_is_named_and_leaves_the_rest(new_topic):
    topic = await new_topic(compression="zstd", flush_ms=50)
    body = orjson.dumps({"config": {"flush_ms": 70, "retention_ms": None}})
    altered = await topic.gateway.send("PATCH", topic.path, body, {"Content-Type": JSON})
    config = altered.json["config"]
    assert (config["compression"], config["flush_ms"], config["retention_ms"]) == ("zstd", 70, None)
    assert (await topic.describe())["config"] == config


async def test_an_altered_limit_holds_for_the_next_produce(topic):
    assert (await topic.post(b"x" * 5_000, "text/plain")).status == 200
    body = orjson.dumps({"config": {"record_bytes_max": 4_000}})
    await topic.gateway.send("PATCH", topic.path, body, {"Content-Type": JSON})
    assert_problem(await topic.post(b"x" * 5_000, "text/plain"), "record_too_large", limit=4_000)


@in_process_only
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_body"),
        (b"{}", "invalid_body"),
        (b'{"config":{"flush_ms":0}}', "invalid_config"),
        (b'{"config":{"no_such":0}}', "invalid_config"),
        (b'{"replicas":2}', "unknown_field"),
        (b"{", "malformed_json"),
    ],
)
async def test_an_alteration_that_cannot_be_changes_nothing(topic, body, code):
    before = (await topic.describe())["config"]
    assert_problem(await topic.gateway.send("PATCH", topic.path, body, {"Content-Type": JSON}), code)
    assert (await topic.describe())["config"] == before


async def test_rolling_seals_everything_written_before(new_topic):
    topic = await new_topic(2)
    await topic.post_lines("1", "2", to=0)
    rolled = await topic.roll()
    assert [p["sealed_end"] for p in rolled.json["partitions"]] == [2, 0]
    assert [p["segments"] for p in (await topic.describe())["partitions"]] == [2, 1]


async def test_rolling_what_is_empty_makes_no_segments(topic):
    await topic.post_lines("1")
    for _ in range(3):
        assert (await topic.roll()).json["partitions"][0]["sealed_end"] == 1
    assert (await topic.describe())["partitions"][0]["segments"] == 2


async def test_rolled_segments_reach_the_store(topic):
    await topic.post_lines("1", "2")
    sealed_end = (await topic.roll()).json["partitions"][0]["sealed_end"]
    async with asyncio.timeout(60):
        while True:
            (partition,) = (await topic.gateway.send("GET", f"{topic.path}/tier")).json["partitions"]
            if partition["tiered_end"] == sealed_end:
                break
            await asyncio.sleep(0.05)
    assert (partition["objects"], partition["pending_segments"], partition["last_error"]) == (1, 0, None)


async def test_a_deleted_topic_is_gone_for_every_request(topic):
    await topic.post_lines("1")
    assert (await topic.gateway.send("DELETE", topic.path)).status == 204
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/roll"),
        ("GET", "/tier"),
        ("POST", "/records"),
        ("POST", "/partitions/0/records"),
        ("GET", "/partitions/0/records?offset=0"),
        ("GET", "/partitions/0/offsets"),
    ):
        body = b"1" if path.endswith("/records") else b""
        assert_problem(await topic.gateway.send(method, topic.path + path, body), "unknown_topic")
    names = [one["topic"] for one in (await topic.gateway.send("GET", "/v1/topics")).json["topics"]]
    assert topic.name not in names


async def test_a_protected_topic_is_not_deleted_until_its_protection_is_off(gateway, new_name):
    path = f"/v1/topics/{new_name()}"
    await put(gateway, path.removeprefix("/v1/topics/"), config={"deletion_protection": True})
    refused = await gateway.send("DELETE", path)
    assert refused.status == 409
    assert_problem(refused, "topic_protected", retryable=False)
    assert (await gateway.send("GET", path)).json["config"]["deletion_protection"] is True
    body = json.dumps({"config": {"deletion_protection": False}}).encode()
    assert (await gateway.send("PATCH", path, body, {"Content-Type": JSON})).status == 200
    assert (await gateway.send("DELETE", path)).status == 204


async def test_a_topic_created_again_serves_nothing_of_the_old_one(topic):
    await topic.post_lines('"old"', '"older"')
    await topic.roll()
    await topic.post_lines('"old too"')
    old_id = (await topic.describe())["topic_id"]
    await topic.gateway.send("DELETE", topic.path)
    await topic.gateway.create(topic.name)
    described = await topic.describe()
    assert described["topic_id"] != old_id
    assert described["partitions"][0]["log_end"] == 0
    assert await topic.records() == []
    assert_problem(await topic.fetch(offset=1), "offset_above_high_watermark", high_watermark=0)
    await topic.post_lines('"new"')
    assert await topic.values() == ["new"]


async def test_deleting_and_creating_under_load_never_mixes_lives(topic):
    """Writers continue throughout. Each record carries the generation it is meant for, as the create before it returned
    it.
    """
    life = 0
    answered = {}  # the generation at the time of the answer, by record

    async def write(writer):
        for number in range(150):
            record = f"{life}.{writer}.{number}"
            answer = await topic.post_lines(f'"{record}"')
            assert answer.status == 200 or answer.json["code"] == "unknown_topic", answer.body
            answered[record] = life

    async def recreate():
        nonlocal life
        for _ in range(8):
            await asyncio.sleep(0.02)
            assert (await topic.gateway.send("DELETE", topic.path)).status == 204
            life += 1
            await topic.gateway.create(topic.name)

    await asyncio.gather(write("a"), write("b"), recreate())
    # A request may carry the generation before the one that accepts it, but no record of an older one may reappear.
    assert {answered[record] for record in await topic.values()} <= {life}


async def test_a_produce_creates_topics_with_auto_create_topics(start_gateway):
    gateway = await start_gateway(auto_create_topics=True, default_partitions=3)
    topic = Topic(gateway, "on-the-spot")
    answers = await asyncio.gather(*(topic.post_lines("1") for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert len((await topic.describe())["partitions"]) == 3
    assert_problem(await Topic(gateway, "__x").post_lines("1"), "invalid_topic_name")
    assert_problem(await gateway.send("GET", "/v1/topics/never-produced-to"), "unknown_topic")
