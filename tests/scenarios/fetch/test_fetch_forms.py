"""The forms of a fetch answer: by `Accept`, by `value=`, by `ndjson=`, each with the positions in headers."""

import base64

import orjson
import pytest

from engine.format import batch as record_batch
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, sharded_only

pytestmark = sharded_only


@pytest.fixture
async def mixed(topic):
    """A record of each kind."""
    await topic.post_records(
        {"key": "json", "value": {"a": [1, 2]}, "timestamp": 1},
        {"key": "bytes", "value_base64": "/wA=", "timestamp": 2},
        {"key": "none", "value": None, "timestamp": 3},
        {"key_base64": "/w==", "value": "text", "timestamp": 4},
    )
    await topic.post(b"plain text", "text/plain")
    return topic


async def test_json_is_the_form_of_those_who_do_not_say(mixed):
    for accept in (None, "*/*", "application/*", "text/html, application/json;q=0.9", JSON):
        answer = await mixed.fetch(accept=accept)
        assert answer.headers["Content-Type"].startswith(JSON)
        assert len(answer.json["records"]) == 5


async def test_every_form_carries_the_positions_in_headers(mixed):
    for accept in (JSON, NDJSON, RECORD_BATCH):
        answer = await mixed.fetch(offset=0, accept=accept)
        names = ("Penstock-Next-Offset", "Penstock-High-Watermark", "Penstock-Log-Start")
        assert [answer.headers[name] for name in names] == ["5", "5", "0"]


async def test_json_and_ndjson_give_the_same_records(mixed):
    assert (await mixed.fetch(accept=NDJSON)).lines == (await mixed.fetch(accept=JSON)).json["records"]


async def test_each_value_is_shown_as_what_it_is(mixed):
    shown = [(r.get("value"), r.get("value_base64")) for r in await mixed.records()]
    assert shown == [({"a": [1, 2]}, None), (None, "/wA="), (None, None), ("text", None), ("plain text", None)]


async def test_every_value_can_be_asked_for_as_text(mixed):
    shown = [(r.get("value"), r.get("value_base64")) for r in await mixed.records(value="text")]
    assert shown == [('{"a":[1,2]}', None), (None, "/wA="), (None, None), ('"text"', None), ("plain text", None)]


async def test_every_value_can_be_asked_for_as_base64(mixed):
    shown = [r.get("value_base64") for r in await mixed.records(value="base64")]
    assert [None if s is None else base64.b64decode(s) for s in shown] == [
        b'{"a":[1,2]}', b"\xff\x00", None, b'"text"', b"plain text",
    ]  # fmt: skip


async def test_bare_values_are_a_line_each(mixed):
    answer = await mixed.fetch(accept=NDJSON, ndjson="values")
    assert answer.body.splitlines() == [b'{"a":[1,2]}', b'{"value_base64":"/wA="}', b"null", b'"text"', b'"plain text"']


async def test_stored_batches_are_whole_batches_with_valid_checksums(mixed):
    answer = await mixed.fetch(offset=2, accept=RECORD_BATCH)
    assert answer.headers["Penstock-Base-Offset"] == "0"
    found = list(record_batch.walk(answer.body))
    assert sum(header.size_bytes for _, header in found) == len(answer.body)
    assert all(record_batch.has_valid_crc(answer.body, position, header) for position, header in found)
    assert [record.offset for record in record_batch.decode(answer.body)] == [0, 1, 2, 3, 4]


async def test_at_the_end_there_is_nothing_in_any_form(mixed):
    assert (await mixed.fetch(offset=5)).json["records"] == []
    assert (await mixed.fetch(offset=5, accept=NDJSON)).body == b""
    batches = await mixed.fetch(offset=5, accept=RECORD_BATCH)
    assert batches.body == b""
    assert "Penstock-Base-Offset" not in batches.headers
    assert batches.headers["Penstock-Next-Offset"] == "5"


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/xml, text/plain"])
async def test_a_form_that_cannot_be_given_is_reported(mixed, accept):
    assert_problem(await mixed.fetch(accept=accept), "not_acceptable")


@pytest.mark.parametrize("refused", ["application/json;q=0, text/html", "application/json; q=0.000"])
async def test_a_form_with_quality_0_is_not_given(mixed, refused):
    assert_problem(await mixed.fetch(accept=refused), "not_acceptable")


async def test_the_form_with_the_highest_quality_is_given(mixed):
    answer = await mixed.fetch(accept="application/json; q=0.5, text/html, application/x-ndjson;q=0.8, */*;q=0.1")
    assert answer.headers["Content-Type"].startswith(NDJSON)


HOSTILE_VALUES = [
    b'1},{"offset":5',
    b'1}]}{"records":[{"value":2',
    b"1\n2",
    b"1,2",
    b'{"a":1}\n',
    b'{\n "a": [\r\n  1\n ]\n}',
    b' {"a":1}',
    b"",
    b"\xff",
    b'"\xff"',
    b'"\\ud800"',
    b"NaN",
    b"1 2",
    b"\xef\xbb\xbf1",
    b"[" * 2000 + b"]" * 2000,
    b"</script>",
    b"\x00",
]


@pytest.mark.parametrize("shown_as", ["json", "text", "base64", None])
async def test_no_stored_value_can_break_the_document_around_it(topic, shown_as):
    """Bodies may hold any bytes. The answer is one valid document with all records, and their bytes are unchanged."""
    json_says = {"content-type": "application/json"}
    encoded = [base64.b64encode(value).decode() for value in HOSTILE_VALUES]
    await topic.post_records(*({"value_base64": text, "headers": json_says} for text in encoded))
    query = {} if shown_as is None else {"value": shown_as}
    records = orjson.loads((await topic.fetch(offset=0, **query)).body)["records"]
    assert len(records) == len(HOSTILE_VALUES)
    for value, text, shown in zip(HOSTILE_VALUES, encoded, records, strict=True):
        if "value_base64" in shown:
            assert shown["value_base64"] == text
        elif shown_as == "text":
            assert shown["value"] == value.decode()
        else:
            assert shown["value"] == orjson.loads(value)
    lines = (await topic.fetch(offset=0, accept=NDJSON, **query)).body
    assert [orjson.loads(line) for line in lines.splitlines()] == records
    bare = (await topic.fetch(offset=0, accept=NDJSON, ndjson="values", **query)).body
    assert len([orjson.loads(line) for line in bare.splitlines()]) == len(HOSTILE_VALUES)
