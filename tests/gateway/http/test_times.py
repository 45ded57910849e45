"""Times in requests: exactly RFC 3339."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.problems import Problem
from gateway.http.times import parse_timestamp, rfc3339_ms


@given(st.integers(0, 7 * 10**12), st.integers(-14 * 60, 14 * 60))
def test_a_time_with_an_offset_is_a_moment(moment_ms, offset_minutes):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment_ms)
    local = moment.astimezone(timezone(timedelta(minutes=offset_minutes)))
    assert rfc3339_ms(local.isoformat(timespec="milliseconds")) == moment_ms
    in_utc = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert rfc3339_ms(in_utc) == rfc3339_ms(in_utc.lower()) == moment_ms


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2013-01-01t10:00:00z", "2013-01-01T10:00:00+00:00"),
        ("2013-01-01T10:00:00-00:00", "2013-01-01T10:00:00Z"),
        ("2013-01-01T10:00:00.5Z", "2013-01-01T10:00:00.500000000000Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("1990-12-31T15:59:60-08:00", "1991-01-01T00:00:00Z"),
        ("2013-01-01T00:30:00+23:59", "2012-12-31T00:31:00Z"),
    ],
)
def test_every_form_of_rfc_3339_is_taken(text, same):
    assert rfc3339_ms(text) == rfc3339_ms(same) is not None


@pytest.mark.parametrize(
    "text",
    ["", "now", "5", "2013-01-01", "2013-01-01T10:00:00", "10:00Z", "2013-13-01T10:00:00Z", "2013-02-29T10:00:00Z",
     "2013-01-01T10Z", "2013-01-01T10:00Z", "20130101T100000Z", "2013-W01-2T10:00:00Z", "2013W012T100000Z",
     "2013-01-01 10:00:00Z", "2013-01-01_10:00:00Z", "2013-01-01T10:00:00,5Z", "2013-01-01T10:00:00.Z",
     "2013-01-01T10:00:00+01", "2013-01-01T10:00:00+0100", "2013-01-01T10:00:00+01:00:30", "2013-01-01T10:00:00+24:00",
     "2013-01-01T24:00:00Z", "2013-01-01T10:00:61Z", "2013-01-01T10:00:60Z", "2013-12-31T23:58:60Z",
     " 2013-01-01T10:00:00Z", "2013-01-01T10:00:00Z\n", "+2013-01-01T10:00:00Z", "0000-01-01T10:00:00Z",
     "\u0662013-01-01T10:00:00Z", "2013-01-01T10:00:00\u017aZ"],
)  # fmt: skip
def test_nothing_else_is_a_time(text):
    assert rfc3339_ms(text) is None
    if text != "5":
        with pytest.raises(Problem, match="invalid_query"):
            parse_timestamp(text)


def test_a_plus_that_a_query_turned_into_a_space_is_a_plus():
    assert parse_timestamp("2013-01-01T10:00:00 01:00") == parse_timestamp("2013-01-01T09:00:00Z")
