"""A large answer in pieces is the text that one rendering gives, or it is cut off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

import penstock_codec
from engine.errors import ReadFailed
from engine.format import batch as record_batch
from engine.format.batch_header import mark_compressed
from engine.partition.reader import Chunk
from gateway.connections.read_budget import ReadBudget
from gateway.fetch.record_json import Bounds, Style, render_plainly
from gateway.fetch.streamed_records import PieceSource, StreamedRecords, TextForm, begin
from gateway.http.offload import Offload

pytestmark = pytest.mark.skipif(penstock_codec.native is None, reason="only the compiled codec renders pieces")

PIECE_BYTES = 300
RECORDS = 3  # of each batch

Keep = Callable[[Chunk], Awaitable[Chunk]]


class Stored:
    """Batches of three records each, read as a partition is."""

    def __init__(self, count: int) -> None:
        self.batches: list[bytes | None] = []  # None: it cannot be read
        for number in range(count):
            batch = record_batch.encode_values([b"%d" % number, b'{"a":"%b"}' % (b"x" * number), b"null"], 5)
            record_batch.stamp(batch, number * RECORDS, 0)
            self.batches.append(bytes(batch))
        self.sizes: list[int] = []

    async def read(self, offset: int, max_bytes: int) -> Chunk | None:
        number, data = offset // RECORDS, b""
        while number < len(self.batches) and (batch := self.batches[number]) and (not data or len(data) < max_bytes):
            data += batch
            number += 1
        self.sizes.append(len(data))
        return Chunk(data, number * RECORDS) if data else None

    async def begin(
        self, style: Style, offset: int = 0, *, is_checked: bool = False, keep: Keep | None = None
    ) -> tuple[bytes, StreamedRecords] | None:
        chunk = await self.read(offset, 1 << 30)
        assert chunk is not None
        self.sizes.clear()
        source = PieceSource(self.read, ReadBudget(1 << 20), Offload(ThreadPoolExecutor(1)), PIECE_BYTES, keep)
        chunk = chunk if keep is None else await keep(chunk)
        return await begin(source, TextForm(None, style, 1 << 20), offset, chunk, is_checked=is_checked)


@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize("offset", [0, 4])
async def test_the_pieces_are_the_text_of_one_rendering(style: Style, offset: int) -> None:
    stored = Stored(20)
    begun = await stored.begin(style, offset, is_checked=True)
    assert begun is not None
    text, rest = begun
    pieces = [text]
    is_last = False
    while not is_last:
        piece, is_last = await rest.next()
        pieces.append(piece)
    whole = b"".join(batch or b"" for batch in stored.batches[offset // RECORDS :])
    expected = render_plainly(whole, offset, 20 * RECORDS, Bounds(None, 1 << 20, 1 << 20), None, style)
    closing = b"]}" if style is Style.ARRAY else b""
    assert b"".join(pieces) == expected.text + closing
    assert len(pieces) > 5
    assert max(stored.sizes) < PIECE_BYTES + len(stored.batches[-1] or b"")


async def test_records_that_come_later_are_not_in_the_answer() -> None:
    stored = Stored(7)
    begun = await stored.begin(Style.LINES)
    assert begun is not None
    text, rest = begun
    stored.batches = Stored(40).batches
    is_last = False
    while not is_last:
        piece, is_last = await rest.next()
        text += piece
    assert [orjson.loads(line)["offset"] for line in text.splitlines()] == list(range(7 * RECORDS))


@pytest.mark.parametrize("style", Style)
async def test_pieces_without_a_record_that_passes_are_passed_over(style: Style) -> None:
    numbers = {0, 1, 15, 16, 29}

    async def keep(chunk: Chunk) -> Chunk:
        kept = [
            chunk.data[at : at + header.size_bytes]
            for at, header in record_batch.walk(chunk.data)
            if header.base_offset // RECORDS in numbers
        ]
        return Chunk(b"".join(kept), chunk.next_offset)

    stored = Stored(40)
    begun = await stored.begin(style, keep=keep)
    assert begun is not None
    text, rest = begun
    pieces = [text]
    is_last = False
    while not is_last:
        piece, is_last = await rest.next()
        pieces.append(piece)
    whole = b"".join(stored.batches[number] or b"" for number in sorted(numbers))
    expected = render_plainly(whole, 0, 40 * RECORDS, Bounds(None, 1 << 20, 1 << 20), None, style)
    assert b"".join(pieces) == expected.text + (b"]}" if style is Style.ARRAY else b"")
    assert b"" in pieces
    assert max(stored.sizes) < PIECE_BYTES + len(stored.batches[-1] or b"")


async def test_records_that_cannot_be_read_any_more_cut_the_answer_off() -> None:
    stored = Stored(20)
    begun = await stored.begin(Style.ARRAY)
    assert begun is not None
    _, rest = begun
    stored.batches = [None] * 20
    with pytest.raises(ReadFailed):
        await rest.next()


async def test_small_compressed_and_unreadable_chunks_are_not_streamed() -> None:
    assert await Stored(1).begin(Style.LINES) is None
    compressed = Stored(20)
    last = bytearray(compressed.batches[19] or b"")
    mark_compressed(last, record_batch.Codec.GZIP)
    compressed.batches[19] = bytes(last)
    assert await compressed.begin(Style.LINES) is None
    unreadable = Stored(20)
    broken = bytearray(unreadable.batches[10] or b"")
    broken[-3:] = b"\xff\xff\xff"
    unreadable.batches[10] = bytes(broken)
    assert await unreadable.begin(Style.LINES, is_checked=True) is None
    assert await unreadable.begin(Style.LINES) is not None, "the rest shows it as undecodable"
