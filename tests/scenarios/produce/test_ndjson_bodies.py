"""`application/x-ndjson`: a line is a value, or a record object; exactly one JSON value a line."""

import pytest

from engine.format import batch
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON, RECORD_BATCH, in_process_only

pytestmark = in_process_only


async def test_each_line_is_a_record_and_stays_as_it_was_sent(topic):
    lines = ['{"a": 1}', "2", '"three"', "[4,  5]", "null", "1.50"]
    produced = await topic.post_lines(*lines)
    assert produced.json["results"][0]["count"] == 6
    back = await topic.fetch(accept=NDJSON, ndjson="values")
    assert back.body.decode().splitlines() == lines


@pytest.mark.parametrize("body", [b"1\n2", b"1\n2\n", b"1\r\n2\r\n", b" 1 \n\n\t2\n \n", b"\n\n1\n2\n\n"])
async def test_blank_lines_and_white_space_around_values_do_not_matter(topic, body):
    assert (await topic.post(body, NDJSON)).json["results"][0]["count"] == 2
    assert await topic.values() == [1, 2]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"1\n2 3\n4\n", 2),
        (b"[1,\n2]\n", 1),
        (b'{"a":1}\n{"a":\n1}\n', 2),
        (b"1\n\n\nx\n", 4),
        (b"1\n2\n{", 3),
        (b"[1\n,2\n]\n", 1),
        (b"1\n,\n2\n", 2),
        (b'1\n"a\nb"\n', 2),
    ],
)
async def test_a_line_that_is_not_one_json_value_is_named(topic, body, line):
    assert_problem(await topic.post(body, NDJSON), "malformed_ndjson", line=line, no_side_effects=True)
    assert await topic.records() == []


async def test_text_that_is_not_utf8_is_refused(topic):
    assert_problem(await topic.post(b'"ok"\n"\xc3\x28"\n', NDJSON), "invalid_utf8", byte=6)
    assert await topic.records() == []


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\n"])
async def test_a_body_without_a_line_is_refused(topic, body):
    assert_problem(await topic.post(body, NDJSON), "no_records")


async def test_record_lines_take_what_json_records_take(topic):
    lines = (
        '{"key":"k","value":{"a":1},"headers":{"h":["1","2"]},"timestamp":"2013-01-01T10:00:00Z"}',
        '{"key_base64":"/w==","value_base64":"/w=="}',
        '{"value":null}',
    )
    assert (await topic.post_lines(*lines, ndjson="records")).status == 200
    first, second, third = await topic.records()
    assert (first["key"], first["value"], first["headers"]) == ("k", {"a": 1}, {"h": ["1", "2"]})
    assert first["timestamp"] == 1_357_034_400_000
    assert (second["key_base64"], second["value_base64"]) == ("/w==", "/w==")
    assert third["value"] is None


async def test_what_a_fetch_gives_as_lines_can_be_produced_again(new_topic):
    """So one topic can be piped into another; the records get new offsets."""
    source, target = await new_topic(), await new_topic()
    await source.post_records(
        {"key": "k", "value": {"a": 1}, "headers": {"h": "x", "b": {"base64": "/w=="}}, "timestamp": 1000},
        {"key_base64": "/w==", "value_base64": "/w==", "timestamp": 2000},
        {"key": "gone", "value": None, "timestamp": 3000},
    )
    lines = await source.fetch(offset=0, accept=NDJSON)
    assert (await target.post(lines.body, NDJSON, ndjson="records")).status == 200
    assert (await target.fetch(accept=NDJSON)).body == lines.body


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"text", "text/plain; charset=utf-8"),
        (b'"quoted"', "text/plain"),
        ("zwei\n\u00e9 \U0001f600\\".encode(), "text/csv"),
        (b"\xff is not UTF-8", "text/plain"),
        (b"null", "text/plain"),
        (b"17", "text/html"),
        (b"a=1&b=2", "application/x-www-form-urlencoded"),
        (b"\x00\x01", "application/octet-stream"),
        (b'"json"', "application/vnd.x+json"),
        (b"not json", "application/vnd.x+json"),
        (b'{"a":  1.50}', "application/problem+json"),
    ],
)
async def test_bytes_stay_the_same_when_lines_are_piped_on(new_topic, body, content_type):
    """A text value is shown as a string, and stored as the same text again."""
    source, target = await new_topic(), await new_topic()
    assert (await source.post(body, content_type)).status == 200
    lines = await source.fetch(offset=0, accept=NDJSON)
    assert (await target.post(lines.body, NDJSON, ndjson="records")).status == 200
    stored = [(await topic.fetch(offset=0, accept=RECORD_BATCH)).body for topic in (source, target)]
    first, second = (batch.decode(part)[0] for part in stored)
    assert first.value == second.value == body
    assert (first.headers, first.timestamp) == (second.headers, second.timestamp)


