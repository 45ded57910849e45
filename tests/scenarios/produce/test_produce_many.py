"""`POST /v1/records`: records for many topics in one request. Each topic and partition succeeds or fails
independently.
"""

import orjson
import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, Gateway, in_process_only

PATH = "/v1/records"


async def post(gateway: Gateway, *records: dict, **query: object):
    return await gateway.send("POST", PATH, orjson.dumps({"records": records}), {"Content-Type": JSON}, **query)


async def post_lines(gateway: Gateway, *lines: str, **query: object):
    body = "".join(f"{line}\n" for line in lines).encode()
    return await gateway.send("POST", PATH, body, {"Content-Type": NDJSON}, **query)


def entries(answer) -> list[tuple]:
    """Return topic, partition, count, and the status or the problem's code."""
    return [
        (one["topic"], one["partition"], one["count"], one.get("problem", {}).get("code", one.get("status")))
        for one in answer.json["results"]
    ]


async def test_records_reach_the_topic_and_partition_that_they_name(gateway, new_topic):
    first, second = await new_topic(3), await new_topic(2)
    records = [{"topic": topic.name, "partition": n % 2, "value": n} for n in range(6) for topic in (second, first)]
    answer = await post(gateway, *records)
    assert answer.status == 200
    names = sorted([first.name, second.name])
    assert entries(answer) == [(name, partition, 3, None) for name in names for partition in (0, 1)]
    for topic in (first, second):
        assert [await topic.values(partition) for partition in (0, 1)] == [[0, 2, 4], [1, 3, 5]]


async def test_every_field_of_a_record_is_kept(gateway, topic):
    record = {"key": "k", "value": {"a": 1.50}, "headers": {"h": ["x", None]}, "timestamp": 5, "topic": topic.name}
    assert (await post(gateway, record)).status == 200
    binary = {"topic": topic.name, "key_base64": "AP8=", "value_base64": "/wA=", "timestamp": "1970-01-01T00:00:01Z"}
    assert (await post(gateway, binary, {"topic": topic.name, "value": None, "key": 7})).status == 200
    plain, raw, tombstone = await topic.records()
    assert (plain["key"], plain["value"], plain["headers"], plain["timestamp"]) == (
        "k", {"a": 1.5}, {"h": ["x", None]}, 5
    )  # fmt: skip
    assert (raw["key_base64"], raw["value_base64"], raw["timestamp"]) == ("AP8=", "/wA=", 1000)
    assert (tombstone["key"], tombstone["value"]) == ("7", None)


async def test_lines_are_record_objects_and_what_was_fetched_can_be_sent_back(gateway, new_topic):
    first, second = await new_topic(), await new_topic()
    answer = await post_lines(
        gateway, f'{{"topic":"{first.name}","value":1,"key":"a"}}', "", f'{{"value":[2],"topic":"{second.name}"}}'
    )
    assert answer.status == 200
    fetched = (await first.fetch(accept=NDJSON)).lines
    lines = [orjson.dumps({"topic": second.name, **record}).decode() for record in fetched]
    assert (await post_lines(gateway, *lines)).status == 200
    assert await second.values() == [[2], 1]


async def test_keys_lead_where_they_lead_in_a_produce_to_one_topic(gateway, new_topic):
    topic = await new_topic(8)
    for n in range(20):
        many = await post(gateway, {"topic": topic.name, "key": f"key-{n}", "value": n})
        one = await topic.post_records({"key": f"key-{n}", "value": n})
        assert many.json["results"][0]["partition"] == one.json["results"][0]["partition"]


@pytest.mark.parametrize(
    ("acks", "status", "durability"),
    [("0", 202, ("none", "none")), ("1", 200, ("page_cache", "page_cache")), ("all", 200, ("fsync", "page_cache"))],
)
async def test_acks_and_durability_are_reported_for_each_topic(gateway, new_topic, acks, status, durability):
    group, os = await new_topic(), await new_topic(durability="os")
    answer = await post(gateway, *({"topic": topic.name, "value": 1} for topic in (group, os)), acks=acks)
    assert (answer.status, answer.json["acks"]) == (status, acks)
    found = {one["topic"]: one["durability"] for one in answer.json["results"]}
    assert (found[group.name], found[os.name]) == durability
    assert answer.json["durability"] == durability[1], "the weakest"
    assert all((one["base_offset"] is None) == (acks == "0") for one in answer.json["results"])


async def test_a_topic_that_does_not_exist_fails_alone(gateway, topic, new_name):
    unknown = new_name()
    records = [{"topic": unknown, "value": 1}, {"topic": topic.name, "value": 2}, {"topic": unknown, "value": 3}]
    for acks, success in (("0", 202), ("all", 200)):
        answer = await post(gateway, *records, acks=acks)
        assert answer.status == 207
        expected = [(topic.name, 0, 1, success), (unknown, None, 2, "unknown_topic")]
        assert sorted(entries(answer)) == sorted(expected, key=lambda entry: entry[0])
    assert await topic.values() == [2, 2]


async def test_when_everything_fails_the_problem_lists_all(gateway, topic, new_name):
    unknown = sorted([new_name(), new_name()])
    records = [{"topic": name, "value": 1} for name in unknown]
    problem = assert_problem(await post(gateway, *records), "unknown_topic", no_side_effects=True)
    assert [one["topic"] for one in problem["results"]] == unknown
    mixed = await post(gateway, {"topic": topic.name, "partition": 9, "value": 1}, records[0])
    assert mixed.status == 404
    assert {one["problem"]["code"] for one in mixed.json["results"]} == {"unknown_topic", "unknown_partition"}


