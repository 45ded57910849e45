"""A large answer in JSON or NDJSON, rendered piece by piece while its client takes it.

The end of the answer is known before its first byte: it is that of a read whose batches are whole and have valid
checksums. Each further piece is read again, a few batches at a time, so that a client that does not read costs one
piece. Committed records do not change, so that the pieces together are the text that one rendering would give.
Invariant: an answer ends where its headers say, or is cut off: `next` raises, and nothing follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import penstock_codec
from engine.errors import ReadFailed
from engine.format import batch as record_batch
from engine.format.batch_header import is_compressed
from engine.partition.reader import Chunk
from gateway.connections.read_budget import RENDERED_COPIES, ReadBudget
from gateway.fetch.record_json import Bounds, Rendered, Style
from gateway.fetch.rendering import has_unreadable, render_stored
from gateway.http.offload import OFF_LOOP_BYTES, Offload

PIECE_BYTES = 256 * 1024  # of batches; takes less than a millisecond to render
STORE_PIECE_BYTES = 1024 * 1024  # of batches from the store, where each read may be a request
CLOSING = b"]}"  # of a JSON document


class TextForm(NamedTuple):
    """How records are written. `batch_bytes_max`: a larger unpacked batch counts as undecodable."""

    value: str | None
    style: Style
    batch_bytes_max: int


class PieceSource(NamedTuple):
    """The place of the records: `read` takes an offset and about how many bytes to read.

    `piece_bytes`: of batches, read for one piece. `keep`: takes the records of batches that are in the answer; None if
    all are.
    """

    read: Callable[[int, int], Awaitable[Chunk | None]]
    budget: ReadBudget
    offload: Offload
    piece_bytes: int
    keep: Callable[[Chunk], Awaitable[Chunk]] | None = None


async def begin(
    source: PieceSource, form: TextForm, offset: int, chunk: Chunk, *, is_checked: bool
) -> tuple[bytes, StreamedRecords] | None:
    """Returns the first piece of the records of a chunk, and the rest.

    Returns None if the chunk is small, if its end depends on what is in its batches (compressed ones are unpacked
    within a bound), and, if `is_checked`, if a batch cannot be decoded.
    """
    if penstock_codec.native is None or is_compressed(chunk.data):
        return None
    if is_checked and await source.offload.by_size(len(chunk.data), partial(has_unreadable, chunk.data)):
        return None
    first = _render(chunk, offset, form, source.piece_bytes)
    if first.next_offset == chunk.next_offset:
        return None
    return first.text, StreamedRecords(source, form, first, chunk)


class StreamedRecords:
    """The records of a chunk behind its first piece."""

    def __init__(self, source: PieceSource, form: TextForm, first: Rendered, chunk: Chunk) -> None:
        self._source = source
        self._form = form
        self._offset = first.next_offset
        self._end = chunk.next_offset
        self._left_bytes = source.piece_bytes if source.keep else len(chunk.data) - first.size_bytes
        self._needs_comma = first.record_count > 0

    def __repr__(self) -> str:
        return f"StreamedRecords({self._offset}..{self._end})"

    async def next(self) -> tuple[bytes, bool]:
        """Returns the next piece, and whether it is the last one. Raises ReadFailed, or what `read` raises."""
        source = self._source
        async with source.budget.hold(source.piece_bytes * RENDERED_COPIES):
            chunk = await source.read(self._offset, max(1, min(source.piece_bytes, self._left_bytes)))
            if chunk is None:
                raise ReadFailed(f"the records from offset {self._offset} to {self._end} cannot be read any more")
            chunk = _up_to(chunk, self._end)
            if source.keep is None:
                self._left_bytes -= len(chunk.data)
            else:
                chunk = await source.keep(chunk)
            rendered = await self._rendered(chunk)
        self._offset = chunk.next_offset
        is_last = self._offset >= self._end
        return self._text(rendered, is_last=is_last), is_last

    async def _rendered(self, chunk: Chunk) -> Rendered:
        render = partial(_render, chunk, self._offset, self._form, len(chunk.data))
        if len(chunk.data) < OFF_LOOP_BYTES and not is_compressed(chunk.data):
            return render()
        return await self._source.offload.in_thread(render)

    def _text(self, rendered: Rendered, *, is_last: bool) -> bytes:
        text = rendered.text
        if self._form.style is not Style.ARRAY:
            return text
        comma = b"," if self._needs_comma and rendered.record_count else b""
        self._needs_comma = self._needs_comma or bool(rendered.record_count)
        return b"".join((comma, text, CLOSING if is_last else b""))


def _render(chunk: Chunk, offset: int, form: TextForm, bytes_max: int) -> Rendered:
    bounds = Bounds(None, form.batch_bytes_max, bytes_max)
    return render_stored(chunk.data, offset, chunk.next_offset, bounds, form.value, form.style)


def _up_to(chunk: Chunk, end: int) -> Chunk:
    """Returns the chunk without the batches from offset `end` on, which a batch begins."""
    if chunk.next_offset <= end:
        return chunk
    size_bytes = next(position for position, header in record_batch.walk(chunk.data) if header.base_offset >= end)
    return Chunk(chunk.data[:size_bytes], end)
