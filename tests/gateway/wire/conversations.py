"""Helpers for the tests of the protocol cores: events as requests, and a core that receives its input in pieces."""

from __future__ import annotations

from itertools import pairwise

from gateway.wire.http1 import Http1
from gateway.wire.http2 import Http2
from gateway.wire.messages import BodyCut, BodyEnded, BodyPart, HeadRejected, RequestBegan, StreamReset, WireLimits

LIMITS = WireLimits(header_bytes_max=16 * 1024)


def fed(core: Http1 | Http2, data: bytes, cuts: list[int] = (), now: float = 0.0) -> list:
    """Return the events of bytes that arrive in pieces; each requested piece is reported as consumed.

    Connections share the room that the pieces arrive in, so that it changes after each.
    """
    events = []
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in pairwise(places):
        room = bytearray(data[start:end])
        events += core.receive(memoryview(room), now)
        room[:] = b"?" * len(room)
        while core.held_bytes:
            events += core.receive(b"", now)
    return events


def summary(events: list) -> dict[int, tuple]:
    """Return by stream: method, path, query, headers, the body so far, and its end."""
    found: dict[int, list] = {}
    for event in events:
        if isinstance(event, RequestBegan):
            head = event.head
            body_end = "whole" if event.is_complete else "open"
            found[event.stream_id] = [head.method, head.path, head.query, head.headers, event.body, body_end]
        elif isinstance(event, BodyPart):
            found[event.stream_id][4] += event.data
        elif isinstance(event, BodyEnded):
            found[event.stream_id][5] = "whole"
        elif isinstance(event, BodyCut):
            found[event.stream_id][5] = "cut"
        elif isinstance(event, StreamReset):
            found[event.stream_id][5] = "reset"
        else:
            assert isinstance(event, HeadRejected)
            found[event.stream_id] = [event.status]
    return {stream_id: tuple(one) for stream_id, one in found.items()}


def sent(core: Http1 | Http2) -> bytes:
    """Return everything that the core wants to send now."""
    pieces = []
    while core.has_output:
        pieces += core.take_output(2**16)
    return b"".join(pieces)
