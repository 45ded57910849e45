"""Decodes stored batches within bounds, and renders their records as JSON or NDJSON.

Clients store batches themselves, so a batch may unpack to any size or be malformed. A JSON value is returned as the
bytes that were stored, never parsed into objects: it is only checked, in bulk, to be exactly one JSON value, so that no
stored byte can change the meaning of the document around it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from engine.errors import DecodedTooLarge, InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch import Record
from engine.partition.reader import Chunk
from gateway.http.record_content_type import is_json, is_text, media_type_of

_VALUES = msgspec.json.Decoder(Raw)
_ENCODER = msgspec.json.Encoder()
_LINE_ENDS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
_NO_HEADERS: dict[str, Any] = {}
_NULL = Raw(b"null")


class RecordOut(Struct, omit_defaults=True, gc=False):
    """One record of an answer. One field of each pair is set."""

    offset: int
    timestamp: int
    key: str | UnsetType | None = UNSET
    value: Raw | str | UnsetType = UNSET
    headers: dict[str, Header | list[Header]] | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class Undecodable(Struct):
    """Replaces a stored batch whose records cannot be read, so that a consumer can continue behind it."""

    offset: int
    last_offset: int
    error: str = "undecodable"


Out = RecordOut | Undecodable
Header = str | dict[str, str] | None  # a text, {"base64": …} for other bytes


class Style(IntEnum):
    """How records are written one after another; the numbers are those of the compiled codec."""

    ARRAY = 0  # with commas between, for a JSON document
    LINES = 1
    VALUES = 2  # lines of values alone


class Rendered(NamedTuple):
    """The text of some records, the next offset, and the unpacked bytes of their batches.

    `has_gap`: a batch could not be decoded, which a repair may change.
    """

    text: bytes
    next_offset: int
    record_count: int
    size_bytes: int
    has_gap: bool


class Read(NamedTuple):
    """The result of a read: whole batches from `offset` on, None if there are none."""

    offset: int
    chunk: Chunk | None


class Bounds(NamedTuple):
    """The bytes decoded for one answer: of a batch, beyond which it counts as undecodable, and of all batches."""

    max_records: int | None
    batch_bytes_max: int
    bytes_max: int


class Shown(Protocol):
    """A record in the form of an answer."""

    @property
    def offset(self) -> int: ...


S = TypeVar("S", bound=Shown)


class Decoded(NamedTuple, Generic[S]):
    """The records of an answer, the next offset, and the unpacked bytes of the batches."""

    outs: list[S | Undecodable]
    next_offset: int
    size_bytes: int


def decode_stored(
    data: bytes | bytearray, offset: int, next_offset: int, bounds: Bounds, show: Callable[[Sequence[Record]], list[S]]
) -> Decoded[S]:
    """Returns the records at or after the offset, as far as the bounds allow, in the form that `show` makes.

    The reader of the batches has verified their checksums.
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
            records, size_bytes = record_batch.decode_sized(batch, bounds.batch_bytes_max, header)
            decoded_bytes += size_bytes
        except InvalidBatch as error:
            if isinstance(error, DecodedTooLarge):
                decoded_bytes += bounds.batch_bytes_max
            outs += show(readable)
            readable = []
            outs.append(Undecodable(max(header.base_offset, offset), header.next_offset - 1))
        else:
            is_inside = bool(records) and records[0].offset < offset  # not of a control batch
            readable += [r for r in records if r.offset >= offset] if is_inside else records
        if max_records is not None and len(outs) + len(readable) >= max_records:
            break
    outs += show(readable[: None if max_records is None else max(0, max_records - len(outs))])
    if max_records is not None and outs and len(outs) >= max_records:
        outs = outs[:max_records]
        return Decoded(outs, end_of(outs[-1]), decoded_bytes)
    return Decoded(outs, next_offset, decoded_bytes)


def decoded(read: Read, bounds: Bounds, show: Callable[[Sequence[Record]], list[S]]) -> Decoded[S]:
    """Returns the records of a read in the form of an answer, and the offset that follows them."""
    if read.chunk is None:
        return Decoded([], read.offset, 0)
    return decode_stored(read.chunk.data, read.offset, read.chunk.next_offset, bounds, show)


def end_of(out: Shown | Undecodable) -> int:
    """Returns the offset after the record or the batch."""
    return (out.last_offset if isinstance(out, Undecodable) else out.offset) + 1


def records_out(records: Sequence[Record], form: str | None) -> list[RecordOut]:
    """Returns the records in the requested form: `json`, `text`, `base64`, or None for the form of each media type."""
    values = _values(records, form)
    return [_record_out(record, value) for record, value in zip(records, values, strict=True)]


