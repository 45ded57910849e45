"""HTTP/2 as bytes, with the h2 library as the client, and frames by hand for what no library sends."""

import struct

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import frames
from gateway.wire.flood_guard import BURST
from gateway.wire.frames import PREFACE, frame
from gateway.wire.http2 import Http2
from gateway.wire.http2_streams import CONNECTION_WINDOW, STREAM_WINDOW
from gateway.wire.messages import HeadRefused
from tests.gateway.wire.conversations import LIMITS, fed, sent, summary

CUTS = st.lists(st.integers(1, 2000), max_size=20)
HELLO = PREFACE + frame(frames.SETTINGS, 0, 0)
GET_BLOCK = b"\x82\x86\x84\x41\x01h"  # GET, http, /, :authority h
POST_BLOCK = b"\x83\x86\x84\x41\x01h"
HEADERS_END = frames.END_HEADERS | frames.END_STREAM


class Client:
    """The h2 library and a core of ours, which exchange bytes without a network."""

    def __init__(self, limits=LIMITS):
        self.core = Http2(limits)
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.events = []
        self.answers = []
        self.exchange()

    def exchange(self):
        while True:
            there = self.h2.data_to_send()
            self.events += fed(self.core, there)
            back = sent(self.core)
            self.answers += self.h2.receive_data(back)
            if not there and not back:
                return self

    def ask(self, *headers, method="GET", path="/", body=None, ends=True):
        stream_id = self.h2.get_next_available_stream_id()
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "h")]
        self.h2.send_headers(stream_id, [*pseudo, *headers], end_stream=body is None and ends)
        if body is not None:
            self.h2.send_data(stream_id, body, end_stream=ends)
        self.exchange()
        return stream_id

    def body_of(self, stream_id):
        return b"".join(e.data for e in self.answers if isinstance(e, DataReceived) and e.stream_id == stream_id)

    def is_whole(self, stream_id):
        return any(isinstance(e, StreamEnded) and e.stream_id == stream_id for e in self.answers)


def goaway_code(core):
    """Of the GOAWAY that the core sends, if it does."""
    data, position = sent(core), 0
    while position < len(data):
        high, low, kind, _, _ = frames.HEAD.unpack_from(data, position)
        if kind == frames.GOAWAY:
            return struct.unpack_from(">L", data, position + 13)[0]
        position += 9 + (high << 8 | low)
    return None


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
    whole = summary(fed(Http2(LIMITS), data))
    assert summary(fed(Http2(LIMITS), data, cuts)) == whole
    assert [one[4:] for one in whole.values()] == [(body, "whole") for body, _ in requests]
    assert [one[1] for one in whole.values()] == [path.partition("?")[0] for _, path in requests]


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
    stream_id = client.ask(("x", "y"), method="POST", path="/a%2Fb", body=b"abc")
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
    first, second, third = (client.ask(("x", "y")) for _ in range(3))
    heads = {event.stream_id: event.head for event in client.events if type(event).__name__ == "RequestBegan"}
    assert heads[second] is heads[third]
    client.ask(("x", "z"))
    assert heads[first].headers == heads[second].headers == (("x", "y"),)


def test_trailers_are_let_go():
    client = Client()
    stream_id = client.ask(method="POST", body=b"abc", ends=False)
    client.h2.send_headers(stream_id, [("x-sum", "1")], end_stream=True)
    client.exchange()
    assert summary(client.events)[stream_id][4:] == (b"abc", "whole")


def test_a_large_answer_waits_for_windows_and_streams_take_turns():
    client = Client()
    body = bytes(range(256)) * 1024
    streams = [client.ask() for _ in range(3)]
    for stream_id in streams:
        client.core.answer(stream_id, 200, [], body)
    client.exchange()
    assert client.core.pending_bytes == 3 * len(body) - 65_535
    assert not client.core.has_output
    assert max(len(client.body_of(one)) for one in streams) - min(len(client.body_of(one)) for one in streams) <= 2**14
    for _ in range(100):
        for stream_id in streams:
            if not client.is_whole(stream_id):
                client.h2.increment_flow_control_window(20_000, stream_id)
        client.h2.increment_flow_control_window(60_000)
        client.exchange()
    assert [client.body_of(one) for one in streams] == [body] * 3
    assert client.core.pending_bytes == 0


def test_windows_are_given_back_as_bodies_are_read():
    client = Client()
    stream_id = client.ask(method="POST", ends=False, body=b"")
    total = 0
    while client.h2.local_flow_control_window(stream_id) > 0:
        piece = min(client.h2.local_flow_control_window(stream_id), 16_384)
        client.h2.send_data(stream_id, b"x" * piece)
        total += piece
    client.exchange()
    assert total == STREAM_WINDOW
    client.core.consumed(stream_id, total)
    client.exchange()
    assert client.h2.local_flow_control_window(stream_id) == STREAM_WINDOW


