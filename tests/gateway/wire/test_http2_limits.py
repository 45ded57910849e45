"""HTTP/2 floods, and the limits of a connection: streams, headers, memory."""

import pytest
from h2.errors import ErrorCodes
from h2.events import StreamReset

from gateway.wire import frames
from gateway.wire.frames import BURST, frame
from gateway.wire.http2 import Http2
from gateway.wire.http2_streams import HEADS_SHARE
from gateway.wire.messages import HeadRejected, RequestBegan
from tests.gateway.wire.conversations import LIMITS, fed, sent, summary
from tests.gateway.wire.http2_client import GET_BLOCK, HEADERS_END, HELLO, POST_BLOCK, Client, goaway_code

FLOODS = {
    "rapid resets (CVE-2023-44487)": lambda n: (
        frame(frames.HEADERS, HEADERS_END, 2 * n + 1, GET_BLOCK) + frames.reset(2 * n + 1, frames.CANCEL)
    ),
    "streams that we have to reset (CVE-2025-8671)": lambda n: (
        frame(frames.HEADERS, HEADERS_END, 2 * n + 1, GET_BLOCK) + frames.window_update(2 * n + 1, 0)
    ),
    "pings (CVE-2019-9512)": lambda n: frame(frames.PING, 0, 0, bytes(8)),
    "settings (CVE-2019-9515)": lambda n: frame(frames.SETTINGS, 0, 0),
    "priorities": lambda n: frame(frames.PRIORITY, 0, 1, bytes(5)),
    "empty frames (CVE-2019-9518)": lambda n: (
        frame(frames.HEADERS, frames.END_HEADERS, 1, POST_BLOCK) if n == 0 else frame(frames.DATA, 0, 1)
    ),
    "unknown frames": lambda n: frame(99, 0, 0),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_ends_the_connection_and_a_little_of_it_does_not(flood):
    core = Http2(LIMITS)
    fed(core, HELLO)
    for number in range(BURST // 2):
        for event in core.receive(flood(number), 0.0):
            if type(event).__name__ == "StreamReset":
                core.release(event.stream_id)
        sent(core)
    assert not core.is_closing
    for number in range(BURST // 2, 2 * BURST):
        for event in core.receive(flood(number), 0.0):
            if type(event).__name__ == "StreamReset":
                core.release(event.stream_id)
        if core.is_closing:
            break
        sent(core)
    assert goaway_code(core) == frames.ENHANCE_YOUR_CALM


def test_a_flood_over_time_is_use():
    core = Http2(LIMITS)
    fed(core, HELLO)
    for number in range(3 * BURST):
        core.receive(frame(frames.PING, 0, 0, bytes(8)), number / 20)
        sent(core)
    assert not core.is_closing


def test_a_header_block_without_end_ends_the_connection():
    """CVE-2024-27316."""
    for part in (bytes(16_384), b""):
        core = Http2(LIMITS)
        fed(core, HELLO + frame(frames.HEADERS, 0, 1, GET_BLOCK))
        for _ in range(200):
            core.receive(frame(frames.CONTINUATION, 0, 1, part), 0.0)
        assert goaway_code(core) == frames.ENHANCE_YOUR_CALM


def test_streams_beyond_the_limit_are_refused_and_requests_in_flight_count():
    client = Client(LIMITS._replace(streams_max=2))
    first, _second = client.send_request(), client.send_request()
    third = fed(client.core, frame(frames.HEADERS, HEADERS_END, 5, GET_BLOCK))
    assert third == []
    assert sent(client.core) == frames.reset(5, frames.REFUSED_STREAM)
    fed(client.core, frames.reset(first, frames.CANCEL))
    assert fed(client.core, frame(frames.HEADERS, HEADERS_END, 7, GET_BLOCK)) == [], "it is still being worked on"
    client.core.release(first)
    assert len(fed(client.core, frame(frames.HEADERS, HEADERS_END, 9, GET_BLOCK))) == 1


def test_headers_that_are_too_large_get_431_and_the_connection_stays_open():
    client = Client()
    many = [(f"x-{number}", "x" * 1000) for number in range(30)]
    for body in ({}, {"body": b"abc", "ends": False}):
        refused = client.send_request(*many, **body)
        assert HeadRejected(refused, 431) in client.events
        client.core.answer(refused, 431, [], b"too large")
        client.exchange()
        assert client.body_of(refused) == b"too large"
        assert client.is_whole(refused)
    stream_id = client.send_request(("x", "y"))
    assert summary(client.events[-1:])[stream_id][3] == (("x", "y"),)
    assert len(client.core._open) == 1


def test_a_connection_keeps_no_bytes_that_it_has_read():
    """Before the fix it held up to 256 KiB, its last bytes, as long as it was open."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK))
    assert core._reader._data == b""


def test_a_head_of_many_fields_is_not_remembered():
    """Each takes one byte of its block."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK + b"\x93" * 90))
    assert "under_way=1" in repr(core)
    assert "known=0" in repr(core._heads)


def with_headers(client, count, value_bytes):
    return client.send_request(*((f"x-{number}", "v" * value_bytes) for number in range(count)))


def test_the_heads_of_requests_under_way_are_bounded_together():
    """Before the fix 1,024 streams with 64 KiB of headers held 64 MiB on each connection."""
    client = Client(LIMITS)
    accepted = [with_headers(client, 15, 1000) for _ in range(HEADS_SHARE)]
    late = [with_headers(client, 15, 1000) for _ in range(10)]
    begun = [event.stream_id for event in client.events if isinstance(event, RequestBegan)]
    assert len(begun) < HEADS_SHARE + 10
    refused = [event for event in client.answers if isinstance(event, StreamReset)]
    assert {event.error_code for event in refused} == {ErrorCodes.REFUSED_STREAM}
    assert refused[-1].stream_id == late[-1]
    for stream_id in accepted[:2]:
        client.core.answer(stream_id, 200, [], b"")
        client.core.release(stream_id)
    again = with_headers(client, 15, 1000)
    assert [event.stream_id for event in client.events if isinstance(event, RequestBegan)] == [*begun, again]


def test_headers_are_as_many_as_over_http1():
    client = Client()
    assert HeadRejected(with_headers(client, LIMITS.headers_max + 1, 1), 431) in client.events
    allowed = with_headers(client, LIMITS.headers_max, 1)
    assert len(summary(client.events)[allowed][3]) == LIMITS.headers_max
