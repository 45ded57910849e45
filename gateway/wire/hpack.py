"""HPACK (RFC 7541): decodes the header blocks of requests, and encodes those of answers.

`decoder` gives the compiled decoder, or `Decoder`, its plain Python twin: both find the same fields and the same fault.
Invariants: (1) a block larger than allowed when unpacked is never kept, yet the table stays in step with the client;
(2) the table never exceeds TABLE_BYTES. Answers use the static table only, so that encoding has no state: a block is
the same on every connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

import penstock_codec
from gateway.wire.huffman import BrokenCode, decode
from gateway.wire.messages import AnswerForm, Header

TABLE_BYTES = 4096  # the protocol's default: no setting is sent
FIELD_BYTES = 32  # the cost of a field beside its name and value
# fmt: off
STATIC: tuple[Header, ...] = (
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""),
    ("host", ""), ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
)
# fmt: on
NAMES_MAX = 256
INTEGER_BYTES_MAX = 5
# The faults of a block, in the order of penstock_codec/src/hpack.h.
FAULTS = (
    "the block ends within a field",
    "the block ends within a text",
    "a number that is too long",
    "no field has this index",
    "a change of the table's size behind a field",
    "a table larger than allowed",
    "a text that breaks the Huffman code",
)
_ENDS_IN_FIELD, _ENDS_IN_TEXT, _LONG_NUMBER, _NO_SUCH_FIELD, _LATE_SIZE, _LARGE_TABLE, _BROKEN_CODE = FAULTS


class BrokenBlock(ValueError):
    """The bytes are not a header block."""


class BlockDecoder(Protocol):
    """The table of one direction of one connection.

    `is_too_large`: the last block was, and some of its fields were dropped. `has_changed`: it changed the table.
    """

    @property
    def is_too_large(self) -> bool: ...
    @property
    def has_changed(self) -> bool: ...
    def decode(self, block: bytes, /) -> list[Header]: ...
    def table(self) -> list[Header]: ...


def decoder(list_bytes_max: int, fields_max: int) -> BlockDecoder:
    """Returns a decoder with an empty table. The limits are those of an unpacked block."""
    native = penstock_codec.native
    if native is None:
        return Decoder(list_bytes_max, fields_max)
    return native.HpackDecoder(STATIC, BrokenBlock, FAULTS, list_bytes_max, fields_max)


def decoder_of(table: Iterable[Header], list_bytes_max: int, fields_max: int) -> BlockDecoder:
    """Returns a decoder with these fields in a table of the default size, the oldest first."""
    made = decoder(list_bytes_max, fields_max)
    for name, value in table:
        made.decode(b"".join((b"\x40", _plain_text(name), _plain_text(value))))
    return made


class Decoder:
    """The plain decoder, a BlockDecoder."""

    def __init__(self, list_bytes_max: int, fields_max: int) -> None:
        self.is_too_large = False
        self.has_changed = False
        self._list_bytes_max = list_bytes_max
        self._fields_max = fields_max
        self._table: deque[Header] = deque()  # the newest first
        self._table_bytes = 0
        self._table_bytes_max = TABLE_BYTES

    def __repr__(self) -> str:
        return f"Decoder(fields={len(self._table)}, bytes={self._table_bytes})"

    def table(self) -> list[Header]:
        """Returns the fields of the table, the newest first."""
        return list(self._table)

    def decode(self, block: bytes) -> list[Header]:
        """Decodes the fields of a block. Raises BrokenBlock, after which the connection cannot go on."""
        self.is_too_large = self.has_changed = False
        fields: list[Header] = []
        position, size_bytes = 0, 0
        try:
            while position < len(block):
                first = block[position]
                if first & 0x80:
                    index, position = _integer(block, position, 0x7F)
                    field = self._field(index)
                elif first & 0xE0 == 0x20:
                    if fields or self.is_too_large:
                        raise BrokenBlock(_LATE_SIZE)
                    size, position = _integer(block, position, 0x1F)
                    self._resize(size)
                    continue
                else:
                    is_kept = bool(first & 0x40)
                    index, position = _integer(block, position, 0x3F if is_kept else 0x0F)
                    name, position = (self._field(index)[0], position) if index else _text(block, position)
                    value, position = _text(block, position)
                    field = (name, value)
                    if is_kept:
                        self._insert(field)
                size_bytes += len(field[0]) + len(field[1]) + FIELD_BYTES
                if size_bytes > self._list_bytes_max or len(fields) >= self._fields_max:
                    self.is_too_large = True
                else:
                    fields.append(field)
        except IndexError:
            raise BrokenBlock(_ENDS_IN_FIELD) from None
        except BrokenCode:
            raise BrokenBlock(_BROKEN_CODE) from None
        return fields

    def _field(self, index: int) -> Header:
        if 0 < index <= len(STATIC):
            return STATIC[index - 1]
        if index == 0 or index > len(STATIC) + len(self._table):
            raise BrokenBlock(_NO_SUCH_FIELD)
        return self._table[index - len(STATIC) - 1]

    def _insert(self, field: Header) -> None:
        self.has_changed = True
        self._table.appendleft(field)
        self._table_bytes += _table_bytes(field)
        if self._table_bytes > self._table_bytes_max:
            self._evict()

    def _resize(self, size_bytes: int) -> None:
        if size_bytes > TABLE_BYTES:
            raise BrokenBlock(_LARGE_TABLE)
        self.has_changed = True
        self._table_bytes_max = size_bytes
        self._evict()

    def _evict(self) -> None:
        while self._table_bytes > self._table_bytes_max:
            self._table_bytes -= _table_bytes(self._table.pop())


def encode(status: int, headers: Iterable[Header]) -> bytes:
    """Returns the header block of an answer."""
    parts = [_STATUSES.get(status) or b"\x08\x03%d" % status]
    for name, value in headers:
        parts.append(_names.get(name) or _name(name))
        encoded = value.encode("utf-8", "surrogateescape")
        parts.append(_SHORT[len(encoded)] if len(encoded) < 127 else _encoded_integer(len(encoded), 0x7F, 0))
        parts.append(encoded)
    return b"".join(parts)


def encode_form(form: AnswerForm, value: bytes, size_bytes: int, date: Header) -> bytes:
    """Returns the block that `encode` makes of an answer of a form. `value` is short."""
    memo = form.memo
    if memo is None or memo[0] is not date:
        start = encode(form.status, form.before) + _name(form.name)
        fields = b"".join([encode_field(name, text) for name, text in form.after]) + _name("Content-Length")
        memo = form.memo = (date, start, fields, encode_field(*date))
    _, start, fields, end = memo
    length = b"%d" % size_bytes
    return b"%b%b%b%b%b%b%b" % (start, _SHORT[len(value)], value, fields, _SHORT[len(length)], length, end)


def encode_field(name: str, value: str) -> bytes:
    """Returns a field that no table keeps."""
    encoded = value.encode("utf-8", "surrogateescape")
    size = _SHORT[len(encoded)] if len(encoded) < 127 else _encoded_integer(len(encoded), 0x7F, 0)
    return (_names.get(name) or _name(name)) + size + encoded


def _table_bytes(field: Header) -> int:
    name, value = field
    if name.isascii() and value.isascii():
        return len(name) + len(value) + FIELD_BYTES
    return len(name.encode("utf-8", "surrogateescape")) + len(value.encode("utf-8", "surrogateescape")) + FIELD_BYTES


def _integer(block: bytes, position: int, mask: int) -> tuple[int, int]:
    """Decodes a number whose first bits share a byte (RFC 7541 5.1). Returns it and the position behind it."""
    value = block[position] & mask
    position += 1
    if value < mask:
        return value, position
    for shift in range(0, 7 * INTEGER_BYTES_MAX, 7):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
    raise BrokenBlock(_LONG_NUMBER)


def _text(block: bytes, position: int) -> tuple[str, int]:
    first = block[position]
    length, start = first & 0x7F, position + 1
    if length == 0x7F:
        length, start = _integer(block, position, 0x7F)
    end = start + length
    if end > len(block):
        raise BrokenBlock(_ENDS_IN_TEXT)
    text = block[start:end]
    return (decode(text) if first & 0x80 else text).decode("utf-8", "surrogateescape"), end


def _encoded_integer(value: int, mask: int, flags: int) -> bytes:
    if value < mask:
        return bytes([flags | value])
    encoded = bytearray([flags | mask])
    value -= mask
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _plain_text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return _encoded_integer(len(encoded), 0x7F, 0) + encoded


def _name(name: str) -> bytes:
    """Encodes a name as the beginning of a field that no table keeps. Cached, as answers have few names."""
    lower = name.lower()
    index = _STATIC_NAMES.get(lower)
    encoded = lower.encode("ascii")
    prefix = _encoded_integer(index, 0x0F, 0) if index else b"\0" + _encoded_integer(len(encoded), 0x7F, 0) + encoded
    if len(_names) >= NAMES_MAX:
        _names.clear()
    _names[name] = prefix
    return prefix


_STATUSES = {int(value): bytes([0x80 | number]) for number, (name, value) in enumerate(STATIC, 1) if name == ":status"}
_STATIC_NAMES = {name: number for number, (name, _) in reversed(list(enumerate(STATIC, 1)))}
_SHORT = [bytes([length]) for length in range(127)]
_names: dict[str, bytes] = {}
