"""A control batch: takes an offset, is stored, replicated and shipped as any other, and is never sent to a consumer.

Kafka's form: attribute bit 5, one record, whose key is a version and a type, 16 bits each. The only type of ours sets
the fencing token of every later append to the partition; Kafka's own types (below 100) are not used.
Layout: engine/format/FORMAT.md. engine/producers/fencing.py checks tokens. Clients cannot send such batches.
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
    """The content of a control batch. The value of an unknown type has no meaning here."""

    type: int
    value: bytes


def encode_fence(token: str, now_ms: int) -> bytearray:
    """Encodes a control batch that sets the fencing token of later appends; an empty token removes it."""
    made = record_batch.encode([(now_ms, _KEY.pack(_VERSION, FENCING_TOKEN), token.encode("ascii"), [])])
    record_batch.mark_control(made)
    return made


def empty_control(now_ms: int) -> bytearray:
    """Encodes a control batch of our type without a value, for readers that must pass one and not know its token."""
    return encode_fence("", now_ms)


def read_control(batch: Buffer) -> Control:
    """Decodes one control batch. Raises InvalidBatch."""
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
    """Returns the token that a control batch sets, empty to remove it; None for another type. Raises InvalidBatch."""
    kind, value = read_control(batch)
    return value.decode("latin-1") if kind == FENCING_TOKEN else None
