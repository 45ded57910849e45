"""CloudEvents: events of the CloudEvents SDK are stored as Kafka's binding says, and the SDK reads them back."""

import base64
from datetime import UTC, datetime

import orjson
import pytest
from cloudevents.core.bindings import http, kafka
from cloudevents.core.v1.event import CloudEvent

from engine.format import batch as record_batch
from engine.format.batch import Row
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, sharded_only

pytestmark = sharded_only

EVENT = "application/cloudevents+json"
EVENT_BATCH = "application/cloudevents-batch+json"
TIME = datetime(2013, 1, 1, 10, 0, 0, 123000, UTC)
REQUIRED = {"specversion": "1.0", "id": "1", "source": "/dc/1", "type": "com.example.made"}


def event(data=None, **attributes) -> CloudEvent:
    return CloudEvent({**REQUIRED, "time": TIME, **attributes}, data)


EVENTS = {
    "json": event({"a": [1, 2.5, None], "text": "é\n"}, datacontenttype="application/json"),
    "json with a suffix": event({"a": 1}, datacontenttype="application/vnd.example+json; charset=utf-8"),
    "text": event("plain, \"quoted\" and é", datacontenttype="text/plain"),
    "xml": event("<much wow='xml'/>", datacontenttype="application/xml"),
    "bytes": event(b"\x00\xff\x80", datacontenttype="application/octet-stream"),
    "no data": event(),
    "all attributes": event(
        {"a": 1}, datacontenttype="application/json", subject="Ärger & co", dataschema="https://example.com/s?a=b#c"
    ),
    "extensions": event({"a": 1}, datacontenttype="application/json", partitionkey="customer 7", traceid="0-a", x9="y"),
    "odd characters": event({"a": 1}, datacontenttype="application/json", subject="100% \"of\" 😀 \\ a=b;c"),
}  # fmt: skip
each_event = pytest.mark.parametrize("sent", EVENTS.values(), ids=EVENTS)


def same(first: CloudEvent, second: CloudEvent) -> bool:
    return (first.get_attributes(), first.get_data()) == (second.get_attributes(), second.get_data())


async def send(topic, message: http.HTTPMessage, **query):
    return await topic.post(message.body, None, message.headers, **query)


async def one(topic, offset: int = 0, **query):
    """Return the event at an offset, as the SDK reads it in structured mode."""
    answer = await topic.fetch(offset=offset, accept=EVENT, max_records=1, **query)
    assert answer.status == 200, answer.body
    return http.from_structured_event(http.HTTPMessage(dict(answer.headers), answer.body))


async def all_of(topic) -> list[dict]:
    answer = await topic.fetch(accept=EVENT_BATCH)
    assert answer.headers["Content-Type"] == EVENT_BATCH
    return answer.json


@each_event
async def test_an_event_comes_back_as_it_was_sent_in_every_mode(topic, sent):
    structured, binary = http.to_structured_event(sent), http.to_binary_event(sent)
    batch = b"[" + structured.body + b"," + structured.body + b"]"
    assert (await send(topic, structured)).status == 200
    assert (await send(topic, binary)).status == 200
    assert (await topic.post(batch, EVENT_BATCH)).json["results"][0]["count"] == 2
    for offset in range(4):
        assert same(await one(topic, offset), sent), offset
    found = await all_of(topic)
    assert len(found) == 4
    for document in found:
        message = http.HTTPMessage({"content-type": EVENT}, orjson.dumps(document))
        assert same(http.from_structured_event(message), sent)


@each_event
async def test_an_event_comes_back_in_binary_mode(topic, sent):
    await send(topic, http.to_structured_event(sent))
    answer = await topic.fetch(offset=0, max_records=1, cloudevents="binary")
    assert answer.headers["Penstock-Next-Offset"] == "1"
    headers = {
        name: value for name, value in answer.headers.items() if name.lower().startswith(("ce-", "content-type"))
    }
    assert all(value.isascii() for value in headers.values())
    assert same(http.from_binary_event(http.HTTPMessage(headers, answer.body)), sent)