async def test_the_records_of_a_partition_stand_or_fall_together(gateway, new_topic):
    topic = await new_topic(4, record_bytes_max=100, timestamp_ahead_ms_max=0)
    records = [{"topic": topic.name, "partition": n % 3, "value": n} for n in range(6)]
    records[1]["value"] = "x" * 200
    records[2]["timestamp"] = 2**52
    records.append({"topic": topic.name, "partition": 7, "value": 1})
    answer = await post(gateway, *records)
    assert answer.status == 207
    codes = [200, "record_too_large", "invalid_body", "unknown_partition"]
    assert [entry[1:] for entry in entries(answer)] == list(zip([0, 1, 2, 7], [2, 2, 2, 1], codes, strict=True))
    assert answer.json["results"][2]["problem"]["record"] == 2, "its place in the body"
    assert [await topic.values(partition) for partition in range(4)] == [[0, 3], [], [], []]


@in_process_only
async def test_a_produce_to_many_topics_creates_them_with_auto_create_topics(start_gateway):
    gateway = await start_gateway(auto_create_topics=True)
    assert (await post(gateway, {"topic": "new", "value": 1})).status == 200
    refused = await post(gateway, {"topic": "new", "value": 2}, {"topic": "no name!", "value": 3})
    assert entries(refused) == [("new", 0, 1, 200), ("no name!", None, 1, "invalid_topic_name")]


@in_process_only
@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(b'{"records":[{"topic":"a","value":1},]}', "malformed_json", id="no JSON"),
        pytest.param(b'{"records":[{"value":1}]}', "invalid_body", id="without a topic"),
        pytest.param(b'{"records":[{"topic":1,"value":1}]}', "invalid_body", id="a topic that is not a string"),
        pytest.param(b'{"records":[{"topic":"a"}]}', "invalid_body", id="without a value"),
        pytest.param(b'{"records":[{"topic":"a","topic":"b","value":1}]}', "invalid_body", id="two topics"),
        pytest.param(b'{"records":[{"topic":"a","value":1,"offset":1}]}', "unknown_field", id="an offset"),
        pytest.param(b'{"records":[],"topic":"a"}', "unknown_field", id="the topic outside"),
        pytest.param(b'{"records":[]}', "no_records", id="no records"),
        pytest.param(b'{"records":[{"topic":"a","value":"\xff"}]}', "invalid_utf8", id="no UTF-8"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_whole(gateway, body, code):
    assert_problem(await gateway.send("POST", PATH, body, {"Content-Type": JSON}), code, no_side_effects=True)


@in_process_only
async def test_a_body_of_the_wrong_form_is_answered_with_the_right_one(gateway):
    """The form of a produce to one topic would be refused too: each record names its topic."""
    answer = await gateway.send("POST", PATH, b'{"value":1}', {"Content-Type": JSON})
    problem = assert_problem(answer, "unknown_field")
    assert problem["detail"] == 'there is an unknown field `value`; expected {"records":[{"topic":…,"value":…}]}'


@in_process_only
async def test_a_bad_line_is_named_and_nothing_is_stored(gateway, topic):
    good = f'{{"topic":"{topic.name}","value":1}}'
    assert_problem(await post_lines(gateway, good, "", '{"topic":"a"'), "malformed_ndjson", line=3)
    assert_problem(await post_lines(gateway, good, '{"value":1}'), "invalid_body", line=2)
    assert_problem(await post_lines(gateway, good, '{"topic":"a","value":1,"x":1}'), "unknown_field", line=2)
    assert await topic.values() == []


@in_process_only
async def test_other_media_types_queries_and_headers_are_refused(gateway):
    line = b'{"topic":"a","value":1}\n'
    for content_type in ("text/plain", "application/vnd.penstock.recordbatch", "application/json; charset=latin-1"):
        answer = await gateway.send("POST", PATH, line, {"Content-Type": content_type})
        assert_problem(answer, "unsupported_media_type")
    assert_problem(await gateway.send("POST", PATH, line), "unsupported_media_type")
    assert_problem(await post_lines(gateway, "1", partition=1), "unknown_query", parameter="partition")
    headers = {"Content-Type": NDJSON, "Penstock-Forward": "always"}
    assert_problem(await gateway.send("POST", PATH, line, headers), "invalid_header")


@in_process_only
async def test_records_and_partitions_of_a_request_are_bounded(start_gateway):
    gateway = await start_gateway(records_per_request_max=5, produce_partitions_max=3)
    topic = await gateway.create("wide", 9)
    too_many = [{"topic": "wide", "value": n, "partition": 0} for n in range(6)]
    assert_problem(await post(gateway, *too_many), "body_too_large", limit=5)
    too_wide = [{"topic": "wide", "value": n, "partition": n} for n in range(4)]
    assert_problem(await post(gateway, *too_wide), "body_too_large", limit=3)
    too_many_topics = [{"topic": f"unknown{n}", "value": n} for n in range(4)]
    assert_problem(await post(gateway, *too_many_topics), "body_too_large", limit=3)
    assert (await post(gateway, *too_wide[:3])).status == 200
    assert await topic.values(3) == []


async def test_a_large_request_over_many_topics_is_whole(gateway, new_topic):
    topics = [await new_topic(4) for _ in range(5)]
    records = [{"topic": topics[n % 5].name, "key": f"k{n}", "value": n} for n in range(20_000)]
    answer = await post(gateway, *records)
    assert sum(one["count"] for one in answer.json["results"]) == 20_000
    found = [value for topic in topics for partition in range(4) for value in await topic.values(partition)]
    assert sorted(found) == list(range(20_000))
