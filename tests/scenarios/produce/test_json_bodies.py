"""`application/json`: record objects with keys, headers, times and tombstones are returned as they were sent."""

import base64
import time

import orjson
import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, in_process_only

pytestmark = in_process_only


async def test_records_come_back_in_order_with_what_they_were_given(topic):
    produced = await topic.post_records({"value": {"n": 1}}, {"key": "k", "value": [2], "headers": {"h": "x"}})
    assert produced.status == 200
    (result,) = produced.json["results"]
    assert (result["partition"], result["base_offset"], result["count"]) == (0, 0, 2)
    first, second = await topic.records()
    assert (first["offset"], first["key"], first["value"], first["headers"]) == (0, None, {"n": 1}, {})
    assert (second["offset"], second["key"], second["value"], second["headers"]) == (1, "k", [2], {"h": "x"})


@pytest.mark.parametrize(
    "value",
    ['{"a":  1}', "1e400", "0.10", "123456789012345678901234567890", '"\\u00e9"', "[ ]", "true", '""'],
)
async def test_a_value_is_stored_as_the_bytes_that_were_sent(topic, value):
    """Numbers keep their digits, strings their escapes, objects their inner white space."""
    await topic.post(b'{"records":[ {"value": %s } ]}' % value.encode(), JSON)
    lines = await topic.fetch(accept="application/x-ndjson", ndjson="values")
    assert lines.body.decode() == value + "\n"


async def test_the_document_around_a_value_keeps_its_digits_too(topic):
    await topic.post(b'{"records":[{"value":1e400},{"value":0.10}]}', JSON)
    document = (await topic.fetch()).body
    assert b'"value":1e400' in document
    assert b'"value":0.10' in document


async def test_a_string_key_is_its_text_and_any_other_key_its_json(topic):
    keys = ["plain", "", "snow ☃", 17, {"a": 1}, [1, 2], False]
    await topic.post_records(*({"key": key, "value": 0} for key in keys))
    shown = [record["key"] for record in await topic.records()]
    assert shown == ["plain", "", "snow ☃", "17", '{"a":1}', "[1,2]", "false"]


async def test_null_is_no_key(topic):
    await topic.post_records({"key": None, "value": 0})
    assert (await topic.records())[0]["key"] is None


async def test_a_null_value_is_a_tombstone_and_stays_one_in_every_form(topic):
    await topic.post_records({"key": "gone", "value": None})
    for form in ("json", "text", "base64"):
        (record,) = await topic.records(value=form)
        assert (record["key"], record["value"]) == ("gone", None)


async def test_binary_keys_and_values_travel_as_base64(topic):
    key, value = b"\xff\x00key", bytes(range(256))
    encoded = {"key_base64": base64.b64encode(key).decode(), "value_base64": base64.b64encode(value).decode()}
    await topic.post_records(encoded)
    (record,) = await topic.records()
    assert record["key_base64"] == encoded["key_base64"]
    assert record["value_base64"] == encoded["value_base64"]
    assert not record.keys() & {"key", "value"}


async def test_an_empty_value_is_a_record_and_no_tombstone(topic):
    await topic.post_records({"value_base64": ""})
    (record,) = await topic.records()
    assert record["value_base64"] == ""


async def test_headers_may_be_text_binary_null_and_repeated(topic):
    headers = {"text": "x", "binary": {"base64": "/w=="}, "nothing": None, "several": ["a", {"base64": "/g=="}, "a"]}
    await topic.post_records({"value": 1, "headers": headers})
    assert (await topic.records())[0]["headers"] == headers


async def test_a_time_may_be_milliseconds_or_rfc_3339(topic):
    moments = [1_357_034_400_000, "2013-01-01T10:00:00Z", "2013-01-01T11:00:00.000+01:00"]
    await topic.post_records(*({"value": 1, "timestamp": moment} for moment in moments))
    assert {record["timestamp"] for record in await topic.records()} == {1_357_034_400_000}


