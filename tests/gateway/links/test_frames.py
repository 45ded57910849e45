"""Frames leave the bytes of a connection as they went in, however they are cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.links.frames import BUFFER_BYTES, HEAD, LARGE_BYTES, REPLY, Frame, FrameReader, encode_frame

SIZES = st.one_of(
    st.integers(0, 300),
    st.sampled_from([LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES]),
)


def feed(reader: FrameReader, data: bytes, step: int) -> list[Frame]:
    """Receive the bytes as a loop does, at most `step` at a time."""
    frames, left = [], memoryview(data)
    while left:
        with reader.free() as room:
            count = min(len(room), len(left), step)
            assert count, "there is no room"
            room[:count] = left[:count]
        frames += reader.receive(count)
        left = left[count:]
    return frames


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), SIZES, SIZES), max_size=6), st.integers(1, 2 * BUFFER_BYTES), st.data())
def test_frames_arrive_as_they_were_sent(sizes: list[tuple[int, int, int]], step: int, data: st.DataObject) -> None:
    sent = [
        Frame(kind, number, bytes([number]) * arguments, bytes([kind]) * payload)
        for number, (kind, arguments, payload) in enumerate(sizes)
    ]
    wire = b"".join(b"".join(encode_frame(*frame)) for frame in sent)
    step = max(step, len(wire) // 2_000)  # a byte at a time is for short ones
    assert feed(FrameReader(), wire, step) == sent


def test_a_frame_is_there_with_its_last_byte() -> None:
    frame = Frame(0, 7, b"abc", b"x" * 100_000)
    wire = b"".join(encode_frame(*frame))
    reader = FrameReader()
    assert feed(reader, wire[:-1], 50_000) == []
    assert feed(reader, wire[-1:], 1) == [frame]


def test_a_large_payload_has_a_buffer_of_its_own_size() -> None:
    reader, wire = FrameReader(), b"".join(encode_frame(0, 1, b"", b"x" * 1_000_000))
    assert feed(reader, wire[: HEAD.size + 10], HEAD.size + 10) == []
    assert len(reader.free()) == 1_000_000 - 10


def test_room_for_long_arguments_is_given_back() -> None:
    reader = FrameReader()
    feed(reader, b"".join(encode_frame(0, 1, b"x" * 10 * BUFFER_BYTES, b"")), BUFFER_BYTES)
    feed(reader, b"".join(encode_frame(0, 1, b"x", b"")), 5)
    assert len(reader.free()) <= BUFFER_BYTES


def test_memory_of_a_payload_is_used_again_once_it_is_not_referred_to() -> None:
    reader, size = FrameReader(), 300_000

    def payload_of(byte: bytes) -> bytes:
        data = b"".join(encode_frame(REPLY, 1, b"", byte * size))
        frames: list[Frame] = []
        while data:
            room = reader.free()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            del room
            frames += reader.receive(count)
            data = data[count:]
        return frames[0].payload

    first = payload_of(b"a")
    second = payload_of(b"b")
    assert (bytes(first), bytes(second)) == (b"a" * size, b"b" * size)
    place = id(first)
    del first
    assert id(payload_of(b"c")) == place
    assert bytes(second) == b"b" * size
