"""Apache Kafka's binary protocol, as far as the comparison needs it: requests to bytes, responses to values. No I/O.

The versions are the highest before the flexible ones, so one layout serves a range of brokers; `negotiate` chooses
within the broker's range. The fields are those of the message definitions in Apache Kafka's source
(clients/src/main/resources/common/message).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 18, 19, 20
# The versions that this file can encode and decode.
KNOWN = {
    PRODUCE: (3, 8),
    FETCH: (4, 11),
    LIST_OFFSETS: (1, 5),
    API_VERSIONS: (0, 0),
    CREATE_TOPICS: (2, 4),
    DELETE_TOPICS: (1, 3),
}
CLIENT_ID = b"penstock-bench"
LATEST = -1
_BATCH_HEADER_BYTES = 61
_LENGTH_AT, _LAST_DELTA_AT, _COUNT_AT = 8, 23, 57

Versions = Mapping[int, int]


class KafkaError(Exception):
    """The broker reports an error code, or speaks no version that this file knows."""


class Produced(NamedTuple):
    correlation: int
    error: int
    base_offset: int


class Fetched(NamedTuple):
    correlation: int
    error: int
    high_watermark: int
    records: bytes


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    records: int


def negotiate(offered: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Returns the version to use of each API. Raises KafkaError if there is none in common."""
    chosen = {}
    for api, (lowest, highest) in KNOWN.items():
        least, most = offered.get(api, (0, -1))
        version = min(highest, most)
        if version < max(lowest, least):
            raise KafkaError(f"API {api}: known are the versions {lowest} to {highest}, offered are {least} to {most}")
        chosen[api] = version
    return chosen


def request(api: int, version: int, correlation: int, body: bytes) -> bytes:
    """Returns a request with its length in front."""
    head = struct.pack(">hhih", api, version, correlation, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_body(topic: bytes, acks: int, timeout_ms: int, batch: bytes) -> bytes:
    """Returns the produce of one batch to partition 0."""
    head = struct.pack(">hhiih", -1, acks, timeout_ms, 1, len(topic)) + topic
    return head + struct.pack(">iii", 1, 0, len(batch)) + batch


def parse_produced(frame: bytes) -> Produced:
    """Parses the response of any known version: they differ after the base offset."""
    correlation, _, name_bytes = struct.unpack_from(">iih", frame)
    error, base_offset = struct.unpack_from(">hq", frame, 10 + name_bytes + 8)
    return Produced(correlation, error, base_offset)


def fetch_body(version: int, topic: bytes, offset: int, max_bytes: int, max_wait_ms: int) -> bytes:
    """Returns the fetch of partition 0 of one topic, without a fetch session."""
    parts = [struct.pack(">iiiib", -1, max_wait_ms, 1, max_bytes, 0)]
    if version >= 7:
        parts.append(struct.pack(">ii", 0, -1))
    parts.append(struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">ii", 1, 0))
    if version >= 9:
        parts.append(struct.pack(">i", -1))
    parts.append(struct.pack(">q", offset))
    if version >= 5:
        parts.append(struct.pack(">q", -1))
    parts.append(struct.pack(">i", max_bytes))
    if version >= 7:
        parts.append(struct.pack(">i", 0))
    if version >= 11:
        parts.append(struct.pack(">h", 0))
    return b"".join(parts)


def parse_fetched(version: int, frame: bytes) -> Fetched:
    """Parses the response for one partition. Raises KafkaError if it names no topic."""
    at = _Reader(frame)
    correlation, _ = at.int32(), at.int32()
    if version >= 7:
        error, _ = at.int16(), at.int32()
        if error:
            return Fetched(correlation, error, -1, b"")
    if at.int32() != 1:
        raise KafkaError("the fetch names no topic")
    at.string()
    at.int32()
    at.int32()
    error, high_watermark, _ = at.int16(), at.int64(), at.int64()
    if version >= 5:
        at.int64()
    for _ in range(at.int32()):
        at.int64()
        at.int64()
    if version >= 11:
        at.int32()
    return Fetched(correlation, error, high_watermark, at.nullable_bytes())


