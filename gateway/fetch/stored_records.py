"""Stored batches taken apart for JSON, within bounds: what a client has stored may be a bomb, or no records at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from engine.errors import DecodedTooLarge, InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch import Record
from gateway.fetch.record_json import Undecodable


class Bounds(NamedTuple):
    """How much is decoded for one answer: of a batch, beyond which it counts as undecodable, and of all of them."""

    max_records: int | None
    batch_bytes_max: int
    bytes_max: int


class Shown(Protocol):
    """A record in the form of an answer."""

    @property
    def offset(self) -> int: ...


S = TypeVar("S", bound=Shown)


class Decoded(NamedTuple, Generic[S]):
    """What an answer gives, the offset to go on from, and how many bytes the batches unpacked to."""

    outs: list[S | Undecodable]
    next_offset: int
    size_bytes: int


def is_compressed(data: bytes | bytearray) -> bool:
    """Whether a batch is: then its size says little about the time that decoding takes."""
    return any(header.codec for _, header in record_batch.walk(data))


def decode_stored(
    data: bytes | bytearray, offset: int, next_offset: int, bounds: Bounds, show: Callable[[Sequence[Record]], list[S]]
) -> Decoded[S]:
    """The records at or after the offset, as far as the bounds allow, in the form that `show` gives them.

    Batches are true to their checksums: whoever has read them has seen to that.
    """
    outs: list[S | Undecodable] = []
    readable: list[Record] = []
    max_records, decoded_bytes = bounds.max_records, 0
    for position, header in record_batch.walk(data):
        if decoded_bytes >= bounds.bytes_max:
            next_offset = header.base_offset
            break
        try:
            batch = data[position : position + header.size_bytes]
            records, size_bytes = record_batch.decode_sized(batch, bounds.batch_bytes_max)
            decoded_bytes += size_bytes
        except InvalidBatch as error:
            if isinstance(error, DecodedTooLarge):
                decoded_bytes += bounds.batch_bytes_max
            outs += show(readable)
            readable = []
            outs.append(Undecodable(max(header.base_offset, offset), header.next_offset - 1))
        else:
            is_inside = bool(records) and records[0].offset < offset  # none of a control batch
            readable += [r for r in records if r.offset >= offset] if is_inside else records
        if max_records is not None and len(outs) + len(readable) >= max_records:
            break
    outs += show(readable[: None if max_records is None else max(0, max_records - len(outs))])
    if max_records is not None and outs and len(outs) >= max_records:
        outs = outs[:max_records]
        return Decoded(outs, end_of(outs[-1]), decoded_bytes)
    return Decoded(outs, next_offset, decoded_bytes)


def end_of(out: Shown | Undecodable) -> int:
    """The offset that follows."""
    return (out.last_offset if isinstance(out, Undecodable) else out.offset) + 1
