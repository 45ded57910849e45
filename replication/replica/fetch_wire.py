"""Encodes a replica fetch and its answer: a length, a MessagePack header, and batches as they are stored.

One fetch goes from one shard of a follower to one shard of a leader, for all partitions between them; cores/ decides. A
fetch belongs to a session (fetch_session.py) and has only the changes since the round before. An answer has only
partitions with changes. It answers the last fetch of its partition that was sent before it.
Invariant: the sizes in an answer's header add up to the bytes after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from engine.errors import Invalid
from engine.format.batch import Buffer
from engine.log.epochs import EpochEnd
from replication.cores.fetch import BatchesEnd, Diverging, FetchAnswer, FetchError, FollowerFetch, OutOfRange, Send

VERSION = 1
_LENGTH = struct.Struct(">I")
_SEND, _OUT_OF_RANGE, _DIVERGING = "send", "out_of_range", "diverging"
_ERRORS = {refusal.value: refusal for refusal in FetchError}


class FetchPartition(msgspec.Struct, array_like=True, frozen=True):
    """Asks for one partition, `topic id/number`: a FollowerFetch without the fields common to all partitions."""

    key: str
    leader_epoch: int
    log_end: int
    durable_end: int
    last_epoch: int | None
    high_watermark: int
    ahead: BatchesEnd | None = None  # a node that does not know it sends the batches being written again: harmless
    compacted_end: int = 0  # a node that does not send it keeps tombstones everywhere


class FetchRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Encodes a fetch. `is_full`: the session begins, and every partition is included."""

    version: int = VERSION
    session: str
    session_epoch: int
    is_full: bool
    node_id: int
    broker_epoch: int
    shard: int
    bytes_min: int
    bytes_max: int
    wait_ms: int
    partitions: list[FetchPartition]
    forgotten: list[str] = []

    def fetches(self) -> Iterator[tuple[str, FollowerFetch]]:
        for partition in self.partitions:
            yield (
                partition.key,
                FollowerFetch(
                    self.node_id,
                    self.broker_epoch,
                    partition.leader_epoch,
                    partition.log_end,
                    partition.durable_end,
                    partition.last_epoch,
                    partition.high_watermark,
                    partition.ahead,
                    partition.compacted_end,
                ),
            )


class PartitionResponse(msgspec.Struct, array_like=True, frozen=True):
    """Holds the verdict on one partition, its positions, and the number of bytes of its batches after the header.

    `log_end` is the leader's log end, `end` that of the batches if it was sent; `is_segment_start`: a segment of the
    leader begins with them. An out_of_range has no batches; its bytes are the state for a log that begins at
    `producer_state_offset` (engine/producers/state_transfer.py).
    """

    key: str
    verdict: str
    first: int = 0
    second: int = 0
    size_bytes: int = 0
    log_end: int = 0
    is_segment_start: bool = False
    producer_state_offset: int = 0
    end: BatchesEnd | None = None
    compacted_by_all: int = 0

    def answer_to(self, fetch: FollowerFetch) -> FetchAnswer:
        """Returns the answer to a fetch. Raises Invalid for an unknown verdict."""
        if self.verdict == _SEND:
            return Send(fetch.wanted, self.first, self.second, self.compacted_by_all)
        if self.verdict == _OUT_OF_RANGE:
            return OutOfRange(self.first, self.log_end, self.second)
        if self.verdict == _DIVERGING:
            return Diverging(EpochEnd(self.first, self.second))
        try:
            return _ERRORS[self.verdict]
        except KeyError:
            raise Invalid(f"{self.verdict!r} is not an answer to a fetch") from None


class FetchReply(msgspec.Struct, array_like=True, frozen=True):
    """Precedes the batches. If the session is unknown, the follower begins a new one."""

    is_session_known: bool
    responses: list[PartitionResponse] = []


def as_fetch_partition(key: str, fetch: FollowerFetch) -> FetchPartition:
    return FetchPartition(
        key,
        fetch.leader_epoch,
        fetch.log_end,
        fetch.durable_end,
        fetch.last_epoch,
        fetch.high_watermark,
        fetch.ahead,
        fetch.compacted_end,
    )


def as_partition_response(
    key: str,
    answer: FetchAnswer,
    size_bytes: int = 0,
    log_end: int = 0,
    is_segment_start: bool = False,
    producer_state_offset: int = 0,
    end: BatchesEnd | None = None,
) -> PartitionResponse:
    match answer:
        case Send(_, high_watermark, log_start, compacted):
            return PartitionResponse(
                key, _SEND, high_watermark, log_start, size_bytes, log_end, is_segment_start, 0, end, compacted
            )
        case OutOfRange(local_log_start, leaders_end, log_start):
            return PartitionResponse(
                key, _OUT_OF_RANGE, local_log_start, log_start, size_bytes, leaders_end, False, producer_state_offset
            )
        case Diverging(ends):
            return PartitionResponse(key, _DIVERGING, ends.epoch, ends.end_offset)
        case FetchError():
            return PartitionResponse(key, answer.value)


def encode_request(request: FetchRequest) -> bytes:
    return _encoder.encode(request)


def decode_request(body: Buffer) -> FetchRequest:
    """Decodes the body of a fetch. Raises Invalid."""
    try:
        request = _request_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(f"this is not a replica fetch: {error}") from error
    if request.version != VERSION:
        raise Invalid(f"replica fetches of version {request.version} are not supported, only {VERSION}")
    return request


def encode_reply(reply: FetchReply, batches: Sequence[Buffer] = ()) -> list[Buffer]:
    """Returns the pieces of an answer, in order. Batches are not copied."""
    header = _encoder.encode(reply)
    return [_LENGTH.pack(len(header)) + header, *batches]


def decode_reply(body: Buffer) -> tuple[FetchReply, list[memoryview]]:
    """Returns the header, and the batches of each answered partition in the same order. Raises Invalid."""
    view = memoryview(body)
    if len(view) < _LENGTH.size:
        raise Invalid(f"{len(view)} bytes are not an answer to a replica fetch")
    at = _LENGTH.size + _LENGTH.unpack_from(view)[0]
    try:
        reply = _reply_decoder.decode(view[_LENGTH.size : at])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(f"this is not an answer to a replica fetch: {error}") from error
    data = []
    for response in reply.responses:
        end = at + response.size_bytes
        data.append(view[at:end])
        if response.size_bytes < 0 or len(data[-1]) != response.size_bytes:
            raise Invalid(f"{response.key}: an answer is cut off within its batches")
        at = end
    if at != len(view):
        raise Invalid(f"{len(view) - at} bytes behind an answer's batches")
    return reply, data


_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(FetchRequest)
_reply_decoder = msgspec.msgpack.Decoder(FetchReply)