@each_event
async def test_records_are_what_the_kafka_binding_says(topic, sent):
    """Read as by a Kafka consumer; the SDK uses the key as the attribute partitionkey."""
    await send(topic, http.to_binary_event(sent))
    (record,) = record_batch.decode((await topic.fetch(accept=RECORD_BATCH)).body)
    message = kafka.KafkaMessage(dict(record.headers), record.key, record.value or b"")
    assert same(kafka.from_binary_event(message), sent)
    key = sent.get_attributes().get("partitionkey")
    assert record.key == (None if key is None else key.encode())
    headers = [name for name, _ in record.headers]
    assert all(name.startswith("ce_") or name == "content-type" for name in headers)
    assert ("ce_partitionkey" in headers) == (key is not None)


@each_event
@pytest.mark.parametrize("mode", [kafka.to_binary_event, kafka.to_structured_event])
async def test_events_of_kafka_producers_are_events(topic, sent, mode):
    message = mode(sent)
    key = message.key.encode() if isinstance(message.key, str) else message.key
    row = Row(5, key, message.value or None, list(message.headers.items()))
    await topic.post(bytes(record_batch.encode([row])), RECORD_BATCH)
    found = (await one(topic)).get_attributes()
    assert found | {"partitionkey": None} == sent.get_attributes() | {"partitionkey": None}


async def test_partitionkey_is_the_key_and_leads_where_keys_lead(new_topic):
    topic = await new_topic(8)
    for n in range(8):
        by_event = await topic.post(orjson.dumps({**REQUIRED, "partitionkey": f"k{n}"}), EVENT)
        by_key = await topic.post_records({"key": f"k{n}", "value": 1})
        assert by_event.json["results"][0]["partition"] == by_key.json["results"][0]["partition"]


async def test_a_key_from_elsewhere_adds_no_attribute(topic):
    await topic.post(orjson.dumps(REQUIRED), EVENT, key="k")
    await topic.post(orjson.dumps({**REQUIRED, "partitionkey": "p"}), EVENT, key="k")
    assert [record["key"] for record in await topic.records()] == ["k", "p"]
    first, second = await all_of(topic)
    assert ("partitionkey" in first, second["partitionkey"]) == (False, "p")


async def test_json_data_is_stored_as_it_was_sent(topic):
    body = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data": {"a" : 1.50,"b":12345678901234567890} }'
    await topic.post(body, EVENT)
    assert b'{"a" : 1.50,"b":12345678901234567890}' in (await topic.fetch()).body
    headers = (await topic.records())[0]["headers"]
    assert headers["content-type"] == "application/json", "implied, and said"
    assert b'"data":{"a" : 1.50,"b":12345678901234567890}' in (await topic.fetch(accept=EVENT_BATCH)).body


async def test_attributes_of_other_types_become_texts_and_null_is_none(topic):
    await topic.post(
        orjson.dumps({**REQUIRED, "n": -5, "yes": True, "no": False, "subject": None, "data": None}), EVENT
    )
    (found,) = await all_of(topic)
    assert (found["n"], found["yes"], found["no"], found["data"]) == ("-5", "true", "false", None)
    assert "subject" not in found


async def test_data_null_is_json_and_no_data_is_no_value(topic):
    await topic.post(orjson.dumps([{**REQUIRED, "data": None}, REQUIRED]), EVENT_BATCH)
    batch = record_batch.decode((await topic.fetch(accept=RECORD_BATCH)).body)
    assert [record.value for record in batch] == [b"null", None]
    assert [("data" in document) for document in await all_of(topic)] == [True, False]


async def test_header_values_are_unquoted_and_decoded_once(topic):
    headers = {"ce-id": "Euro%20%E2%82%AC%20%F0%9F%98%80", "ce-source": '"/a b \\"c\\" %41"', "ce-type": "%2541"}
    answer = await topic.post(b"x", "text/plain", {**headers, "ce-specversion": "1.0", "CE-Subject": "%e2%82%ac 100%"})
    assert answer.status == 200
    (found,) = await all_of(topic)
    assert (found["id"], found["source"], found["type"]) == ("Euro € 😀", '/a b "c" A', "%41")
    assert found["subject"] == "€ 100%"


