"""Finding positions: bounds, and the first record at or after a time."""

import pytest

from tests.scenarios.conformity import assert_problem

HOUR_MS = 3_600_000
T0 = 1_357_034_400_000  # 2013-01-01T10:00:00Z


@pytest.fixture
async def hourly(topic):
    """Create a record an hour from T0 on, in batches of three; the fifth is late by two hours."""
    for first in (0, 3, 6):
        await topic.post_records(*({"value": n, "timestamp": T0 + n * HOUR_MS} for n in range(first, first + 3)))
    await topic.post_records({"value": 9, "timestamp": T0 + 3 * HOUR_MS})
    return topic


async def test_the_bounds_of_an_empty_and_of_a_filled_partition(topic):
    empty = await topic.positions()
    assert (empty["log_start"], empty["log_end"], empty["high_watermark"]) == (0, 0, 0)
    await topic.post_lines("1", "2")
    filled = await topic.positions()
    assert (filled["log_start"], filled["log_end"], filled["high_watermark"], filled["offset"]) == (0, 2, 2, None)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (0, 0, T0),
        (T0, 0, T0),
        (T0 + 1, 1, T0 + HOUR_MS),
        (T0 + 2 * HOUR_MS, 2, T0 + 2 * HOUR_MS),
        (T0 + 2 * HOUR_MS + 1, 3, T0 + 3 * HOUR_MS),
        ("2013-01-01T15:00:00Z", 5, T0 + 5 * HOUR_MS),
        ("2013-01-01T16:00:00+01:00", 5, T0 + 5 * HOUR_MS),
        (T0 + 8 * HOUR_MS, 8, T0 + 8 * HOUR_MS),
        (T0 + 8 * HOUR_MS + 1, None, None),
    ],
)
@pytest.mark.parametrize("is_rolled", [False, True])
async def test_the_first_record_at_or_after_a_time(hourly, timestamp, offset, found, is_rolled):
    if is_rolled:
        await hourly.roll()
    positions = await hourly.positions(timestamp=timestamp)
    assert (positions["offset"], positions["timestamp"]) == (offset, found)


async def test_a_fetch_can_begin_at_a_time(hourly):
    assert (await hourly.records(timestamp=T0 + 7 * HOUR_MS))[0]["offset"] == 7
    after_all = (await hourly.fetch(timestamp=T0 + 99 * HOUR_MS)).json
    assert (after_all["records"], after_all["next_offset"]) == ([], 10)


async def test_a_time_is_found_across_segments(new_topic):
    topic = await new_topic()
    for n in range(5):
        await topic.post_records({"value": n, "timestamp": T0 + n * HOUR_MS})
        await topic.roll()
    for n in range(5):
        assert (await topic.positions(timestamp=T0 + n * HOUR_MS - 1))["offset"] == n


async def test_what_is_no_time_is_refused(topic):
    for text in ("noon", "", "2013-01-01", "1.5", "-1"):
        answer = await topic.gateway.send("GET", f"{topic.path}/partitions/0/offsets", timestamp=text)
        assert_problem(answer, "invalid_query", parameter="timestamp")


async def test_a_time_before_1970_is_named(topic):
    answer = await topic.gateway.send("GET", f"{topic.path}/partitions/0/offsets", timestamp="-1385053862000")
    detail = assert_problem(answer, "invalid_query", parameter="timestamp")["detail"]
    assert detail == "timestamp -1385053862000 is before 1970"


@pytest.mark.parametrize("path", ["offsets", "records"])
async def test_a_time_in_seconds_gets_a_hint(topic, path):
    for timestamp, hint in ((1_385_053_862, "1385053862 is a time in January 1970: give milliseconds"), (T0, None)):
        answer = await topic.gateway.send("GET", f"{topic.path}/partitions/0/{path}", timestamp=timestamp)
        assert (answer.status, answer.headers.get("Penstock-Hint")) == (200, hint)
