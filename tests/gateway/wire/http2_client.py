"""The peer of an HTTP/2 core in tests: the h2 library, and handmade frames for what no library sends."""

import struct

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

from gateway.wire import frames
from gateway.wire.frames import PREFACE, frame
from gateway.wire.http2 import Http2
from tests.gateway.wire.conversations import LIMITS, fed, sent

HELLO = PREFACE + frame(frames.SETTINGS, 0, 0)
GET_BLOCK = b"\x82\x86\x84\x41\x01h"  # GET, http, /, :authority h
POST_BLOCK = b"\x83\x86\x84\x41\x01h"
HEADERS_END = frames.END_HEADERS | frames.END_STREAM


class Client:
    """The h2 library and our core, which exchange bytes without a network."""

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

    def send_request(self, *headers, method="GET", path="/", body=None, ends=True):
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
    """Return the code of the GOAWAY that the core sends; None without one."""
    data, position = sent(core), 0
    while position < len(data):
        high, low, kind, _, _ = frames.HEAD.unpack_from(data, position)
        if kind == frames.GOAWAY:
            return struct.unpack_from(">L", data, position + 13)[0]
        position += 9 + (high << 8 | low)
    return None


def summary_end(events):
    return type(events[-1]).__name__
