"""Decodes JSON values to typed rows without loss: members that do not fit the schema are kept.

The types of a plan become msgspec structs once, so decoding is compiled code. A block is decoded in one pass. If a
value does not fit, each value is decoded by itself: members that fit fill their columns, the others are kept as JSON
text (`leftovers`, the `_extra` column). A value that is not a JSON object is bad.

A value fits if its column holds it exactly: no number is rounded (numbers.py), and no time cut.

Invariant: both paths give the same rows.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from spark_ingest.decode.value_costs import RECORD_BYTES_MAX, ValueCosts, has_many_names, is_inferable
from spark_ingest.types.json_types import (
    CUT_TIME,
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
from spark_ingest.types.numbers import INTEGER_MAX, are_rounded, fits, has_long_number, is_decimal, is_double

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
    "double": Annotated[int, msgspec.Meta(ge=-INTEGER_MAX, le=INTEGER_MAX)] | float | None,
    "string": str | None,
    "binary": bytes | None,  # base64 text
    "json": msgspec.Raw,  # keeps null as text; json_columns.py converts it
}
_ROUNDED = float | None
_ABSENT = msgspec.Raw()
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ANY_OBJECT = msgspec.json.Decoder(msgspec.defstruct("Object", []))
_UTF8 = getincrementaldecoder("utf-8")
_PIECE_BYTES = 1 << 20
_FAR_YEAR = rb"(?:0|1[0-5]|16[0-6]|167[0-7]|226[2-9]|22[7-9]|2[3-9]|[3-9])[0-9]*-"  # not one of 1678 to 2261
_CUT_OR_FAR_TIME = re.compile(rb'%b|(?:^|")(?=[0-9]{4}-)%b' % (CUT_TIME.pattern, _FAR_YEAR))
_NO_NAMES: frozenset[str] = frozenset()


class _Number(str):
    """The text of a JSON number with a point or an exponent."""

    __slots__ = ()


_UNTYPED = msgspec.json.Decoder(float_hook=_Number)

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

    def __init__(
        self, members: Members, *, keeps_others: bool = True, rounds: bool = False, is_orc: bool = False
    ) -> None:
        """With `rounds`, and without `keeps_others`, doubles and times are rounded as by any reader.

        With `is_orc`, timestamps outside of the years 1678 to 2261 do not fit: readers of ORC have no others.
        """
        rounds = rounds or not keeps_others
        self.struct = struct_of(members, keeps_others, rounds)
        self._keeps_others = keeps_others
        self._row_of = msgspec.json.Decoder(self.struct)
        self._members_of = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._member_of = {
            name: (attribute_of(at), kind, msgspec.json.Decoder(_annotation(kind, keeps_others, rounds)))
            for at, (name, kind) in enumerate(members)
        }
        self._tombstone = self.struct()
        self._costs = ValueCosts(members)
        self._keeps_raw = any(_has(kind, _is_raw) for _, kind in members)
        self._decimals = [
            (attrgetter(attribute_of(at)), kind) for at, (_, kind) in enumerate(members) if _has(kind, is_decimal)
        ]
        self._rounding = {
            name: msgspec.json.Decoder(_annotation(kind, keeps_others, rounds=True))
            for name, kind in members
            if not rounds and _has(kind, _may_round)
        }
        self._unheld_time = _CUT_OR_FAR_TIME if is_orc else CUT_TIME
        self._has_times = any(_has(kind, _is_timestamp) for _, kind in members)

    def decode(self, values: Sequence[bytes | None], refused: Sequence[frozenset[str]] = ()) -> Rows:
        """Decodes values. A null value is a tombstone: a row without members.

        `refused` has the members of each value that are leftovers whatever their JSON is.
        """
        row_of, tombstone = self._row_of.decode, self._tombstone
        if any(refused) or (self._rounding and self._may_round(values)):
            return self._one_by_one(values, refused)
        try:
            if self._keeps_raw or not self._keeps_others:
                _check_utf8(values)
            rows = [tombstone if value is None else row_of(value) for value in values]
        except _UNFIT:
            return self._one_by_one(values)
        if self._decimals and not all(map(self._has_decimals, rows)):  # no call a record without such a column
            return self._one_by_one(values)
        return Rows(rows)

    def decode_large(self, value: bytes, refused: frozenset[str] = _NO_NAMES) -> Rows:
        """Decodes a value that `ValueCosts.is_large`: members beyond RECORD_BYTES_MAX are leftovers, or all of it."""
        try:
            _check_utf8_in_pieces(value)
            if has_many_names(value):
                _ANY_OBJECT.decode(value)
                return Rows([self._tombstone], {0: msgspec.Raw(value)})
            row, leftovers = self._by_member(value, refused, RECORD_BYTES_MAX)
        except _UNFIT as error:
            return Rows([None], bad={0: _bad_of(error)})
        return Rows([row], {0: leftovers} if leftovers else {})

    def _may_round(self, values: Sequence[bytes | None]) -> bool:
        """Returns whether a double or a timestamp may not be exact, but for integers, which types check."""
        unheld = self._unheld_time.search
        is_cut = self._has_times and any(value is not None and unheld(value) for value in values)
        return is_cut or are_rounded(values)

    def _has_decimals(self, row: Any) -> bool:
        """True if the raw values of all decimal columns fit."""
        return all(_has_fitting(kind, decimal(row)) for decimal, kind in self._decimals)

    def _one_by_one(self, values: Sequence[bytes | None], refused: Sequence[frozenset[str]] = ()) -> Rows:
        rows = Rows([])
        for at, value in enumerate(values):
            try:
                row, leftovers = self._fit(value, refused[at] if refused else _NO_NAMES)
            except _UNFIT as error:
                row, leftovers = None, {}
                rows.bad[at] = _bad_of(error)
            rows.structs.append(row)
            if leftovers:
                rows.leftovers[at] = leftovers
        return rows

    def _fit(self, value: bytes | None, refused: frozenset[str]) -> tuple[Any, Leftovers]:
        if value is None:
            return self._tombstone, {}
        if self._keeps_raw:
            value.decode()
        try:
            if not refused and (not self._rounding or not self._may_round([value])):
                row = self._row_of.decode(value)
                if not self._keeps_others:
                    value.decode()
                if self._has_decimals(row):
                    return row, {}
        except msgspec.ValidationError:
            pass
        value.decode()
        return self._by_member(value, refused)

    def _by_member(
        self, value: bytes, refused: frozenset[str], limit_bytes: int | None = None
    ) -> tuple[Any, dict[str, msgspec.Raw]]:
        fitting: dict[str, Any] = {}
        leftovers: dict[str, msgspec.Raw] = {}
        taken_bytes = 0
        for name, raw in self._members_of.decode(value).items():
            attribute, kind, decoder = self._member_of.get(name, (None, None, None))
            try:
                if decoder is None or attribute is None or (name in refused and bytes(raw) != b"null"):
                    raise msgspec.ValidationError(name)
                if limit_bytes is not None:
                    cost = self._costs.decoded(bytes(raw))
                    if taken_bytes + cost > limit_bytes:
                        raise msgspec.ValidationError(name)
                    taken_bytes += cost
                if name in self._rounding and (has_long_number(text := bytes(raw)) or self._has_times):
                    decoder = self._exact_decoder(name, kind, text)
                value = decoder.decode(raw)
                if not _has_fitting(kind, value):
                    raise msgspec.ValidationError(name)
                fitting[attribute] = value
            except msgspec.ValidationError:
                if self._keeps_others:
                    leftovers[name] = raw.copy()
        return self.struct(**fitting), leftovers

    def _exact_decoder(self, name: str, kind: Type, text: bytes) -> Any:
        """Returns the decoder for a member that its column holds exactly. Raises msgspec.ValidationError."""
        if not _holds(kind, _UNTYPED.decode(text), self._unheld_time):
            raise msgspec.ValidationError(name)
        return self._rounding[name]


def misfits(rows: Rows, columns: Container[str]) -> dict[str, int]:
    """Returns how many values of each column are of another type, and so in `_extra`."""
    counts: dict[str, int] = {}
    for leftovers in _leftovers_by_name(rows):
        for name in leftovers:
            if name in columns:
                counts[name] = counts.get(name, 0) + 1
    return counts


def leftover_members(rows: Rows, limit: int, declared: Callable[[int], Members] = lambda _: []) -> Members:
    """Returns the types of leftovers, at most `limit` names; the next plan may add columns for them.

    `declared` returns the types that the payload of a value declares.
    """
    members: dict[str, Type] = {}
    for at, leftovers in rows.leftovers.items():
        if not isinstance(leftovers, dict):
            continue
        types = dict(declared(at))
        candidates = (name for name in leftovers if (name in members or len(members) < limit) and can_be_column(name))
        typed = ((name, bytes(leftovers[name])) for name in candidates)
        kinds = ((name, _type_of(text, types.get(name, "null"))) for name, text in typed if is_inferable(text))
        add_members(members, kinds)
    return [[name, kind] for name, kind in members.items()]


def _leftovers_by_name(rows: Rows) -> list[dict[str, msgspec.Raw]]:
    return [leftover for leftover in rows.leftovers.values() if isinstance(leftover, dict)]


def _type_of(text: bytes, declared: Type) -> Type:
    try:
        kind = infer_text(text, declared)
        return kind if leaves_of(kind) <= LEAVES_MAX else "json"
    except _UNFIT:  # nested too deeply for a type
        return "json"


def struct_of(members: Members, is_strict: bool = True, rounds: bool = False) -> type[msgspec.Struct]:
    """Returns a struct with numbered attributes, since member names can be any text; strict: it has no other members.

    A plan of an older release may have a column whose name msgspec cannot look up. The struct uses a name longer than
    any column's instead, so a value with such a member is decoded one member at a time.
    """
    fields = [
        (attribute_of(at), _annotation(kind, is_strict, rounds), _ABSENT if _is_raw(kind) else None)
        for at, (_, kind) in enumerate(members)
    ]
    names = {
        attribute_of(at): name if is_decodable(name) else attribute_of(at).rjust(2 * NAME_CHARS_MAX)
        for at, (name, _) in enumerate(members)
    }
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=is_strict, gc=False, frozen=True)


def attribute_of(at: int) -> str:
    return f"m{at}"


def _annotation(kind: Type, is_strict: bool, rounds: bool) -> Any:
    if isinstance(kind, str):
        return msgspec.Raw if is_decimal(kind) else _ROUNDED if rounds and kind == "double" else _SCALARS[kind]
    if kind[0] == "array":
        return list[_annotation(kind[1], is_strict, rounds)] | None  # type: ignore[misc]
    return struct_of(kind[1], is_strict, rounds) | None


def _has(kind: Type, is_such: Callable[[str], bool]) -> bool:
    """Returns whether a type is such a scalar one, or has one within."""
    if isinstance(kind, str):
        return is_such(kind)
    inner = [kind[1]] if kind[0] == "array" else [member for _, member in kind[1]]
    return any(_has(member, is_such) for member in inner)


def _is_raw(kind: Type) -> bool:
    return kind == "json" or is_decimal(kind)


def _is_timestamp(kind: str) -> bool:
    return kind == "timestamp"


def _may_round(kind: str) -> bool:
    return kind in ("double", "timestamp")


def _has_fitting(kind: Type, value: Any) -> bool:
    """Returns whether the raw values of decimals within a value are exactly such decimals."""
    if value is None or not _has(kind, is_decimal):
        return True
    if isinstance(kind, str):
        return fits(value, kind)
    if kind[0] == "array":
        return all(_has_fitting(kind[1], item) for item in value)
    return all(_has_fitting(member, getattr(value, attribute_of(at))) for at, (_, member) in enumerate(kind[1]))


def _holds(kind: Type, value: Any, unheld_time: re.Pattern[bytes]) -> bool:
    """Returns whether a type holds the numbers and times of an untyped value exactly; others are for its decoder."""
    if kind == "double":
        is_number = isinstance(value, int | _Number) and not isinstance(value, bool)
        return not is_number or is_double(str(value))
    if kind == "timestamp":
        return not isinstance(value, str) or not unheld_time.search(value.encode())
    if isinstance(kind, str) or not isinstance(value, list | dict):
        return True
    if isinstance(value, list):
        return kind[0] != "array" or all(_holds(kind[1], item, unheld_time) for item in value)
    members = kind[1] if kind[0] == "struct" else []
    return all(_holds(member, value[name], unheld_time) for name, member in members if name in value)


def _check_utf8(values: Sequence[bytes | None]) -> None:
    """Raises UnicodeDecodeError. msgspec does not check the bytes of a `json` member, and of what it skips."""
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