async def test_binary_mode_takes_data_of_any_type_and_none(topic):
    headers = {f"ce-{name}": value for name, value in REQUIRED.items()}
    for content_type in (JSON, NDJSON, RECORD_BATCH, "text/plain"):
        assert (await topic.post(b'{"not":"an envelope"}', content_type, headers)).status == 200
    assert (await topic.post(b"", None, headers)).status == 200
    found = await all_of(topic)
    assert [document.get("datacontenttype") for document in found] == [JSON, NDJSON, RECORD_BATCH, "text/plain", None]
    assert found[0]["data"] == {"not": "an envelope"}
    assert base64.b64decode(found[2]["data_base64"]) == b'{"not":"an envelope"}'
    assert "data" not in found[4]


async def test_the_payload_counts_in_structured_mode_whatever_the_headers_say(topic):
    await topic.post(orjson.dumps(REQUIRED), EVENT + "; charset=UTF-8", {"ce-id": "other", "ce-type": "%FF"})
    assert (await all_of(topic))[0] == REQUIRED


WRONG = {
    **{f"no {name}": ({k: v for k, v in REQUIRED.items() if k != name}, name) for name in REQUIRED},
    **{f"empty {name}": ({**REQUIRED, name: ""}, name) for name in ("id", "source", "type")},
    "an old version": ({**REQUIRED, "specversion": "0.3"}, "specversion"),
    "a name in capitals": ({**REQUIRED, "Subject": "x"}, "Subject"),
    "a name with a dash": ({**REQUIRED, "trace-id": "x"}, "trace-id"),
    "an object": ({**REQUIRED, "more": {"a": 1}}, "more"),
    "a fraction": ({**REQUIRED, "n": 1.5}, "n"),
    "a large number": ({**REQUIRED, "n": 2**31}, "n"),
    "no time": ({**REQUIRED, "time": "yesterday"}, "time"),
    "a control character": ({**REQUIRED, "subject": "a\x07"}, "subject"),
    "no media type": ({**REQUIRED, "datacontenttype": "json"}, "datacontenttype"),
    "both kinds of data": ({**REQUIRED, "data": 1, "data_base64": "AA=="}, "data_base64"),
    "no base64": ({**REQUIRED, "data_base64": "%"}, "data_base64"),
    "data that is not text": ({**REQUIRED, "datacontenttype": "text/plain", "data": {"a": 1}}, "data"),
}


@pytest.mark.parametrize(("document", "attribute"), WRONG.values(), ids=WRONG)
async def test_what_is_no_event_is_refused_and_the_attribute_named(topic, document, attribute):
    assert_problem(await topic.post(orjson.dumps(document), EVENT), "invalid_body", record=0, attribute=attribute)
    batch = orjson.dumps([REQUIRED, document])
    assert_problem(await topic.post(batch, EVENT_BATCH), "invalid_body", record=1, attribute=attribute)
    assert (await topic.positions())["log_end"] == 0


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        pytest.param({"ce-id": "1"}, "invalid_body", id="the others are missing"),
        pytest.param({"ce-id": "%C0%A0"}, "invalid_header", id="overlong UTF-8"),
        pytest.param({"ce-id": '"never ends'}, "invalid_header", id="a quote without its end"),
        pytest.param({"ce-id": "caf\u00e9"}, "invalid_header", id="not ASCII"),
        pytest.param({"ce-datacontenttype": "text/plain"}, "invalid_body", id="Content-Type says that"),
        pytest.param({"ce-data": "x"}, "invalid_body", id="the body is that"),
        pytest.param({"ce-sub_ject": "x"}, "invalid_body", id="a name that is none"),
        pytest.param({"ce-id": ""}, "invalid_body", id="empty"),
    ],
)
async def test_headers_that_make_no_event_are_refused(topic, headers, code):
    required = {f"ce-{name}": value for name, value in REQUIRED.items()} if headers != {"ce-id": "1"} else {}
    assert_problem(await topic.post(b"x", "text/plain", {**required, **headers}), code)
    assert await topic.values() == []


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"{", EVENT, "malformed_json"),
        (b"[]", EVENT, "invalid_body"),
        (b"{}", EVENT_BATCH, "invalid_body"),
        (b"[]", EVENT_BATCH, "no_records"),
        (b"[1]", EVENT_BATCH, "invalid_body"),
        (b"\xff", EVENT, "invalid_utf8"),
        (b'{"specversion":"1.0","id":"1","id":"2","source":"/s","type":"t"}', EVENT, "invalid_body"),
        (b"{}", EVENT + "; charset=latin-1", "unsupported_media_type"),
    ],
)
async def test_bodies_that_hold_no_events_are_refused(topic, body, content_type, code):
    assert_problem(await topic.post(body, content_type), code)