def test_more_than_a_window_ends_the_stream_and_more_than_that_of_the_connection_ends_it():
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, frames.END_HEADERS, 1, POST_BLOCK))
    sent(core)
    data = frame(frames.DATA, 0, 1, bytes(16_384))
    events = fed(core, data * (STREAM_WINDOW // 16_384 + 1))
    assert summary_end(events) == "StreamReset"
    fed(core, data * (CONNECTION_WINDOW // 16_384 * 2))
    assert not core.is_closing, "what was under way to a stream that is reset is given back"


def summary_end(events):
    return type(events[-1]).__name__


@pytest.mark.parametrize("announced", ["4", "2"])
def test_a_body_that_is_not_as_long_as_announced_resets_its_stream(announced):
    client = Client()
    stream_id = client.ask(("content-length", "3"), method="POST", ends=False)
    wrong = b"x" * int(announced)
    fed_events = fed(client.core, frame(frames.DATA, frames.END_STREAM, stream_id, wrong))
    assert summary_end(fed_events) == "StreamReset"
    assert not any(type(event).__name__ == "BodyEnded" for event in fed_events)


def test_an_early_answer_is_whole_and_then_its_stream_is_reset_without_an_error():
    client = Client()
    stream_id = client.ask(method="POST", body=b"abc", ends=False)
    client.core.answer(stream_id, 413, [], b"too large")
    client.core.stop_body(stream_id)
    client.exchange()
    assert (client.body_of(stream_id), client.is_whole(stream_id)) == (b"too large", True)
    (reset,) = [event for event in client.answers if isinstance(event, StreamReset)]
    assert reset.error_code == ErrorCodes.NO_ERROR
    core = client.core
    assert fed(core, frame(frames.DATA, 0, stream_id, bytes(100))) == []
    assert goaway_code(core) is None


def test_streams_past_the_bound_are_refused_and_requests_in_hand_count():
    client = Client(LIMITS._replace(streams_max=2))
    first, _second = client.ask(), client.ask()
    third = fed(client.core, frame(frames.HEADERS, HEADERS_END, 5, GET_BLOCK))
    assert third == []
    assert sent(client.core) == frames.reset(5, frames.REFUSED_STREAM)
    fed(client.core, frames.reset(first, frames.CANCEL))
    assert fed(client.core, frame(frames.HEADERS, HEADERS_END, 7, GET_BLOCK)) == [], "it is still being worked on"
    client.core.release(first)
    assert len(fed(client.core, frame(frames.HEADERS, HEADERS_END, 9, GET_BLOCK))) == 1


def test_a_client_that_is_told_to_leave_has_its_answers_first():
    """The h2 library takes nothing behind a GOAWAY."""
    client = Client()
    stream_id = client.ask()
    client.core.announce_leave()
    other = client.ask()
    client.core.leave()
    client.exchange()
    late = client.ask()
    assert any(isinstance(event, StreamReset) and event.stream_id == late for event in client.answers)
    for one in (stream_id, other):
        assert not client.core.is_closing
        client.core.answer(one, 200, [], b"x")
    assert client.core.is_closing
    client.exchange()
    assert client.is_whole(stream_id)
    assert client.is_whole(other)
    (end,) = [event for event in client.answers if isinstance(event, ConnectionTerminated)]
    assert (end.error_code, end.last_stream_id) == (ErrorCodes.NO_ERROR, late)


def test_an_idle_client_is_told_to_leave_and_what_it_asks_meanwhile_is_answered():
    client = Client()
    client.core.announce_leave()
    assert goaway_code(client.core) == frames.NO_ERROR
    assert len(fed(client.core, frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK))) == 1


def test_headers_that_are_too_large_are_told_431_and_the_connection_goes_on():
    client = Client()
    many = [(f"x-{number}", "x" * 1000) for number in range(30)]
    for body in ({}, {"body": b"abc", "ends": False}):
        refused = client.ask(*many, **body)
        assert HeadRefused(refused, 431) in client.events
        client.core.answer(refused, 431, [], b"too large")
        client.exchange()
        assert client.body_of(refused) == b"too large"
        assert client.is_whole(refused)
    stream_id = client.ask(("x", "y"))
    assert summary(client.events[-1:])[stream_id][3] == (("x", "y"),)
    assert len(client.core._streams) == 1


def test_bytes_for_a_refused_body_do_not_use_up_the_window_of_the_connection():
    """They came while the answer waited for a window, and nobody read them."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.SETTINGS, 0, 0, struct.pack(">HL", frames.INITIAL_WINDOW_SIZE, 0)))
    for stream_id in range(1, 21, 2):
        fed(core, frame(frames.HEADERS, frames.END_HEADERS, stream_id, POST_BLOCK))
        core.answer(stream_id, 413, [], b"no")
        core.stop_body(stream_id)
        fed(core, b"".join(frame(frames.DATA, 0, stream_id, bytes(16_384)) for _ in range(200)))
    assert goaway_code(core) is None


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


def test_a_smaller_table_of_the_client_is_acknowledged_in_the_next_block():
    client = Client()
    client.h2.update_settings({frames.HEADER_TABLE_SIZE: 0})
    client.exchange()
    stream_id = client.ask()
    client.core.answer(stream_id, 200, [("X", "y")], b"")
    client.exchange()
    assert any(isinstance(event, ResponseReceived) for event in client.answers)


def test_a_preface_that_is_none_is_told_so():
    core = Http2(LIMITS)
    fed(core, PREFACE[:-1] + b"x")
    assert goaway_code(core) == frames.PROTOCOL_ERROR
    assert core.is_closing


def test_connection_faults_reset_what_is_under_way():
    client = Client()
    stream_id = client.ask()
    events = fed(client.core, frame(frames.PUSH_PROMISE, 0, 1))
    assert [(type(event).__name__, event.stream_id) for event in events] == [("StreamReset", stream_id)]
    client.answers += client.h2.receive_data(sent(client.core))
    assert any(isinstance(event, ConnectionTerminated) for event in client.answers)


def with_two_answers_that_wait(core):
    """Two streams with 20,000 bytes each, which are not taken yet."""
    opened = [frame(frames.HEADERS, HEADERS_END, stream_id, GET_BLOCK) for stream_id in (1, 3)]
    fed(core, HELLO + b"".join(opened))
    for stream_id in (1, 3):
        core.answer(stream_id, 200, [], b"%d" % stream_id * 20_000)


def test_a_window_that_shrinks_below_nothing_holds_what_waits_until_it_is_wide_again():
    core = Http2(LIMITS)
    with_two_answers_that_wait(core)
    core.take_output(10_000)  # a frame of 16,384 bytes of the first
    fed(core, frame(frames.SETTINGS, 0, 0, struct.pack(">HL", frames.INITIAL_WINDOW_SIZE, 100)))
    assert core.pending_bytes < 2 * 20_000
    while core.has_output:
        for piece in core.take_output(2**16):
            assert len(piece) <= 16_384
    fed(core, frame(frames.WINDOW_UPDATE, 0, 1, struct.pack(">L", 2**20)))
    assert b"1" * (20_000 - 16_384) in sent(core)
    assert core.pending_bytes == 20_000 - 100


def test_a_frame_of_settings_changes_the_windows_once():
    """A frame has room for 2730 settings; to visit 1024 streams for each took most of a second."""
    core = Http2(LIMITS)
    looked = []
    with_two_answers_that_wait(core)
    core._queue.widened = looked.append
    window = struct.pack(">HL", frames.INITIAL_WINDOW_SIZE, 100_000)
    fed(core, frame(frames.SETTINGS, 0, 0, window * 2730))
    assert len(looked) == 2


def test_each_window_of_a_frame_of_settings_is_checked():
    core = Http2(LIMITS)
    values = struct.pack(">HLHL", frames.INITIAL_WINDOW_SIZE, 2**31, frames.INITIAL_WINDOW_SIZE, 100)
    fed(core, HELLO + frame(frames.SETTINGS, 0, 0, values))
    assert goaway_code(core) == frames.FLOW_CONTROL_ERROR


def test_a_connection_keeps_no_bytes_that_it_has_read():
    """It held up to 256 KiB, its last ones, as long as it was open."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK))
    assert core._reader._data == b""


def test_a_head_of_many_fields_is_not_remembered():
    """Each takes one byte of its block."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.HEADERS, HEADERS_END, 1, GET_BLOCK + b"\x93" * 200))
    assert core._in_flight == 1
    assert "known=0" in repr(core._heads)


def test_an_answer_that_nobody_can_read_any_more_is_freed_at_once():
    """A core refers to itself: without this its answers stay until the next collection of cycles."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.SETTINGS, 0, 0, struct.pack(">HL", frames.INITIAL_WINDOW_SIZE, 0)))
    fed(core, frame(frames.HEADERS, frames.END_HEADERS, 1, POST_BLOCK))
    core.answer(1, 200, [], bytes(10_000_000))
    assert core.pending_bytes > 10_000_000
    core.drop_output()
    assert core.pending_bytes == 0