async def test_a_record_without_a_time_gets_the_time_of_its_arrival(topic):
    before = int(time.time() * 1000)
    answer = await topic.post_records({"value": 1}, {"value": 2, "timestamp": None})
    stamped = [record["timestamp"] for record in await topic.records()]
    assert stamped[0] == stamped[1] == answer.json["results"][0]["timestamp"]
    assert before - 1000 <= stamped[0] <= int(time.time() * 1000) + 1000


async def test_append_time_replaces_what_the_producer_said(new_topic):
    topic = await new_topic(timestamp_type="append")
    await topic.post_records({"value": 1, "timestamp": 1})
    assert (await topic.records())[0]["timestamp"] > 1_600_000_000_000


async def test_white_space_and_escapes_in_the_envelope_change_nothing(topic):
    body = b' {\n "records" : [ { "k\\u0065y" : "a" , "value" :\t1 } ,\r\n{ "value" : " " } ] }\n'
    assert (await topic.post(body, "application/json; charset=utf-8")).status == 200
    assert [(r["key"], r["value"]) for r in await topic.records()] == [("a", 1), (None, " ")]


async def test_a_value_may_hold_a_field_twice(topic):
    """Only the envelope is checked: values are opaque."""
    value = b'{"a":1,"a":2}'
    assert (await topic.post(b'{"records":[{"value":%s}]}' % value, JSON)).status == 200
    lines = await topic.fetch(accept="application/x-ndjson", ndjson="values")
    assert lines.body == value + b"\n"


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"value":1}],"records":[{"value":2}]}',
        b'{"records":[{"value":1,"value":2}]}',
        b'{"records":[{"value":1, "key":"a" ,"key":"a"}]}',
        b'{"records":[{"value":1},{"key":"a","value":1,"k\\u0065y":"b"}]}',
        b'{"records":[{"value":1,"headers":{"h":"1","h":"2"}}]}',
        b'{"records":[{"value":{"s":"\\n"},"headers":{"h":"1", "h":"1"}}]}',
    ],
)
async def test_a_field_of_the_envelope_given_twice_is_refused(topic, body):
    """Every JSON parser would silently use the last one, and the first would be lost."""
    problem = assert_problem(await topic.post(body, JSON), "invalid_body", no_side_effects=True)
    assert "twice" in problem["detail"]
    assert await topic.records() == []


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [
        (b"", 1, 1),
        (b"{", 1, 2),
        (b'{"records":[{"value":1},]}', 1, 25),
        (b'{"records":[\n  {"value": nul}\n]}', 2, 13),
        (b'{"records":[{"value":1}]} x', 1, 27),
        (b'{"records":[{"value":01}]}', 1, 23),
    ],
)
async def test_malformed_json_is_reported_by_line_and_column(topic, body, line, column):
    assert_problem(await topic.post(body, JSON), "malformed_json", line=line, column=column)
    assert await topic.records() == []


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
async def test_what_python_takes_for_json_and_rfc_8259_does_not_is_malformed(topic, value):
    assert_problem(await topic.post(b'{"records":[{"value":%s}]}' % value.encode(), JSON), "malformed_json")


async def test_nesting_without_end_is_refused_and_harms_nobody(topic):
    body = b'{"records":[{"value":' + b"[" * 200_000 + b"]" * 200_000 + b"}]}"
    answer = await topic.post(body, JSON)
    assert answer.status == 400
    assert await topic.records() == []