async def test_events_obey_the_limits_and_the_partition_of_a_request(new_topic):
    topic = await new_topic(3, record_bytes_max=300)
    large = orjson.dumps({**REQUIRED, "data": "x" * 300})
    assert_problem(await topic.post(large, EVENT), "record_too_large", limit=300)
    assert (await topic.post(orjson.dumps(REQUIRED), EVENT, to=2)).json["results"][0]["partition"] == 2
    assert_problem(await topic.post(orjson.dumps(REQUIRED), EVENT, key_pointer="/id"), "invalid_query")


async def test_records_that_are_no_events_are_wrapped_so_that_a_topic_is_read_to_its_end(new_topic):
    topic = await new_topic(verify="header")
    await topic.post_records({"key": "k", "value": {"a": 1}, "timestamp": 1_357_034_400_123, "headers": {"h": "x"}})
    await topic.post(b"plain", "text/plain")
    await topic.post(b"\xff", "image/png")
    await topic.post_records(
        {"value": None, "key_base64": "/w==", "headers": {"ce_id": "1", "ce_type": "half an event"}}
    )
    unreadable = bytearray(record_batch.encode([Row(1, None, b"1", []), Row(1, None, b"2", [])]))
    unreadable[61:] = b"\xff" * (len(unreadable) - 61)
    record_batch.stamp_append_time(unreadable, 5)
    assert (await topic.post(bytes(unreadable), RECORD_BATCH)).status == 200
    await topic.post(orjson.dumps(REQUIRED), EVENT)
    found = await all_of(topic)
    assert [document["id"] for document in found] == ["0", "1", "2", "3", "4", "1"]
    kinds = ["penstock.record.v1"] * 4 + ["penstock.undecodable.v1", REQUIRED["type"]]
    assert [document["type"] for document in found] == kinds
    assert found[0] == {
        "specversion": "1.0", "id": "0", "source": f"{topic.path}/partitions/0", "type": "penstock.record.v1",
        "time": "2013-01-01T10:00:00.123Z", "partitionkey": "k", "datacontenttype": JSON, "data": {"a": 1},
    }  # fmt: skip
    assert (found[1]["datacontenttype"], found[1]["data"]) == ("text/plain", "plain")
    assert (found[2]["datacontenttype"], found[2]["data_base64"]) == ("image/png", "/w==")
    assert not found[3].keys() & {"data", "data_base64", "partitionkey"}
    assert found[4]["data"] == {"offset": 4, "last_offset": 5, "error": "undecodable"}
    for offset in (0, 1, 2, 3, 4, 6):
        await one(topic, offset)


async def test_one_event_needs_max_records_1_and_none_is_204(topic):
    answer = await topic.fetch(accept=EVENT)
    assert "max_records=1" in assert_problem(answer, "not_acceptable")["detail"]
    assert_problem(await topic.fetch(cloudevents="binary"), "invalid_query", parameter="cloudevents")
    assert (await topic.fetch(accept=f"{EVENT}, {JSON};q=0.5")).headers["Content-Type"] == JSON
    for query in ({"accept": EVENT}, {"cloudevents": "binary"}):
        none = await topic.fetch(max_records=1, **query)
        assert (none.status, none.body, none.headers["Penstock-Next-Offset"]) == (204, b"", "0")
    assert (await topic.fetch(accept=EVENT_BATCH)).json == []


