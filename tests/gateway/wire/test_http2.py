"""HTTP/2 as bytes, with the h2 library as the client, and handmade frames."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import frames
from gateway.wire.frames import PREFACE, frame
from gateway.wire.http2 import LEAVE_PING, Http2
from tests.gateway.wire.conversations import LIMITS, fed, sent, summary
from tests.gateway.wire.http2_client import GET_BLOCK, HEADERS_END, HELLO, POST_BLOCK, Client, goaway_code, summary_end

CUTS = st.lists(st.integers(1, 2000), max_size=20)


@given(st.lists(st.tuples(st.binary(max_size=3000), st.sampled_from(["/", "/a%2Fb?c=d"])), max_size=6), CUTS)
def test_requests_are_the_same_whatever_pieces_they_come_in(requests, cuts):
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for number, (body, path) in enumerate(requests):
        stream_id = 2 * number + 1
        fields = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "h"), ("x", str(number))]
        client.send_headers(stream_id, fields)
        client.send_data(stream_id, body[:1000])
        client.send_data(stream_id, body[1000:], end_stream=True)
    data = client.data_to_send()
    complete = summary(fed(Http2(LIMITS), data))
    assert summary(fed(Http2(LIMITS), data, cuts)) == complete
    assert [one[4:] for one in complete.values()] == [(body, "whole") for body, _ in requests]
    assert [one[1] for one in complete.values()] == [path.partition("?")[0] for _, path in requests]


@given(st.binary(max_size=300), CUTS)
def test_bytes_of_any_kind_never_raise(data, cuts):
    fed(Http2(LIMITS), HELLO + data, cuts)
    fed(Http2(LIMITS), data, cuts)


FRAMES = st.lists(
    st.builds(
        frame,
        st.integers(0, 11),
        st.integers(0, 255),
        st.integers(0, 9),
        st.one_of(st.binary(max_size=40), st.sampled_from([GET_BLOCK, POST_BLOCK, bytes(8), bytes(4), b"\0\0\0\1"])),
    ),
    max_size=30,
)


@given(FRAMES, CUTS)
def test_frames_of_any_kind_never_raise_and_streams_end_once(sequence, cuts):
    core = Http2(LIMITS)
    seen = fed(core, HELLO + b"".join(sequence), cuts)
    ended = [event.stream_id for event in seen if type(event).__name__ in ("StreamReset", "BodyEnded")]
    resets = [event.stream_id for event in seen if type(event).__name__ == "StreamReset"]
    assert len(resets) == len(set(resets))
    for stream_id in set(ended):
        core.answer(stream_id, 200, [], b"x")
    sent(core)


def test_an_answer_reaches_the_client():
    client = Client()
    stream_id = client.send_request(("x", "y"), method="POST", path="/a%2Fb", body=b"abc")
    assert summary(client.events)[stream_id] == ("POST", "/a%2Fb", "", (("x", "y"),), b"abc", "whole")
    client.core.answer(stream_id, 201, [("Content-Type", "text/plain")], b"hello")
    client.exchange()
    (response,) = [event for event in client.answers if isinstance(event, ResponseReceived)]
    assert [(bytes(n), bytes(v)) for n, v in response.headers] == [
        (b":status", b"201"),
        (b"content-type", b"text/plain"),
    ]
    assert (client.body_of(stream_id), client.is_whole(stream_id)) == (b"hello", True)


def test_requests_with_the_same_head_share_it():
    client = Client()
    first, second, third = (client.send_request(("x", "y")) for _ in range(3))
    heads = {event.stream_id: event.head for event in client.events if type(event).__name__ == "RequestBegan"}
    assert heads[second] is heads[third]
    client.send_request(("x", "z"))
    assert heads[first].headers == heads[second].headers == (("x", "y"),)


def test_trailers_are_let_go():
    client = Client()
    stream_id = client.send_request(method="POST", body=b"abc", ends=False)
    client.h2.send_headers(stream_id, [("x-sum", "1")], end_stream=True)
    client.exchange()
    assert summary(client.events)[stream_id][4:] == (b"abc", "whole")


@pytest.mark.parametrize("announced", ["4", "2"])
def test_a_body_that_is_not_as_long_as_announced_resets_its_stream(announced):
    client = Client()
    stream_id = client.send_request(("content-length", "3"), method="POST", ends=False)
    wrong = b"x" * int(announced)
    fed_events = fed(client.core, frame(frames.DATA, frames.END_STREAM, stream_id, wrong))
    assert summary_end(fed_events) == "StreamReset"
    assert not any(type(event).__name__ == "BodyEnded" for event in fed_events)


def test_an_early_answer_is_whole_and_then_its_stream_is_reset_without_an_error():
    client = Client()
    stream_id = client.send_request(method="POST", body=b"abc", ends=False)
    client.core.answer(stream_id, 413, [], b"too large")
    client.core.stop_body(stream_id)
    client.exchange()
    assert (client.body_of(stream_id), client.is_whole(stream_id)) == (b"too large", True)
    (reset,) = [event for event in client.answers if isinstance(event, StreamReset)]
    assert reset.error_code == ErrorCodes.NO_ERROR
    core = client.core
    assert fed(core, frame(frames.DATA, 0, stream_id, bytes(100))) == []
    assert goaway_code(core) is None


def test_goaway_comes_after_the_answers_in_flight():
    """The h2 library accepts nothing after a GOAWAY, so the core leaves when no stream is open."""
    client = Client()
    stream_id = client.send_request()
    client.core.announce_leave()
    other = client.send_request()
    for one in (stream_id, other):
        client.core.answer(one, 200, [], b"x")
        client.exchange()
        assert client.is_whole(one)
    (end,) = [event for event in client.answers if isinstance(event, ConnectionTerminated)]
    assert (end.error_code, end.last_stream_id) == (ErrorCodes.NO_ERROR, frames.STREAM_ID_MAX)
    client.core.leave()
    assert client.core.is_closing


def test_a_connection_ends_after_its_open_streams_and_those_that_cross_its_goaway():
    """RFC 9113 6.8: the first GOAWAY names no stream; the second is sent once the client has seen the first."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK))
    sent(core)
    core.leave()
    ping = frame(frames.PING, 0, 0, LEAVE_PING)
    assert sent(core) == frames.goaway(frames.STREAM_ID_MAX, frames.NO_ERROR) + ping
    assert len(fed(core, frame(frames.HEADERS, HEADERS_END, 3, GET_BLOCK))) == 1
    core.leave()  # a second time, as after a second renewal
    assert sent(core) == b""
    fed(core, frame(frames.PING, frames.ACK, 0, LEAVE_PING))
    assert sent(core) == frames.goaway(3, frames.NO_ERROR)
    assert fed(core, frame(frames.HEADERS, HEADERS_END, 5, GET_BLOCK)) == []
    assert sent(core) == frames.reset(5, frames.REFUSED_STREAM)
    for stream_id in (1, 3):
        assert not core.is_closing
        core.answer(stream_id, 200, [], b"x")
    assert core.is_closing
    assert b"x" in sent(core)


