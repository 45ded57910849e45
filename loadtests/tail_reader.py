"""Reads event streams of a topic in a process of its own, with few calls for each chunk.

`python -m loadtests.tail_reader PORT STREAMS TIMED` prints `ready` once all streams have begun. It prints what it has
read (`Reading`) for each line of its standard input, and ends with that. The values of the events are texts `at SECONDS
...`, of `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time

import msgspec

HOST = "127.0.0.1"
CHUNK_BYTES_MAX = 1 << 20
TOPIC = "t"


class Reading(msgspec.Struct):
    """The age of the oldest event in each chunk of the streams that are timed; the processor time of the reader."""

    ages_s: list[float]
    received_bytes: int
    cpu_s: float


def open_stream(port: int) -> socket.socket:
    """Begins a stream at the end of the topic, and reads its head."""
    stream = socket.create_connection((HOST, port))
    lines = (f"GET /v1/topics/{TOPIC}/records?from=latest HTTP/1.1", f"Host: {HOST}", "Accept: text/event-stream")
    stream.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        data = stream.recv(4096)
        assert data, head
        head += data
    assert head.startswith(b"HTTP/1.1 200 "), head
    stream.setblocking(False)
    return stream


def age_s(room: bytearray, size: int, now: float) -> float | None:
    """Returns the age of the first event whose time is whole in the first `size` bytes."""
    start = room.find(b'"at ', 0, size) + len(b'"at ')
    end = room.find(b" ", start, size)
    return None if start < len(b'"at ') or end < 0 else now - float(room[start:end])


def read(port: int, streams: int, timed: int) -> None:
    """Reads until standard input ends. The timed streams are spread over all."""
    every = max(1, streams // timed)
    room, reading = bytearray(CHUNK_BYTES_MAX), Reading([], 0, 0.0)
    with selectors.DefaultSelector() as selector:
        for number in range(streams):
            selector.register(open_stream(port), selectors.EVENT_READ, number % every == 0)
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("ready", flush=True)
        cpu_s = time.process_time()
        while True:
            for key, _ in selector.select():
                stream = key.fileobj
                if not isinstance(stream, socket.socket):
                    if not sys.stdin.readline():
                        return
                    reading.cpu_s = time.process_time() - cpu_s
                    print(msgspec.json.encode(reading).decode(), flush=True)
                    continue
                size = stream.recv_into(room)
                assert size, "a stream has ended"
                reading.received_bytes += size
                if key.data and (age := age_s(room, size, time.monotonic())) is not None:
                    reading.ages_s.append(age)


if __name__ == "__main__":
    read(*map(int, sys.argv[1:]))