async def test_events_are_given_only_when_asked_for_by_name(topic):
    await topic.post(orjson.dumps(REQUIRED), EVENT)
    for accept in ("*/*", "application/*", None):
        assert (await topic.fetch(accept=accept, max_records=1)).headers["Content-Type"] == JSON


async def test_events_are_read_one_by_one_and_waited_for(topic):
    await topic.post(orjson.dumps([{**REQUIRED, "id": str(n)} for n in range(3)]), EVENT_BATCH)
    offset, found = 0, []
    while True:
        answer = await topic.fetch(offset=offset, accept=EVENT, max_records=1, wait_ms=10)
        if answer.status == 204:
            break
        found.append(answer.json["id"])
        offset = int(answer.headers["Penstock-Next-Offset"])
    assert (found, offset) == (["0", "1", "2"], 3)


async def test_an_event_is_for_one_topic(gateway, topic):
    headers = {"Content-Type": JSON, "ce-id": "1"}
    body = orjson.dumps({"records": [{"topic": topic.name, "value": 1}]})
    assert_problem(await gateway.send("POST", "/v1/records", body, headers), "invalid_header")


async def test_what_calls_itself_an_event_and_is_none_is_wrapped(topic):
    """Records of Kafka producers are not checked: another version, no `source`, a type that no header can carry."""
    half = [(f"ce_{name}", value.encode()) for name, value in REQUIRED.items()]
    old = [(name, b"0.3" if name == "ce_specversion" else value) for name, value in half]
    structured = [("content-type", EVENT.encode())]
    rows = [
        Row(5, None, b"1", old),
        Row(5, None, b'{"specversion":"1.0","id":"1"}', structured),
        Row(5, None, b"[]", structured),
        Row(5, None, b"x", [*half, ("content-type", "text/plain; x=\u00e9".encode())]),
    ]
    await topic.post(bytes(record_batch.encode(rows)), RECORD_BATCH)
    found = await all_of(topic)
    assert [document["type"] for document in found] == ["penstock.record.v1"] * 3 + [REQUIRED["type"]]
    answer = await topic.fetch(offset=3, max_records=1, cloudevents="binary")
    assert (answer.status, answer.body) == (200, b"x")


async def test_attributes_too_large_for_headers_are_read_in_structured_mode(topic):
    await topic.post(orjson.dumps({**REQUIRED, "subject": "x" * 20_000}), EVENT)
    assert_problem(await topic.fetch(max_records=1, cloudevents="binary"), "not_acceptable")
    assert (await one(topic)).get_attributes()["subject"] == "x" * 20_000


async def test_a_problem_repeats_only_the_beginning_of_a_long_name(topic):
    answer = await topic.post(orjson.dumps({**REQUIRED, "N" * 5000: "x"}), EVENT)
    assert_problem(answer, "invalid_body", attribute="N" * 100)


@pytest.mark.parametrize("name", ["id", "source", "type", "subject", "time", "dataschema", "datacontenttype"])
@pytest.mark.parametrize("value", [5, True])
async def test_an_attribute_that_must_be_a_string_is_no_number_and_no_boolean(topic, name, value):
    for document, content_type in (({**REQUIRED, name: value}, EVENT), ([{**REQUIRED, name: value}], EVENT_BATCH)):
        answer = await topic.post(orjson.dumps(document), content_type)
        assert_problem(answer, "invalid_body", attribute=name)
    assert (await topic.positions())["log_end"] == 0


async def test_a_stored_structured_event_comes_back_in_binary_mode(topic):
    """A Kafka producer may store complete events as values; the consumer chooses the form."""
    made = event({"a": 1}, datacontenttype="application/json", subject="é %")
    stored = kafka.to_structured_event(made)
    await topic.post(
        bytes(record_batch.encode([Row(5, None, stored.value, [("content-type", EVENT.encode())])])), RECORD_BATCH
    )
    answer = await topic.fetch(offset=0, max_records=1, cloudevents="binary")
    assert answer.headers["Content-Type"] == "application/json"
    headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
    assert same(http.from_binary_event(http.HTTPMessage(headers, answer.body)), made)
    assert same(await one(topic), made)