def render_plainly(
    data: bytes | bytearray, offset: int, next_offset: int, bounds: Bounds, form: str | None, style: Style
) -> Rendered:
    """Returns what `render_stored` returns, without the compiled codec. Raises as it does."""
    outs, end, size_bytes = decode_stored(data, offset, next_offset, bounds, partial(records_out, form=form))
    has_gap = any(isinstance(out, Undecodable) for out in outs)
    return Rendered(text_of(outs, style), end, len(outs), size_bytes, has_gap)


def text_of(outs: Sequence[Out], style: Style) -> bytes:
    """Returns the records one after another."""
    if style is Style.ARRAY:
        return encode_list(outs)
    if style is Style.LINES:
        return encode_lines(outs)
    return b"".join(bare_value(out) + b"\n" for out in outs)


def encode_list(records: Sequence[Out]) -> bytes:
    """Returns the records with commas between them."""
    return _ENCODER.encode(records)[1:-1]


def encode_lines(records: Sequence[Out]) -> bytes:
    return _ENCODER.encode_lines(records)


def bare_value(out: Out) -> bytes:
    """Returns the value alone, as a line of `ndjson=values`."""
    if isinstance(out, Undecodable):
        return _ENCODER.encode(out)
    if out.value is not UNSET:
        return bytes(out.value) if isinstance(out.value, Raw) else _ENCODER.encode(out.value)
    return _ENCODER.encode({"value_base64": out.value_base64})


def _record_out(record: Record, value: Raw | str | bytes) -> RecordOut:
    key, headers = record.key, record.headers
    try:
        text: str | UnsetType | None = None if key is None else key.decode()
    except UnicodeDecodeError:
        text = UNSET
    out = RecordOut(
        record.offset,
        record.timestamp,
        text,
        UNSET if isinstance(value, bytes) else value,
        _headers(headers) if headers else _NO_HEADERS,
    )
    if text is UNSET:
        assert key is not None
        out.key_base64 = base64.b64encode(key).decode()
    if isinstance(value, bytes):
        out.value_base64 = base64.b64encode(value).decode()
    return out


def _values(records: Sequence[Record], form: str | None) -> Iterable[Raw | str | bytes]:
    """Yields a Raw for JSON, a str for text, bytes for a value that needs base64."""
    if form == "base64":
        return [_NULL if record.value is None else record.value for record in records]
    if form == "text":
        return [as_text(record.value) for record in records]
    if form is None and any(record.headers for record in records):
        return [_by_media_type(record) for record in records]
    values = [b"null" if record.value is None else record.value for record in records]
    if _are_json(values):
        return map(Raw, values)
    return map(as_json, values)


def _are_json(values: list[bytes]) -> bool:
    """Returns whether each is exactly one JSON value on one line. Joined by newlines they must decode to as many."""
    joined = b"\n".join(values)
    if joined.count(b"\n") != len(values) - 1 or b"\r" in joined:
        return False
    try:
        decoded: list[Any] = _VALUES.decode_lines(joined)
    except (msgspec.DecodeError, RecursionError):
        return False
    return len(decoded) == len(values) and b"\n".join(decoded) == joined and _is_utf8(joined)


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def as_json(value: bytes) -> Raw | bytes:
    """Returns the value as a part of a document if it is one JSON value; else the bytes."""
    try:
        if not _is_utf8(value) or not msgspec.json.decode(value, type=Raw):
            return value
    except (msgspec.DecodeError, RecursionError):
        return value
    return Raw(value.translate(_LINE_ENDS_TO_SPACES))  # line ends between tokens would break NDJSON


def as_text(value: bytes | None) -> Raw | str | bytes:
    """Returns the value as text if it is UTF-8; else the bytes."""
    if value is None:
        return _NULL
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _by_media_type(record: Record) -> Raw | str | bytes:
    """Returns JSON if the record's `content-type` is JSON or missing; text for text; bytes (base64) for other types."""
    if record.value is None:
        return _NULL
    media_type = media_type_of(record.headers)
    if is_json(media_type):
        return as_json(record.value)
    return as_text(record.value) if is_text(media_type) else record.value


def _headers(pairs: Sequence[tuple[str, bytes | None]]) -> dict[str, Any]:
    """Returns the form that produce takes: texts, `{"base64": …}` for other bytes, an array for a repeated name."""
    headers: dict[str, Any] = {}
    for name, value in pairs:
        shown: Any = None if value is None else as_text(value)
        if isinstance(shown, bytes):
            shown = {"base64": base64.b64encode(shown).decode()}
        if name not in headers:
            headers[name] = shown
        elif isinstance(headers[name], list):
            headers[name].append(shown)
        else:
            headers[name] = [headers[name], shown]
    return headers
