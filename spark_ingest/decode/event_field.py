"""Reads the event time from a member of JSON values, at any depth, by the rules of event_time.py.

Decodes the value again instead of using its typed row: the member may have no column or a column of another type, and
raw tables have no typed rows. msgspec skips all other members in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from spark_ingest.decode.event_time import parse, parse_column
from spark_ingest.payload.member_path import path_of

_NO_SUCH = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class EventField:
    """Reads one member of JSON objects as a time; `read` parses values by other rules than those of event_time.py."""

    def __init__(self, field: str, read: Callable[[object], int | None] | None = None) -> None:
        self.path = path_of(field)
        self.read = read
        kind: Any = Any
        for name in reversed(self.path):
            kind = msgspec.defstruct("Holder", [("inner", kind | None if kind is not Any else Any, None)],
                                     rename={"inner": name}, gc=False)  # fmt: skip
        self._decode = msgspec.json.Decoder(kind).decode

    def times(self, values: Sequence[bytes | None]) -> pa.Array:
        """Returns int64 microseconds for each value; null without a readable time."""
        members = self._members(values)
        kinds = {type(member) for member in members} - {type(None)}
        if kinds == {str}:
            return parse_column(pa.array(members, pa.string()), self.read)
        if kinds == {int}:
            try:
                return parse_column(pa.array(members, pa.int64()), self.read)
            except OverflowError:
                pass
        read = self.read or parse
        return pa.array([read(member) for member in members], pa.int64())

    def _members(self, values: Sequence[bytes | None]) -> list[object]:
        try:
            holders = [None if value is None else self._decode(value) for value in values]
        except _NO_SUCH:
            holders = [self._holder(value) for value in values]
        for _ in self.path:
            holders = [None if holder is None else holder.inner for holder in holders]
        return holders

    def _holder(self, value: bytes | None) -> Any:
        try:
            return None if value is None else self._decode(value)
        except _NO_SUCH:
            return None