async def test_invalid_utf8_is_reported_by_its_byte(topic):
    body = b'{"records":[{"value":"\xff"}]}'
    assert_problem(await topic.post(body, JSON), "invalid_utf8", byte=22)
    assert await topic.records() == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"records": [{"value": 1, "colour": "red"}]}, "unknown_field"),
        ({"records": [{"value": 1}], "topic": "t"}, "unknown_field"),
        ({"records": [{"value": 1, "offset": 5}]}, "unknown_field"),
        ({"records": []}, "no_records"),
        ({"records": {}}, "invalid_body"),
        ({"records": [1]}, "invalid_body"),
        ({}, "invalid_body"),
        ([], "invalid_body"),
        (1, "invalid_body"),
        ({"records": [{"key": "k"}]}, "invalid_body"),
        ({"records": [{"value": 1, "value_base64": "AA=="}]}, "invalid_body"),
        ({"records": [{"value": 1, "headers": {"__penstock-idempotency": "x"}}]}, "invalid_body"),
        ({"records": [{"value": 1, "key": "a", "key_base64": "AA=="}]}, "invalid_body"),
        ({"records": [{"value_base64": "not base64!"}]}, "invalid_body"),
        ({"records": [{"value_base64": "A"}]}, "invalid_body"),
        ({"records": [{"value_base64": "é"}]}, "invalid_body"),
        ({"records": [{"value": 1, "key_base64": 5}]}, "invalid_body"),
        ({"records": [{"value": 1, "headers": []}]}, "invalid_body"),
        ({"records": [{"value": 1, "headers": {"h": 5}}]}, "invalid_body"),
        ({"records": [{"value": 1, "headers": {"h": {"base64": "AA==", "more": 1}}}]}, "invalid_body"),
        ({"records": [{"value": 1, "headers": {"h": [["nested"]]}}]}, "invalid_body"),
        ({"records": [{"value": 1, "headers": {"h": {"base64": "%%"}}}]}, "invalid_body"),
        ({"records": [{"value": 1, "timestamp": "yesterday"}]}, "invalid_body"),
        ({"records": [{"value": 1, "timestamp": "2013-01-01T10:00:00"}]}, "invalid_body"),
        ({"records": [{"value": 1, "timestamp": "2013-01-01"}]}, "invalid_body"),
        ({"records": [{"value": 1, "timestamp": -1}]}, "invalid_body"),
        ({"records": [{"value": 1, "timestamp": 2**53}]}, "invalid_body"),
        ({"records": [{"value": 1, "timestamp": 1.5}]}, "invalid_body"),
        ({"records": [{"value": 1, "timestamp": True}]}, "invalid_body"),
        ({"records": [{"value": 1, "partition": -1}]}, "invalid_body"),
        ({"records": [{"value": 1, "partition": "0"}]}, "invalid_body"),
        ({"records": [{"value": 1, "partition": 1}]}, "unknown_partition"),
    ],
)
async def test_a_wrong_record_refuses_the_request_and_stores_nothing(topic, body, code):
    assert_problem(await topic.post(orjson.dumps(body), JSON), code, no_side_effects=True)
    assert await topic.records() == []


async def test_one_wrong_record_among_good_ones_stores_none_of_them(new_topic):
    topic = await new_topic(2)
    good = [{"value": n, "partition": n % 2} for n in range(10)]
    assert_problem(await topic.post_records(*good, {"value": 1, "partition": 2}), "unknown_partition")
    assert await topic.records(0) == await topic.records(1) == []


@pytest.mark.parametrize("timestamp", [-1, "1969-12-31T23:59:59Z"])
async def test_a_time_before_1970_is_named(topic, timestamp):
    problem = assert_problem(await topic.post_records({"value": 1, "timestamp": timestamp}), "invalid_body")
    assert problem["detail"] == f"record 0: timestamp {timestamp!r} is before 1970"


async def test_a_time_far_in_the_future_is_refused(topic):
    """Otherwise its segment would never expire."""
    ahead = int(time.time() * 1000) + 2 * 3_600_000
    problem = assert_problem(await topic.post_records({"value": 1}, {"value": 2, "timestamp": ahead}), "invalid_body")
    assert problem["record"] == 1
    assert await topic.records() == []


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        ({"value": 1}, 'there is an unknown field `value`; expected {"records":[{"value":…}]}'),
        ([{"value": 1}], 'Expected `object`, got `array`; expected {"records":[{"value":…}]}'),
        (
            {"records": [{"values": 1}]},
            (
                "there is an unknown field `values` - at `$.records[0]`; "
                "a record has headers, key, key_base64, partition, timestamp, value, value_base64"
            ),
        ),
    ],
)
async def test_a_body_of_the_wrong_form_is_answered_with_the_right_one(topic, document, detail):
    answer = await topic.post(orjson.dumps(document), JSON)
    assert answer.status == 400
    assert answer.json["detail"] == detail
