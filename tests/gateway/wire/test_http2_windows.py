"""Flow control of HTTP/2: data that waits for windows, and window changes by clients."""

import struct

from gateway.wire import frames
from gateway.wire.frames import frame
from gateway.wire.http2 import Http2
from gateway.wire.http2_sending import TURN_BYTES, SendQueue
from gateway.wire.http2_streams import CONNECTION_WINDOW, STREAM_WINDOW, Stream
from tests.gateway.wire.conversations import LIMITS, fed, sent
from tests.gateway.wire.http2_client import GET_BLOCK, HEADERS_END, HELLO, POST_BLOCK, Client, goaway_code, summary_end


def test_a_large_answer_waits_for_windows_and_streams_take_turns():
    client = Client()
    body = bytes(range(256)) * 1024
    streams = [client.send_request() for _ in range(3)]
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


def test_with_wide_windows_a_turn_has_several_frames():
    queue = SendQueue()
    queue.left = 1 << 20
    streams = [Stream(stream_id, 1 << 20, None) for stream_id in (1, 3)]
    body = bytes(range(256)) * 300
    for stream in streams:
        queue.add(stream, body)
        stream.ends = True
    taken, ended = [], []
    while queue.is_ready:
        more, over = queue.take(2 * TURN_BYTES)
        taken += more
        ended += over
    found = [frames.HEAD.unpack(head) for head in taken[::2]]
    sizes = [16_384] * 4 + [len(body) - TURN_BYTES]
    assert [stream_id for *_, stream_id in found] == [1] * 4 + [3] * 4 + [1, 3]
    for stream in streams:
        own = [number for number, (*_, stream_id) in enumerate(found) if stream_id == stream.stream_id]
        assert [len(taken[2 * number + 1]) for number in own] == sizes
        assert [found[number][0] << 8 | found[number][1] for number in own] == sizes
        assert [found[number][3] for number in own] == [0] * 4 + [frames.END_STREAM]
        assert b"".join(taken[2 * number + 1] for number in own) == body
    assert ended == streams
    assert queue.pending_bytes == 0


def test_a_stream_has_its_share_of_a_write_at_once():
    queue = SendQueue()
    queue.left = 1 << 24
    for count in (1, 3):
        for stream_id in range(1, 2 * count, 2):
            queue.add(Stream(stream_id, 1 << 24, None), bytes(1 << 20))
        taken, _ = queue.take(1 << 20)
        found = [frames.HEAD.unpack(head)[-1] for head in taken[::2]]
        assert found == sorted(found)
        assert len(set(found)) == count
        assert 1 << 20 <= sum(map(len, taken[1::2])) < (1 << 20) + count * 16_384
        queue = SendQueue()
        queue.left = 1 << 24


def test_windows_are_given_back_as_bodies_are_read():
    client = Client()
    stream_id = client.send_request(method="POST", ends=False, body=b"")
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


def test_bytes_for_a_refused_body_do_not_use_up_the_window_of_the_connection():
    """They arrived while the answer waited for a window, and were never read."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.SETTINGS, 0, 0, struct.pack(">HL", frames.INITIAL_WINDOW_SIZE, 0)))
    for stream_id in range(1, 21, 2):
        fed(core, frame(frames.HEADERS, frames.END_HEADERS, stream_id, POST_BLOCK))
        core.answer(stream_id, 413, [], b"no")
        core.stop_body(stream_id)
        fed(core, b"".join(frame(frames.DATA, 0, stream_id, bytes(16_384)) for _ in range(200)))
    assert goaway_code(core) is None


def with_two_answers_that_wait(core):
    """Two streams with 20,000 bytes each, which are not sent yet."""
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
    """A frame has room for 2730 settings; a visit of 1024 streams for each took most of a second."""
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


def test_an_answer_that_nobody_can_read_any_more_is_freed_at_once():
    """A core refers to itself: without this its answers stay until the next collection of cycles."""
    core = Http2(LIMITS)
    fed(core, HELLO + frame(frames.SETTINGS, 0, 0, struct.pack(">HL", frames.INITIAL_WINDOW_SIZE, 0)))
    fed(core, frame(frames.HEADERS, frames.END_HEADERS, 1, POST_BLOCK))
    core.answer(1, 200, [], bytes(10_000_000))
    assert core.pending_bytes > 10_000_000
    core.close()
    assert core.pending_bytes == 0
