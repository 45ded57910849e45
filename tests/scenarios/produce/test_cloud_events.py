"""CloudEvents: events of the CloudEvents SDK are stored as Kafka's binding says, and the SDK reads them back."""

from datetime import UTC, datetime

import orjson
import pytest
from cloudevents.core.bindings import http, kafka
from cloudevents.core.v1.event import CloudEvent

from engine.format import batch as record_batch
from engine.format.batch import Row
from tests.scenarios.gateways import RECORD_BATCH, sharded_only

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
    events = await all_of(topic)
    assert len(events) == 4
    for document in events:
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
    attributes = (await one(topic)).get_attributes()
    assert attributes | {"partitionkey": None} == sent.get_attributes() | {"partitionkey": None}


async def test_partitionkey_is_the_key_and_leads_where_keys_lead(new_topic):
    topic = await new_topic(8)
    for n in range(8):
        by_event = await topic.post(orjson.dumps({**REQUIRED, "partitionkey": f"k{n}"}), EVENT)
        by_key = await topic.post_records({"key": f"k{n}", "value": 1})
        assert by_event.json["results"][0]["partition"] == by_key.json["results"][0]["partition"]


async def test_events_are_read_one_by_one_and_waited_for(topic):
    await topic.post(orjson.dumps([{**REQUIRED, "id": str(n)} for n in range(3)]), EVENT_BATCH)
    offset, events = 0, []
    while True:
        answer = await topic.fetch(offset=offset, accept=EVENT, max_records=1, wait_ms=10)
        if answer.status == 204:
            break
        events.append(answer.json["id"])
        offset = int(answer.headers["Penstock-Next-Offset"])
    assert (events, offset) == (["0", "1", "2"], 3)
