"""Decodes JSON values to typed rows without loss: members that do not fit the schema are kept.

The types of a plan become msgspec structs once, so decoding is compiled code. A block is decoded in one pass. If a
value does not fit, each value is decoded by itself: members that fit fill their columns, the others are kept as JSON
text (`leftovers`, the `_extra` column). A value that is not a JSON object is bad.

Invariant: both paths give the same rows.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from spark_ingest.decode.decimals import fits
from spark_ingest.decode.json_types import (
    LEAVES_MAX,
    NAME_CHARS_MAX,
    Members,
    Type,
    add_members,
    can_be_column,
    infer_text,
    is_decodable,
    leaves_of,
)
from spark_ingest.decode.value_costs import RECORD_BYTES_MAX, ValueCosts, has_many_names, is_inferable

FLOAT_MAX = 3.4028234663852886e38


def _integer(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)] | None


_SCALARS: dict[str, Any] = {
    "null": None,
    "boolean": bool | None,
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "float": Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)] | None,
    "date": date | None,
    "timestamp": datetime | None,
    "double": float | None,
    "string": str | None,
    "json": msgspec.Raw,  # keeps null as text; json_columns.py converts it
    "decimal": msgspec.Raw,
}
_ABSENT = msgspec.Raw()
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ANY_OBJECT = msgspec.json.Decoder(msgspec.defstruct("Object", []))
_UTF8 = getincrementaldecoder("utf-8")
_PIECE_BYTES = 1 << 20

Leftovers = dict[str, msgspec.Raw] | msgspec.Raw  # members by name, or a whole value


@dataclass(frozen=True, slots=True)
class Bad:
    """A value without a row. `reason` is a stable code, `message` a sentence."""

    reason: str
    message: str


@dataclass(slots=True)
class Rows:
    """Decoded values: a struct for each value, with its leftovers, or None with the reason in `bad`."""

    structs: list[Any]
    leftovers: dict[int, Leftovers] = field(default_factory=dict)
    bad: dict[int, Bad] = field(default_factory=dict)


class JsonRows:
    """Decodes the values of one topic with one schema.

    Without `keeps_others`, members that the schema does not have are skipped at every depth, and values of another type
    are dropped instead of kept.
    """

    def __init__(self, members: Members, *, keeps_others: bool = True) -> None:
        self.struct = struct_of(members, keeps_others)
        self._keeps_others = keeps_others
        self._row_of = msgspec.json.Decoder(self.struct)
        self._members_of = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._member_of = {
            name: (attribute_of(at), msgspec.json.Decoder(_annotation(kind, keeps_others)))
            for at, (name, kind) in enumerate(members)
        }
        self._tombstone = self.struct()
        self._costs = ValueCosts(members)
        self._keeps_raw = _has_json(members)
        decimals = [attribute_of(at) for at, (_, kind) in enumerate(members) if kind == "decimal"]
        self._decimals = [attrgetter(attribute) for attribute in decimals]
        self._decimal_names = {name for name, kind in members if kind == "decimal"}

    def decode(self, values: Sequence[bytes | None]) -> Rows:
        """Decodes values. A null value is a tombstone: a row without members."""
        row_of, tombstone = self._row_of.decode, self._tombstone
        try:
            if self._keeps_raw:
                _check_utf8(values)
            rows = [tombstone if value is None else row_of(value) for value in values]
        except _UNFIT:
            return self._one_by_one(values)
        if self._decimals and not all(map(self._has_decimals, rows)):  # no call a record without such a column
            return self._one_by_one(values)
        return Rows(rows)

    def decode_large(self, value: bytes) -> Rows:
        """Decodes a value that `ValueCosts.is_large`: members beyond RECORD_BYTES_MAX are leftovers, or all of it."""
        try:
            _check_utf8_in_pieces(value)
            if has_many_names(value):
                _ANY_OBJECT.decode(value)
                return Rows([self._tombstone], {0: msgspec.Raw(value)})
            row, leftovers = self._by_member(value, RECORD_BYTES_MAX)
        except _UNFIT as error:
            return Rows([None], bad={0: _bad_of(error)})
        return Rows([row], {0: leftovers} if leftovers else {})

    def _has_decimals(self, row: Any) -> bool:
        """True if the raw values of all decimal columns fit."""
        return all(fits(decimal(row)) for decimal in self._decimals)

    def _one_by_one(self, values: Sequence[bytes | None]) -> Rows:
        rows = Rows([])
        for at, value in enumerate(values):
            try:
                row, leftovers = self._fit(value)
            except _UNFIT as error:
                row, leftovers = None, {}
                rows.bad[at] = _bad_of(error)
            rows.structs.append(row)
            if leftovers:
                rows.leftovers[at] = leftovers
        return rows

    def _fit(self, value: bytes | None) -> tuple[Any, Leftovers]:
        if value is None:
            return self._tombstone, {}
        if self._keeps_raw:
            value.decode()
        try:
            row = self._row_of.decode(value)
            if self._has_decimals(row):
                return row, {}
        except msgspec.ValidationError:
            pass
        value.decode()
        return self._by_member(value)

    def _by_member(self, value: bytes, limit_bytes: int | None = None) -> tuple[Any, dict[str, msgspec.Raw]]:
        fitting: dict[str, Any] = {}
        leftovers: dict[str, msgspec.Raw] = {}
        taken_bytes = 0
        for name, raw in self._members_of.decode(value).items():
            attribute, decoder = self._member_of.get(name, (None, None))
            try:
                if decoder is None or attribute is None or (name in self._decimal_names and not fits(raw)):
                    raise msgspec.ValidationError(name)
                if limit_bytes is not None:
                    cost = self._costs.decoded(bytes(raw))
                    if taken_bytes + cost > limit_bytes:
                        raise msgspec.ValidationError(name)
                    taken_bytes += cost
                fitting[attribute] = decoder.decode(raw)
            except msgspec.ValidationError:
                if self._keeps_others:
                    leftovers[name] = raw.copy()
        return self.struct(**fitting), leftovers


def misfits(rows: Rows, columns: Container[str]) -> dict[str, int]:
    """Returns how many values of each column are of another type, and so in `_extra`."""
    counts: dict[str, int] = {}
    for leftovers in _leftovers_by_name(rows):
        for name in leftovers:
            if name in columns:
                counts[name] = counts.get(name, 0) + 1
    return counts


def leftover_members(rows: Rows, limit: int) -> Members:
    """Returns the types of leftovers, at most `limit` names; the next plan may add columns for them."""
    members: dict[str, Type] = {}
    for leftovers in _leftovers_by_name(rows):
        wanted = (name for name in leftovers if (name in members or len(members) < limit) and can_be_column(name))
        typed = ((name, bytes(leftovers[name])) for name in wanted)
        add_members(members, ((name, _type_of(text)) for name, text in typed if is_inferable(text)))
    return [[name, kind] for name, kind in members.items()]


def _leftovers_by_name(rows: Rows) -> list[dict[str, msgspec.Raw]]:
    return [one for one in rows.leftovers.values() if isinstance(one, dict)]


def _type_of(text: bytes) -> Type:
    try:
        kind = infer_text(text)
        return kind if leaves_of(kind) <= LEAVES_MAX else "json"
    except _UNFIT:  # nested too deeply for a type
        return "json"


def struct_of(members: Members, is_strict: bool = True) -> type[msgspec.Struct]:
    """Returns a struct with numbered attributes, since member names can be any text; strict: it has no other members.

    A plan of an older release may have a column whose name msgspec cannot look up. The struct uses a name longer than
    any column's instead, so a value with such a member is decoded one member at a time.
    """
    fields = [
        (attribute_of(at), _annotation(kind, is_strict), _ABSENT if kind in ("json", "decimal") else None)
        for at, (_, kind) in enumerate(members)
    ]
    names = {
        attribute_of(at): name if is_decodable(name) else attribute_of(at).rjust(2 * NAME_CHARS_MAX)
        for at, (name, _) in enumerate(members)
    }
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=is_strict, gc=False, frozen=True)


def attribute_of(at: int) -> str:
    return f"m{at}"


def _annotation(kind: Type, is_strict: bool) -> Any:
    if isinstance(kind, str):
        return _SCALARS[kind]
    if kind[0] == "array":
        return list[_annotation(kind[1], is_strict)] | None  # type: ignore[misc]
    return struct_of(kind[1], is_strict) | None


def _has_json(members: Members) -> bool:
    return any(
        kind == "json" or (isinstance(kind, list) and _has_json([["", kind[1]]] if kind[0] == "array" else kind[1]))
        for _, kind in members
    )


def _check_utf8(values: Sequence[bytes | None]) -> None:
    """Raises UnicodeDecodeError. msgspec does not check the bytes of a `json` member."""
    b"\n".join(value for value in values if value is not None).decode()


def _check_utf8_in_pieces(value: bytes) -> None:
    """Raises UnicodeDecodeError. A text of the whole value could take four times its bytes."""
    decoder = _UTF8()
    for at in range(0, len(value), _PIECE_BYTES):
        decoder.decode(value[at : at + _PIECE_BYTES])
    decoder.decode(b"", final=True)


def _bad_of(error: Exception) -> Bad:
    match error:
        case msgspec.ValidationError():
            return Bad("not_an_object", f"the value is JSON but not an object: {error}")
        case msgspec.DecodeError():
            return Bad("not_json", str(error))
        case UnicodeDecodeError():
            return Bad("not_utf8", str(error))
        case _:
            return Bad("nested_too_deeply", str(error))
