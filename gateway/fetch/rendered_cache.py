"""Parts of answers of many partitions, and the last ones of event streams and long polls, kept for others like them.

Streams of one topic that have caught up all read the same records next: the first one renders them. Committed records
do not change, so a piece is right as long as its key names the topic's id, the leader epoch and the offset. It may be
shorter than what could be read by now; the next read continues behind it.
Invariants: (1) all pieces together have at most `bytes_max`, and the least recently used ones go first; (2) a large
piece is not kept, so that a stream can drop what it has read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import Lock
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from gateway.http.caching import STATUS
from gateway.http.problems import ProblemFields
from gateway.http.response import COMMON_HEADERS, REQUEST_ID_HEADER, NextPiece
from gateway.wire.messages import AnswerForm

P = TypeVar("P")

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})

BYTES_MAX = 4 * 1024 * 1024  # the last pieces of 64 busy partitions
ENTRY_BYTES = 2 * 1024  # of a piece beside its body: its key, its headers, and its place
PIECE_BYTES_MAX = 256 * 1024  # rendered: a stream reads 64 KiB at once, unless a batch is larger


class Part(NamedTuple):
    """The part of one entry in the form of its answer; event lines have the offset that follows each; or its problem.

    `has_gap`: a batch could not be decoded, which a repair may change. `headers`: what its form says in headers.
    """

    next_offset: int
    record_count: int
    line_ends: list[int]
    problem: ProblemFields | None
    body: bytes
    has_gap: bool = False
    headers: Mapping[str, str] = _NO_HEADERS


class Lines(NamedTuple):
    """A part of an event stream, and the size of the stored batches that it was rendered from."""

    part: Part
    stored_bytes: int


class RenderedFetch(NamedTuple):
    """An answer of one partition. Its body is whole, unless there is a rest. Its headers are shared: copy to change."""

    headers: dict[str, str]
    body: bytes | bytearray
    rest: NextPiece | None = None
    form: AnswerForm | None = None  # of the headers, if several answers share them


class CachedPoll:
    """A whole answer of a long poll, and the size of the stored batches that it was rendered from."""

    __slots__ = ("_rendered", "stored_bytes")

    def __init__(self, rendered: RenderedFetch, stored_bytes: int) -> None:
        self._rendered = rendered
        self.stored_bytes = stored_bytes

    def again(self) -> RenderedFetch:
        """Returns the answer for another poll: its headers are encoded once."""
        rendered = self._rendered
        if rendered.form is None and rendered.body and type(rendered.body) is bytes and STATUS not in rendered.headers:
            form = AnswerForm(200, tuple(rendered.headers.items()), REQUEST_ID_HEADER, COMMON_HEADERS)
            rendered = self._rendered = rendered._replace(form=form)
        return rendered


class RenderedCache(Generic[P]):
    """Pieces by key. A thread that renders may call it."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._pieces: OrderedDict[Hashable, tuple[P, int]] = OrderedDict()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"RenderedCache(pieces={len(self._pieces)}, size_bytes={self.size_bytes})"

    def get(self, key: Hashable) -> P | None:
        with self._lock:
            found = self._pieces.get(key)
            if found is None:
                return None
            self._pieces.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, piece: P, size_bytes: int) -> None:
        """Keeps a piece, unless it is large. One without a body takes memory too."""
        if size_bytes > PIECE_BYTES_MAX:
            return
        size_bytes += ENTRY_BYTES
        with self._lock:
            _, replaced_bytes = self._pieces.pop(key, (None, 0))
            self._pieces[key] = (piece, size_bytes)
            self.size_bytes += size_bytes - replaced_bytes
            while self.size_bytes > self._bytes_max:
                _, (_, dropped_bytes) = self._pieces.popitem(last=False)
                self.size_bytes -= dropped_bytes
