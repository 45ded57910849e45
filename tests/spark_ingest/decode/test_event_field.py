"""The member that holds the event time, at any position."""

from __future__ import annotations

import pytest

from spark_ingest.decode.event_field import EventField

NOVEMBER = 1_384_992_000_000_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ts", b'{"ts":"2013-11-21","other":[1,{"ts":2}]}'),
        ("ts", b'{"ts":1384992000}'),
        ("ts", b'{"ts":1384992000.0}'),
        ("/meta/ts", b'{"ts":1,"meta":{"a":1,"ts":"2013-11-21T00:00:00Z"}}'),
        ("meta.ts", b'{"meta":{"ts":1384992000000}}'),
        ("/a.b", b'{"a.b":"2013-11-21"}'),
    ],
)
def test_a_time_is_found(field: str, value: bytes) -> None:
    assert EventField(field).times([value]).to_pylist() == [NOVEMBER]


def test_what_has_no_time_does_not_disturb_its_neighbours() -> None:
    nowhere = [None, b"", b"[]", b"{}", b'{"meta":1}', b'{"meta":{"ts":null}}', b'{"meta":{"ts":{}}}', b"\xff"]
    good = b'{"meta":{"ts":"2013-11-21"}}'
    assert EventField("meta.ts").times([good, *nowhere, good]).to_pylist() == [NOVEMBER, *[None] * 8, NOVEMBER]


def test_forms_may_be_mixed() -> None:
    values = [b'{"ts":"2013-11-21"}', b'{"ts":1384992000}', b'{"ts":%d}' % 2**70, b'{"ts":1384992000000000}']
    assert EventField("ts").times(values).to_pylist() == [NOVEMBER, NOVEMBER, None, NOVEMBER]
    assert EventField("ts").times(values[1:3]).to_pylist() == [NOVEMBER, None]
