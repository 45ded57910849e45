"""The lines of the audit trail: their form, their bounds, and what none of them has."""

import json

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.events import HIDDEN, LINE_BYTES_MAX, Kind, Subject, clean, line, time_text

SUBJECT = Subject("token:ops", "0a1b2c3d", None, "192.0.2.1", "alter_topic", "alter", "topic", "orders")
TOKEN = "penstock_0a1b2c3d_" + "A-_z" * 11


def made(**more):
    text = line(Kind.INTENDED, SUBJECT, source="/clusters/c/nodes/1", event_id="1", now_ms=1_795_788_515_007, **more)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    return orjson.loads(text)


def test_a_line_is_a_cloud_event():
    event = made(before={"a": 1}, after=None)
    assert {name: event[name] for name in ("specversion", "id", "source", "type", "time", "subject")} == {
        "specversion": "1.0",
        "id": "1",
        "source": "/clusters/c/nodes/1",
        "type": "penstock.audit.v1.change.intended",
        "time": "2026-11-27T14:08:35.007Z",
        "subject": "topic/orders",
    }
    assert event["data"] == {
        "principal": "token:ops",
        "credential": "0a1b2c3d",
        "tenant": None,
        "address": "192.0.2.1",
        "listener": None,
        "operation": "alter_topic",
        "right": "alter",
        "resource": {"kind": "topic", "name": "orders"},
        "before": {"a": 1},
        "after": None,
    }


def test_credentials_are_hidden_wherever_a_client_has_put_them():
    jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
    event = made(after={TOKEN: [f"x {TOKEN} y", jwt], "secret": "whsec_AAAA"}, name=TOKEN)
    text = json.dumps(event)
    assert all(secret not in text for secret in (TOKEN, TOKEN[18:], jwt, "whsec_A"))
    assert event["data"]["after"][HIDDEN][0] == f"x {HIDDEN} y"


def test_a_line_is_bounded_whatever_it_is_given():
    deep = value = {}
    for _ in range(500):
        value["x"] = value = {}
    huge = {f"k{n}": "\x00é€" * 100 for n in range(2000)}
    text = line(
        Kind.INTENDED,
        SUBJECT._replace(name="\x01" * 100_000, principal="p" * 100_000),
        source="s",
        event_id="1",
        now_ms=0,
        before=huge,
        after=[deep, 10**40, float("1e300")],
        request_id="r" * 128,
    )
    assert len(text) <= LINE_BYTES_MAX
    assert orjson.loads(text)["data"]["before"] == {"cut": True}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values, st.text(alphabet=st.characters(exclude_categories=[])))
def test_any_value_and_any_text_make_one_line_of_json(value, text):
    event = made(before=value, after=text)
    assert clean(text) == event["data"]["after"]


def test_times_are_rfc_3339():
    assert [time_text(0), time_text(1), time_text(253_402_300_799_999)] == [
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:00.001Z",
        "9999-12-31T23:59:59.999Z",
    ]