async def test_only_a_string_with_a_textual_media_type_is_taken_as_text(topic):
    text, plain = {"content-type": "text/plain"}, {"content-type": "application/json"}
    await topic.post_records(
        {"value": "a", "headers": text}, {"value": "b", "headers": plain}, {"value": "c"}, {"value": 4, "headers": text}
    )
    shown = await topic.records(value="text")
    assert [record["value"] for record in shown] == ["a", '"b"', '"c"', "4"]


@pytest.mark.parametrize(
    ("lines", "code", "line"),
    [
        (['{"value":1}', '{"value":1,"x":2}'], "unknown_field", 2),
        (['{"value":1}', "5"], "invalid_body", 2),
        (['{"value":1}', '{"value":1,"value":2}'], "invalid_body", 2),
        (['{"value":1} {"value":2}'], "malformed_ndjson", 1),
        (['{"value":1}', '{"value":'], "malformed_ndjson", 2),
    ],
)
async def test_a_wrong_record_line_is_named_and_nothing_is_stored(topic, lines, code, line):
    assert_problem(await topic.post_lines(*lines, ndjson="records"), code, line=line)
    assert await topic.records() == []


async def test_the_key_can_be_taken_from_each_line_by_a_pointer(topic):
    lines = (
        '{"user":{"id":"u1"},"a/b":{"~":1}}',
        '{"user":{"id":7},"a/b":{"~":[2,"x"]}}',
        '{"user":{"id":null},"a/b":{"~":"é"}}',
    )
    await topic.post_lines(*lines, key_pointer="/user/id")
    await topic.post_lines(*lines, key_pointer="/a~1b/~0")
    keys = [record["key"] for record in await topic.records()]
    assert keys == ["u1", "7", None, "1", '[2,"x"]', "é"]


async def test_a_pointer_walks_arrays_by_number(topic):
    await topic.post_lines('["a",["b","c"]]', key_pointer="/1/0")
    assert (await topic.records())[0]["key"] == "b"


@pytest.mark.parametrize("pointer", ["/nothing", "/list/9", "/list/x", "/text/0", "/list/-1", "/list/01"])
async def test_a_line_that_has_nothing_at_the_pointer_is_refused(topic, pointer):
    answer = await topic.post_lines('{"list":[1,2],"text":"t"}', key_pointer=pointer)
    assert_problem(answer, "invalid_body", record=0)
    assert await topic.records() == []


@pytest.mark.parametrize("pointer", ["", "user", "/a~2", "/a~"])
async def test_what_is_no_pointer_is_refused(topic, pointer):
    answer = await topic.post_lines("{}", key_pointer=pointer)
    assert_problem(answer, "invalid_query", parameter="key_pointer")


async def test_a_pointer_goes_with_values_in_lines_only(topic):
    assert_problem(await topic.post(b"x", "text/plain", key_pointer="/a"), "invalid_query")
    assert_problem(await topic.post_records({"value": 1}, key_pointer="/a"), "invalid_query")
    refused = await topic.post_lines('{"value":1}', ndjson="records", key_pointer="/value")
    assert_problem(refused, "invalid_query")


async def test_one_key_for_all_lines_comes_from_the_query_or_a_header(topic):
    await topic.post_lines("1", "2", key="q")
    await topic.post(b"3\n", NDJSON, {"Penstock-Key": "h"})
    await topic.post(b"4\n", NDJSON, {"Penstock-Key": "h"}, key="q")
    assert [record["key"] for record in await topic.records()] == ["q", "q", "h", "q"]


async def test_a_hundred_thousand_lines_are_one_batch(topic):
    """Large bodies are decoded outside the event loop; the records are the same."""
    body = b"".join(b'{"n":%d}\n' % n for n in range(100_000))
    (result,) = (await topic.post(body, NDJSON)).json["results"]
    assert (result["base_offset"], result["count"]) == (0, 100_000)
    back = await topic.fetch(accept=NDJSON, ndjson="values", max_bytes=32 * 2**20)
    assert back.body == body
    assert back.headers["Penstock-Next-Offset"] == "100000"
