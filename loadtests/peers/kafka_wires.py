"""The requests of the comparison in Kafka's protocol: produce batches, read a log from its start, follow its end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from loadtests.generators.records import numbers_in
from loadtests.generators.wire import Reply
from loadtests.peers import kafka_codec
from loadtests.peers.kafka_codec import FETCH, PRODUCE, Frames

TIMEOUT_MS = 30_000
TAIL_WAIT_MS = 2000
TAIL_BYTES = 1 << 20
_CORRELATION_AT = 8  # after length, API and version


class Produce:
    """Sends batches of `records` records to partition 0 with acks=1."""

    def __init__(
        self,
        topic: str,
        versions: Mapping[int, int],
        records: int,
        batch_of: Callable[[int], bytes],
        *,
        is_constant: bool,
    ) -> None:
        self._topic = topic.encode()
        self._version = versions[PRODUCE]
        self._records = records
        self._batch_of = batch_of
        self._constant = self._encoded(0) if is_constant else None
        self._frames = Frames()
        self._sent = 0
        self._received = 0

    def hello(self) -> bytes:
        return b""

    def request(self, number: int) -> bytes:
        data = self._encoded(number) if self._constant is None else self._constant
        struct.pack_into(">i", data, _CORRELATION_AT, self._sent)
        self._sent += 1
        return bytes(data)

    def take(self, data: bytes) -> Sequence[Reply]:
        return [self._reply(frame) for frame in self._frames.take(data)]

    def _encoded(self, number: int) -> bytearray:
        body = kafka_codec.produce_body(self._topic, 1, TIMEOUT_MS, self._batch_of(number))
        return bytearray(kafka_codec.request(PRODUCE, self._version, 0, body))

    def _reply(self, frame: bytes) -> Reply:
        produced = kafka_codec.parse_produced(frame)
        expected, self._received = self._received, self._received + 1
        if produced.correlation != expected:
            return Reply(0, len(frame), f"answer {produced.correlation} came instead of {expected}")
        error = f"Kafka's error {produced.error}" if produced.error else ""
        return Reply(self._records, len(frame), error)


class Read:
    """Fetches a log of batches from its start to its end, over and over, and checks that offsets have no gap."""

    def __init__(self, topic: str, versions: Mapping[int, int], max_bytes: int) -> None:
        self._topic = topic.encode()
        self._version = versions[FETCH]
        self._max_bytes = max_bytes
        self._frames = Frames()
        self._offset = 0

    def hello(self) -> bytes:
        return b""

    def request(self, number: int) -> bytes:
        body = kafka_codec.fetch_body(self._version, self._topic, self._offset, self._max_bytes, 0)
        return kafka_codec.request(FETCH, self._version, number, body)

    def take(self, data: bytes) -> Sequence[Reply]:
        return [self._reply(frame) for frame in self._frames.take(data)]

    def _reply(self, frame: bytes) -> Reply:
        fetched = kafka_codec.parse_fetched(self._version, frame)
        if fetched.error:
            return Reply(0, len(frame), f"Kafka's error {fetched.error}")
        count = 0
        for batch in kafka_codec.batches_in(fetched.records):
            if batch.base_offset != self._offset:
                return Reply(0, len(frame), f"offset {batch.base_offset} came instead of {self._offset}")
            self._offset = batch.next_offset
            count += batch.records
        if self._offset >= fetched.high_watermark:
            self._offset = 0
        return Reply(count, len(frame), "" if count else "a fetch carries no record")


class Follow:
    """Fetches from the end of a log: each fetch waits for the first byte."""

    def __init__(self, topic: str, versions: Mapping[int, int]) -> None:
        self._topic = topic.encode()
        self._version = versions[FETCH]
        self._frames = Frames()
        self._offset = 0

    def hello(self) -> bytes:
        body = kafka_codec.fetch_body(self._version, self._topic, self._offset, TAIL_BYTES, TAIL_WAIT_MS)
        return kafka_codec.request(FETCH, self._version, 0, body)

    def take(self, data: bytes) -> tuple[list[int], bytes]:
        """Returns the numbers that arrived, and the next request. Raises ValueError for an error of the server."""
        numbers: list[int] = []
        answer = b""
        for frame in self._frames.take(data):
            fetched = kafka_codec.parse_fetched(self._version, frame)
            if fetched.error:
                raise ValueError(f"a fetch got Kafka's error {fetched.error}")
            for batch in kafka_codec.batches_in(fetched.records):
                self._offset = batch.next_offset
            numbers += numbers_in(fetched.records)
            answer = self.hello()
        return numbers, answer
