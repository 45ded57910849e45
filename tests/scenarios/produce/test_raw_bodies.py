"""Any other media type: the body is one record, stored with its media type."""

import base64

import pytest

from gateway.http.record_content_type import LINES
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import sharded_only

pytestmark = sharded_only


async def test_a_body_of_any_type_is_one_record_with_its_media_type(topic):
    await topic.post(b"landed", "text/plain; charset=utf-8")
    (record,) = await topic.records()
    assert record["value"] == "landed"
    assert record["headers"] == {"content-type": "text/plain; charset=utf-8"}
    assert record["key"] is None


async def test_bytes_of_any_kind_come_back_whole(topic):
    body = bytes(range(256)) * 300
    await topic.post(body, "image/png", key="logo")
    (record,) = await topic.records()
    assert base64.b64decode(record["value_base64"]) == body
    assert record["key"] == "logo"


async def test_a_body_without_a_media_type_is_taken_too(topic):
    """So any webhook can be pointed here."""
    assert (await topic.post(b"\x00\x01")).status == 200
    (record,) = await topic.records()
    assert record["value_base64"] == "AAE="


async def test_what_plain_curl_sends_is_shown_as_text(topic):
    await topic.post(b"a=1&b=2", "application/x-www-form-urlencoded")
    assert await topic.values() == ["a=1&b=2"]


@pytest.mark.parametrize("body", [b'{"records":[{"value":1}]}', b'[{"value":1}]'])
async def test_json_that_plain_curl_calls_a_form_is_refused(topic, body):
    """The user has forgotten the header: one text record is not what is meant."""
    answer = await topic.post(body, "application/x-www-form-urlencoded")
    assert_problem(answer, "unsupported_media_type")
    assert "Content-Type: application/json" in answer.json["detail"]
    assert await topic.values() == []


@pytest.mark.parametrize("media_type", ["application/geo+json", "application/vnd.acme.v2+json; charset=utf-8"])
async def test_other_json_types_are_shown_as_json(topic, media_type):
    await topic.post(b'{"a": 1}', media_type)
    assert await topic.values() == [{"a": 1}]


async def test_a_type_that_says_json_and_is_not_is_shown_as_base64(topic):
    await topic.post(b"{broken", "application/geo+json")
    (record,) = await topic.records()
    assert base64.b64decode(record["value_base64"]) == b"{broken"


async def test_text_that_is_not_utf8_is_shown_as_base64(topic):
    await topic.post(b"caf\xe9", "text/plain")
    (record,) = await topic.records()
    assert base64.b64decode(record["value_base64"]) == b"caf\xe9"


async def test_the_reader_may_ask_for_another_form(topic):
    await topic.post(b'{"a":1}', "text/plain")
    assert (await topic.records(value="json"))[0]["value"] == {"a": 1}
    assert (await topic.records(value="text"))[0]["value"] == '{"a":1}'
    assert (await topic.records(value="base64"))[0]["value_base64"] == "eyJhIjoxfQ=="


async def test_an_empty_body_is_refused(topic):
    assert_problem(await topic.post(b"", "text/plain"), "no_records")
    assert_problem(await topic.post(b""), "no_records")


async def test_a_large_body_of_no_announced_length_arrives_whole(topic):
    """Above the size up to which a body is read in one piece."""
    body = b"0123456789abcdef" * 50_000
    await topic.post(body, "application/octet-stream")
    await topic.post(body + b"0" * 200_000, "application/octet-stream")
    [first] = await topic.records(max_bytes=1)  # an answer has less than two such records if its window is small
    [second] = await topic.records(offset=1, max_bytes=1)
    assert base64.b64decode(first["value_base64"]) == body
    assert base64.b64decode(second["value_base64"]) == body + b"0" * 200_000


@pytest.mark.parametrize("content_type", sorted(LINES))
async def test_each_name_of_lines_is_lines(topic, content_type):
    """Before the fix other names than application/x-ndjson made one record of the whole body, with 200."""
    assert (await topic.post(b'{"a":1}\n{"a":2}\n', content_type)).status == 200
    assert await topic.values() == [{"a": 1}, {"a": 2}]
    many = await topic.gateway.send("POST", "/v1/records", b'{"topic":"%b","value":3}\n' % topic.name.encode(),
                                    {"Content-Type": content_type})  # fmt: skip
    assert many.status == 200


@pytest.mark.parametrize(
    "content_type", ["application/vnd.kafka.json.v2+json", "application/vnd.kafka+json", "application/json-seq"]
)
async def test_the_envelope_of_a_proxy_is_refused_with_what_to_send(topic, content_type):
    refused = await topic.post(b'{"records":[{"key":"k","value":1},{"value":2}]}', content_type)
    assert '{"records":[' in assert_problem(refused, "unsupported_media_type")["detail"]
    assert (await topic.post(b"1", "application/geo+json")).status == 200, "others are the value of one record"
