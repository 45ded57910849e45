"""Bodies that are large, or piped from one topic to another. The golden exchanges have every form of a body."""

import base64

import pytest

from engine.format import batch
from tests.scenarios.gateways import NDJSON, RECORD_BATCH, in_process_only, sharded_only


@in_process_only
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


@in_process_only
async def test_a_hundred_thousand_lines_are_one_batch(topic):
    """Large bodies are decoded outside the event loop; the records are the same."""
    body = b"".join(b'{"n":%d}\n' % n for n in range(100_000))
    (result,) = (await topic.post(body, NDJSON)).json["results"]
    assert (result["base_offset"], result["count"]) == (0, 100_000)
    back = await topic.fetch(accept=NDJSON, ndjson="values", max_bytes=32 * 2**20)
    assert back.body == body
    assert back.headers["Penstock-Next-Offset"] == "100000"


@sharded_only
async def test_a_large_body_of_no_announced_length_arrives_whole(topic):
    """Above the size up to which a body is read in one piece."""
    body = b"0123456789abcdef" * 50_000
    await topic.post(body, "application/octet-stream")
    await topic.post(body + b"0" * 200_000, "application/octet-stream")
    [first] = await topic.records(max_bytes=1)  # an answer has less than two such records if its window is small
    [second] = await topic.records(offset=1, max_bytes=1)
    assert base64.b64decode(first["value_base64"]) == body
    assert base64.b64decode(second["value_base64"]) == body + b"0" * 200_000