def batches_in(records: bytes) -> Iterator[StoredBatch]:
    """Yields the headers of whole batches; a cut one at the end is left out, as by every consumer."""
    at = 0
    while at + _BATCH_HEADER_BYTES <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            return
        (last_delta,) = struct.unpack_from(">i", records, at + _LAST_DELTA_AT)
        (count,) = struct.unpack_from(">i", records, at + _COUNT_AT)
        yield StoredBatch(base_offset, base_offset + last_delta + 1, count)
        at += 12 + length


def log_end_body(version: int, topic: bytes) -> bytes:
    parts = [struct.pack(">i", -1)]
    if version >= 2:
        parts.append(b"\0")
    parts.append(struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">ii", 1, 0))
    if version >= 4:
        parts.append(struct.pack(">i", -1))
    return b"".join(parts) + struct.pack(">q", LATEST)


def parse_log_end(version: int, frame: bytes) -> tuple[int, int]:
    """Returns error and log end."""
    at = _Reader(frame)
    at.int32()
    if version >= 2:
        at.int32()
    at.int32()
    at.string()
    at.int32()
    at.int32()
    error, _, offset = at.int16(), at.int64(), at.int64()
    return error, offset


def create_topic_body(topic: bytes, config: Mapping[str, str], timeout_ms: int) -> bytes:
    """Returns the creation of a topic with one partition and one replica."""
    parts = [struct.pack(">ih", 1, len(topic)) + topic, struct.pack(">ihii", 1, 1, 0, len(config))]
    for name, value in config.items():
        parts += [struct.pack(">h", len(one)) + one for one in (name.encode(), value.encode())]
    return b"".join(parts) + struct.pack(">ib", timeout_ms, 0)


def delete_topic_body(topic: bytes, timeout_ms: int) -> bytes:
    return struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">i", timeout_ms)


def parse_topic_error(frame: bytes) -> int:
    """Returns the error of a created or deleted topic."""
    at = _Reader(frame)
    at.int32()
    at.int32()
    at.int32()
    at.string()
    return at.int16()


def parse_api_versions(frame: bytes) -> dict[int, tuple[int, int]]:
    """Parses version 0. Raises KafkaError."""
    at = _Reader(frame)
    at.int32()
    if error := at.int16():
        raise KafkaError(f"the broker answers error {error} to ApiVersions")
    return {at.int16(): (at.int16(), at.int16()) for _ in range(at.int32())}


class Frames:
    """Cuts a stream of bytes into responses, which begin with their length."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held_bytes = 0
        self._needed_bytes = 4

    def take(self, data: bytes) -> Sequence[bytes]:
        """Returns the responses that these bytes complete, without their lengths."""
        self._parts.append(data)
        self._held_bytes += len(data)
        if self._held_bytes < self._needed_bytes:
            return ()
        stream = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        frames, at = [], 0
        while True:
            self._needed_bytes = 4
            if len(stream) - at < 4:
                break
            (length,) = struct.unpack_from(">i", stream, at)
            self._needed_bytes = 4 + length
            if len(stream) - at < self._needed_bytes:
                break
            frames.append(stream[at + 4 : at + 4 + length])
            at += 4 + length
        rest = stream[at:]
        self._parts, self._held_bytes = [rest], len(rest)
        return frames


class _Reader:
    """Reads the fields of a response in their order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def string(self) -> bytes:
        return self._bytes(self.int16())

    def nullable_bytes(self) -> bytes:
        return self._bytes(self.int32())

    def _number(self, form: str, size_bytes: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size_bytes
        return int(value)

    def _bytes(self, count: int) -> bytes:
        """Return `count` bytes; a null, written as -1, is empty."""
        count = max(0, count)
        found = self._data[self._at : self._at + count]
        self._at += count
        return found
