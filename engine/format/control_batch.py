"""A control batch: it takes an offset, is stored, replicated and shipped as any other, and no consumer is given it.

Kafka's form: attribute bit 5, one record, whose key is a version and a type, 16 bits each. The only type of ours says
which token every append to the partition has to carry from here on; Kafka's own types (below 100) are not used.
Layout: engine/format/FORMAT.md. Not a judge of tokens: engine/producers/fencing.py is. Clients cannot send such
batches.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from engine.errors import InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch import Buffer

FENCING_TOKEN = 1000

_KEY = struct.Struct(">hh")
_VERSION = 0


class Control(NamedTuple):
    """What a control batch says. Of a type that is not known the value means nothing to us."""

    type: int
    value: bytes


def encode_fence(token: str, now_ms: int) -> bytearray:
    """From here on every append has to carry this token; an empty one: none has to."""
    made = record_batch.encode([(now_ms, _KEY.pack(_VERSION, FENCING_TOKEN), token.encode("ascii"), [])])
    record_batch.say_control(made)
    return made


def read_control(batch: Buffer) -> Control:
    """What one control batch says. Raises InvalidBatch."""
    records = record_batch.decode_control(batch)
    try:
        (record,) = records
        version, kind = _KEY.unpack(record.key or b"")
    except (ValueError, struct.error):
        raise InvalidBatch("a control batch without a control record") from None
    if version != _VERSION:
        raise InvalidBatch(f"a control record of version {version}, this version of penstock knows {_VERSION}")
    return Control(kind, record.value or b"")


def read_fence(batch: Buffer) -> str | None:
    """The token that a control batch sets, empty for none; None when it says something else. Raises InvalidBatch."""
    kind, value = read_control(batch)
    return value.decode("latin-1") if kind == FENCING_TOKEN else None


def has_nothing_to_show(batches: Buffer) -> bool:
    """Whether a run of whole batches holds control batches only. One look, as a rule."""
    if not record_batch.read_header(batches).is_control:
        return False
    return all(header.is_control for _, header in record_batch.walk(batches))


def without_control(batches: bytes | bytearray) -> bytes | bytearray:
    """A run of whole batches as consumers are given it: a token is for those who may write."""
    pieces, taken = [], 0
    for position, header in record_batch.walk(batches):
        if header.is_control:
            pieces.append(batches[taken:position])
            taken = position + header.size_bytes
    return b"".join([*pieces, batches[taken:]]) if pieces else batches