def test_a_connection_ends_although_its_client_answers_no_ping():
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK))
    core.leave()
    sent(core)
    core.answer(1, 200, [], b"")
    assert core.is_closing
    assert goaway_code(core) == frames.NO_ERROR


def test_an_idle_client_gets_goaway_and_its_late_requests_are_answered():
    client = Client()
    client.core.announce_leave()
    assert goaway_code(client.core) == frames.NO_ERROR
    assert len(fed(client.core, frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK))) == 1


def test_a_smaller_table_of_the_client_is_acknowledged_in_the_next_block():
    client = Client()
    client.h2.update_settings({frames.HEADER_TABLE_SIZE: 0})
    client.exchange()
    stream_id = client.send_request()
    client.core.answer(stream_id, 200, [("X", "y")], b"")
    client.exchange()
    assert any(isinstance(event, ResponseReceived) for event in client.answers)


def test_a_wrong_preface_gets_an_error():
    core = Http2(LIMITS)
    fed(core, PREFACE[:-1] + b"x")
    assert goaway_code(core) == frames.PROTOCOL_ERROR
    assert core.is_closing


def test_connection_faults_reset_what_is_under_way():
    client = Client()
    stream_id = client.send_request()
    events = fed(client.core, frame(frames.PUSH_PROMISE, 0, 1))
    assert [(type(event).__name__, event.stream_id) for event in events] == [("StreamReset", stream_id)]
    client.answers += client.h2.receive_data(sent(client.core))
    assert any(isinstance(event, ConnectionTerminated) for event in client.answers)


def test_a_goaway_that_is_too_short_ends_the_connection():
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.GOAWAY, 0, 0, bytes(3)))
    assert goaway_code(core) == frames.FRAME_SIZE_ERROR


def test_connect_with_a_path_is_malformed():
    """RFC 9113 8.5: it has an authority, and neither a scheme nor a path. Before the fix it was answered."""
    connect, authority = b"\x02\x07CONNECT", b"\x41\x01h"
    for block, kind in ((connect + authority + b"\x86\x84", "StreamReset"), (connect, "StreamReset"),
                        (connect + authority, "RequestBegan")):  # fmt: skip
        core = Http2(LIMITS)
        events = fed(core, HELLO + frame(frames.HEADERS, HEADERS_END, 1, block))
        is_reset = b"".join(map(bytes, core.take_output(2**16))).endswith(frames.reset(1, frames.PROTOCOL_ERROR))
        assert is_reset == (kind == "StreamReset")
        assert bool(events) == (kind == "RequestBegan")


def test_trailers_of_http2_are_bounded():
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, frames.END_HEADERS, 1, POST_BLOCK))
    events = fed(core, frame(frames.HEADERS, HEADERS_END, 1, b"\x00\x01a\x011" * 200))
    assert summary_end(events) == "StreamReset"


def test_requests_whose_heads_precede_all_bodies_are_whole_when_they_begin():
    """As h2load sends them. A head that took more of a portion than its bodies left all of them to tasks."""
    streams = [1 + 2 * number for number in range(100)]
    heads = [frame(frames.HEADERS, frames.END_HEADERS, stream_id, POST_BLOCK) for stream_id in streams]
    bodies = [frame(frames.DATA, frames.END_STREAM, stream_id, b"x") for stream_id in streams]
    events = fed(Http2(LIMITS), HELLO + b"".join(heads + bodies))
    assert [(event.is_complete, event.body) for event in events] == [(True, b"x")] * len(streams)


@given(st.binary(max_size=3000), CUTS, CUTS)
def test_bytes_that_are_held_are_parsed_as_if_they_came_at_once(body, cuts, held_cuts):
    block = frame(frames.HEADERS, frames.END_HEADERS, 1, POST_BLOCK)
    data = (
        HELLO
        + block
        + frame(frames.DATA, frames.END_STREAM, 1, body)
        + frame(frames.HEADERS, HEADERS_END, 3, GET_BLOCK)
    )
    core, events, position = Http2(LIMITS), [], 0
    for number, size in enumerate([*cuts, len(data)]):
        piece, position = data[position : position + size], position + size
        if number % 2:
            core.hold(piece)
        else:
            events += fed(core, piece, held_cuts)
    while core.held_bytes:
        events += core.receive(b"", 0.0)
    assert summary(events) == summary(fed(Http2(LIMITS), data))
