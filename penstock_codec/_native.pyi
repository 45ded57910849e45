# The types of the C module. src/module.c has what each function does.
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
Found: TypeAlias = tuple[bytes, int, int]  # spans, how many, and the longest length
# Whether they are values alone, spans or rows, how many, the longest value, and what stands behind the body.
FoundObjects: TypeAlias = tuple[bool, bytes, int, int, bytes]
TextColumn: TypeAlias = tuple[memoryview, memoryview, memoryview, int]  # ends, bytes, bits of those not null, nulls
Columns: TypeAlias = tuple[int, memoryview, memoryview, TextColumn, TextColumn, memoryview, TextColumn, TextColumn]
RenderedRun: TypeAlias = tuple[bytes, int, int, int, int, int]  # text, position, last offset, count, bytes left, end
Header: TypeAlias = tuple[str, bytes | None]
Row: TypeAlias = tuple[int, bytes | None, bytes | None, list[Header]]  # timestamp, key, value, headers
BatchRows: TypeAlias = tuple[list[Row], Header | None, tuple[int, int, int]]  # an entry, and the producer

Request: TypeAlias = tuple[tuple[Any, ...], int, int]  # the entry of a request in a batch, its first record, how many
_R = TypeVar("_R", bound=tuple[Any, ...])  # a NamedTuple

class HpackDecoder(Protocol):
    @property
    def is_too_large(self) -> bool: ...
    @property
    def has_changed(self) -> bool: ...
    def decode(self, block: bytes, /) -> list[tuple[str, str]]: ...
    def table(self) -> list[tuple[str, str]]: ...

# The module as its callers hold it.
class Native(Protocol):
    VERSION: int

    def HpackDecoder(  # noqa: N802 - a type
        self,
        static: tuple[tuple[str, str], ...],
        broken: type[Exception],
        faults: tuple[str, ...],
        list_bytes_max: int,
        fields_max: int,
        /,
    ) -> HpackDecoder: ...
    def find_lines(self, body: Buffer, depth_max: int, digits_max: int, /) -> Found | None: ...
    def span_rows(self, body: bytes, spans: bytes, timestamp: int, key: bytes | None, /) -> list[Row]: ...
    def encode_values(
        self,
        body: Buffer,
        spans: bytes,
        timestamp: int,
        key: bytes | None = None,
        entry: bytes | None = None,
        /,
    ) -> bytearray: ...
    def find_keyed_lines(
        self, body: Buffer, steps: tuple[bytes, ...], depth_max: int, digits_max: int, /
    ) -> tuple[bytes, int, bytes] | None: ...
    def find_objects(
        self, body: Buffer, are_lines: bool, depth_max: int, digits_max: int, are_as_sent: bool = ..., /
    ) -> FoundObjects | None: ...
    def group_objects(
        self, body: Buffer, rows: bytes, partitions: int, fixed: int, without_key: int, timestamp_max: int, /
    ) -> dict[int, bytes] | None: ...
    def encode_objects(
        self,
        body: Buffer,
        rows: bytes,
        are_lines: bool,
        timestamp: int,
        key: bytes | None = None,
        entry: bytes | None = None,
        /,
    ) -> tuple[bytearray, int, int]: ...
    def encode_batches(self, batches: list[BatchRows], /) -> list[bytearray] | None: ...
    def valid_batches(
        self, data: Buffer, start_offset: int, offset: int, batches_max: int, /
    ) -> tuple[int, int, int, bool] | None: ...
    def is_compressed(self, data: Buffer, /) -> bool | None: ...
    def columns(self, batches: list[Buffer], start: int, end: int, /) -> Columns | None: ...
    def members(
        self,
        ends: Buffer,
        data: Buffer,
        is_there: Buffer | None,
        first: int,
        count: int,
        members: list[tuple[bytes, int, int, int]],
        top_members: int,
        skips_others: bool,
        /,
    ) -> list[TextColumn] | None: ...
    def hold_numbers(self, texts: list[bytes | None], /) -> bool: ...
    def number_shapes(self, text: bytes, /) -> tuple[int, bool]: ...
    def filter_records(
        self, batch: Buffer, conditions: tuple[tuple[int, bool, bytes, tuple[bytes, ...], bytes], ...], /
    ) -> tuple[bytes, int, bool] | None: ...
    def latest_add(self, slots: bytearray, key: bytes, batch: Buffer, /) -> int: ...
    def latest_find(self, slots: bytearray, key: bytes, record_key: bytes, /) -> int: ...
    def latest_grow(self, into: bytearray, old: bytearray, key: bytes, /) -> None: ...
    def record_at(self, batch: Buffer, offset: int, /) -> tuple[bytes, int] | None: ...
    def latest_keep(
        self, slots: bytearray, key: bytes, batch: Buffer, expired_below: int, keeps_first: bool, /
    ) -> tuple[bytes, int, bool] | None: ...
    def read_records(
        self, batch: Buffer, position: int, count: int, record: type[_R], /
    ) -> tuple[list[_R], int] | None: ...
    def check_records(self, batch: Buffer, record_bytes_max: int, /) -> bool: ...
    def render(
        self,
        data: Buffer,
        position: int,
        offset: int,
        form: int,
        style: int,
        records_left: int,
        bytes_left: int,
        /,
    ) -> RenderedRun: ...
    def match_head(self, data: bytes, head_bytes: int, shape: tuple[bytes, ...], /) -> tuple[str, ...] | None: ...
    def vary(
        self, fields: list[tuple[str, str]], pattern: tuple[tuple[str, str | int], ...], /
    ) -> tuple[str, ...] | None: ...
    def huffman_decode(self, code: bytes, /) -> bytes | None: ...
    def pack_entries(self, requests: Sequence[Request], mark: int, /) -> bytes | None: ...
    def keys_in(self, requests: Sequence[Request], /) -> tuple[dict[bytes, Any], int] | None: ...
    def store_keys(
        self, keys: dict[bytes, bytes], requests: Sequence[Request], base_offset: int, after_first_ms: int, /
    ) -> bytes | None: ...

VERSION: int
