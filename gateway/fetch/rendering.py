"""Renders stored batches in the forms of answers: JSON, NDJSON, bare values, CloudEvents, stored batches, event lines.

It neither reads nor waits, and does not know where its bytes go. The compiled codec renders runs of uncompressed
batches without an object for each record. It declines a batch that is compressed, damaged inside or unusual: such a
batch is unpacked for it, or rendered by the plain Python twin (record_json.py). Both make the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

import msgspec

import penstock_codec
from engine.errors import DecodedTooLarge, InvalidBatch
from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.batch import Codec, Header
from engine.format.batch_header import without_control
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from gateway.fetch.cloud_events import BINARY, EVENT_FORMS, events_out, render_events
from gateway.fetch.record_json import (
    Bounds,
    Out,
    Read,
    Rendered,
    Style,
    Undecodable,
    decode_stored,
    decoded,
    encode_lines,
    end_of,
    records_out,
    render_plainly,
    text_of,
)
from gateway.fetch.rendered_cache import Part
from gateway.fetch.request import JSON, NDJSON, FetchRequest
from gateway.http.caching import NO_STORE
from gateway.http.negotiation import SSE

_FORMS = {None: 0, "json": 1, "text": 2, "base64": 3}  # as numbered in penstock_codec/src/render.h
_DONE, _DECLINED, _FULL, _BOUND = range(4)
_OFFSET_AT = len('{"offset":')
_UNBOUNDED = 2**63 - 1
_ENCODER = msgspec.json.Encoder()


class Form(NamedTuple):
    """The form of records in an answer; `SSE`: lines with the offset that follows each. `value`: the form of values.

    `is_cleaned`: stored batches are given without what only nodes read. `hidden`: see FetchRequest.
    """

    media_type: str
    value: str | None = None
    style: Style = Style.ARRAY
    is_cleaned: bool = False
    hidden: str = ""


AS_STORED = Form(record_batch.MEDIA_TYPE)


def form_of(request: FetchRequest) -> Form:
    if request.media_type != NDJSON:
        return Form(request.media_type, request.value, hidden=request.hidden or "")
    return Form(NDJSON, request.value, Style.VALUES if request.ndjson == "values" else Style.LINES)


def render_part(partition: Partition, read: Read, form: Form, bounds: Bounds) -> tuple[Part, int]:
    """Returns the records of a read in a form, and the number of bytes that were unpacked for it."""
    if form.media_type == record_batch.MEDIA_TYPE:
        return _render_batches(read, is_cleaned=form.is_cleaned), 0
    if form.media_type in EVENT_FORMS:
        return _render_events(partition, read, form, bounds)
    if form.media_type == SSE:
        return _render_lines(read, bounds, form.value)
    rendered = render_records(read, bounds, form.value, form.style)
    body = rendered.text
    if form.media_type == JSON:
        body = document(partition, rendered.next_offset, body)
    part = Part(rendered.next_offset, rendered.record_count, [], None, body, rendered.has_gap)
    return part, rendered.size_bytes


def _render_batches(read: Read, *, is_cleaned: bool) -> Part:
    """Returns the stored batches."""
    data, next_offset = read.chunk or Chunk(b"", read.offset)
    if is_cleaned:
        data = without_control(data)
    headers = {"Penstock-Base-Offset": str(record_batch.read_header(data).base_offset)} if data else {}
    if is_cleaned and data and keyed_batch.has_keyed(data):
        data = keyed_batch.shown(data)
    return Part(next_offset, 0, [], None, cast(bytes, data), headers=headers)


def _render_events(partition: Partition, read: Read, form: Form, bounds: Bounds) -> tuple[Part, int]:
    source = f"/v1/topics/{partition.topic.removeprefix(form.hidden)}/partitions/{partition.number}"
    events, end, size_bytes = decoded(read, bounds, partial(events_out, source=source))
    headers, body = render_events(events, form.media_type, source)
    has_gap = any(isinstance(event, Undecodable) for event in events)
    return Part(end, len(events), [], None, body, has_gap, headers), size_bytes


def _render_lines(read: Read, bounds: Bounds, form: str | None) -> tuple[Part, int]:
    """Returns lines with the offset that follows each, as events of a stream have it."""
    rendered = render_records(read, bounds, form, Style.LINES)
    if not rendered.has_gap:
        ends = line_ends(rendered)
        return Part(rendered.next_offset, len(ends), ends, None, rendered.text), rendered.size_bytes
    outs, next_offset, size_bytes = decoded(read, bounds, partial(records_out, form=form))
    ends = [end_of(out) for out in outs]
    return Part(next_offset, len(outs), ends, None, encode_lines(outs), has_gap=True), size_bytes


def headers_of(partition: Partition, part: Part, media_type: str) -> dict[str, str]:
    """Returns the headers of an answer with this part as its body."""
    headers = position_headers(partition, part.next_offset, media_type)
    if not (part.has_gap or part.headers or media_type == BINARY):  # nearly always
        return headers
    if part.has_gap:
        headers |= NO_STORE  # a repair may restore a batch that cannot be decoded now
    if media_type == BINARY:  # replaced by the type of the data, if there is one
        del headers["Content-Type"]
    return {**headers, **part.headers}


def position_headers(partition: Partition, next_offset: int, media_type: str) -> dict[str, str]:
    log = partition.log
    return {
        "Content-Type": media_type,
        "Penstock-Next-Offset": str(next_offset),
        "Penstock-High-Watermark": str(partition.watermark.position),
        "Penstock-Log-Start": str(log.log_start),
        "Penstock-Leader-Epoch": str(log.leader_epoch),
    }


def bounds_headers(partition: Partition) -> dict[str, str]:
    """Returns the headers of an answer without records."""
    headers = position_headers(partition, 0, "")
    del headers["Content-Type"], headers["Penstock-Next-Offset"]
    return headers


def render_stored(
    data: bytes | bytearray, offset: int, next_offset: int, bounds: Bounds, form: str | None, style: Style
) -> Rendered:
    """Returns the records at or after the offset, as far as the bounds allow. Raises InvalidBatch.

    The reader of the batches has verified their checksums.
    """
    if penstock_codec.native is None or bounds.max_records == 0:
        return render_plainly(data, offset, next_offset, bounds, form, style)
    records_max = -1 if bounds.max_records is None else bounds.max_records
    text, _, _, count, left, end = penstock_codec.native.render(
        data, 0, offset, _FORMS[form], style, records_max, bounds.bytes_max
    )
    if end == _DONE:  # nearly always
        return Rendered(text if count else b"", next_offset, count, bounds.bytes_max - left, has_gap=False)
    return _Run(data, offset, next_offset, bounds, form, style).rendered()


def render_records(read: Read, bounds: Bounds, form: str | None, style: Style) -> Rendered:
    """Returns the text of the records of a read."""
    if read.chunk is None:
        return Rendered(b"", read.offset, 0, 0, has_gap=False)
    return render_stored(read.chunk.data, read.offset, read.chunk.next_offset, bounds, form, style)


def document(partition: Partition, next_offset: int, records: bytes) -> bytes:
    """Returns the JSON document of records with commas between them."""
    fields: dict[str, str | int] = {
        "topic": partition.topic,
        "partition": partition.number,
        "next_offset": next_offset,
        "high_watermark": partition.watermark.position,
        "log_start": partition.log.log_start,
        "leader_epoch": partition.log.leader_epoch,
    }
    return encode_document(fields, records)


def encode_document(fields: Mapping[str, str | int], records: bytes) -> bytes:
    """Returns `{…,"records":[…]}`, of records with commas between them."""
    return b"".join((_ENCODER.encode(fields)[:-1], b',"records":[', records, b"]}"))


def has_unreadable(data: bytes | bytearray) -> bool:
    """Returns whether the compiled codec, which must be there, cannot read the records of some uncompressed batch."""
    assert penstock_codec.native is not None
    *_, end = penstock_codec.native.render(data, 0, _UNBOUNDED, _FORMS[None], Style.LINES, -1, _UNBOUNDED)
    return end == _DECLINED


def line_ends(rendered: Rendered) -> list[int]:
    """Returns the offset that follows each line. The lines must have no gap: each is a record with its offset first."""
    assert not rendered.has_gap
    return [int(line[_OFFSET_AT : line.index(b",", _OFFSET_AT)]) + 1 for line in rendered.text.split(b"\n")[:-1]]


class _Run:
    """One pass over the batches of an answer: by the compiled codec, and batch by batch where it declines."""

    def __init__(
        self, data: bytes | bytearray, offset: int, next_offset: int, bounds: Bounds, form: str | None, style: Style
    ) -> None:
        self._data = data
        self._offset = offset
        self._next_offset = next_offset
        self._bounds = bounds
        self._form = form
        self._style = style
        self._position = 0
        self._pieces: list[bytes] = []
        self._record_count = 0
        self._last_offset = -1
        self._size_bytes = 0
        self._has_gap = False

    def rendered(self) -> Rendered:
        while True:
            end, self._position = self._compiled(self._data, self._position, self._bounds.bytes_max)
            if end == _DECLINED:
                self._one_batch()
                end = _FULL if self._records_left() == 0 else end
            if end == _FULL:
                self._next_offset = self._last_offset + 1
            elif end == _BOUND:
                self._next_offset = record_batch.read_header(self._data, self._position).base_offset
            if end != _DECLINED:
                between = b"," if self._style is Style.ARRAY else b""
                text = self._pieces[0] if len(self._pieces) == 1 else between.join(self._pieces)
                return Rendered(text, self._next_offset, self._record_count, self._size_bytes, self._has_gap)

    def _compiled(self, data: record_batch.Buffer, position: int, bytes_max: int) -> tuple[int, int]:
        """Renders batches by the compiled codec. Returns how that ended, and the position of the next batch."""
        assert penstock_codec.native is not None
        left = bytes_max - self._size_bytes
        text, position, last_offset, count, now_left, end = penstock_codec.native.render(
            data, position, self._offset, _FORMS[self._form], self._style, self._records_left(), left
        )
        self._size_bytes += left - now_left
        if count:
            self._last_offset = last_offset
            self._record_count += count
            self._pieces.append(text)
        return end, position

    def _records_left(self) -> int:
        return -1 if self._bounds.max_records is None else self._bounds.max_records - self._record_count

    def _one_batch(self) -> None:
        """Renders the batch at the position, which the compiled codec has declined. Raises InvalidBatch."""
        _, header = next(record_batch.walk(self._data, self._position))
        batch: record_batch.Buffer = self._data[self._position : self._position + header.size_bytes]
        self._position += header.size_bytes
        if header.codec != Codec.NONE and not header.is_control:
            try:
                batch = record_batch.uncompressed(batch, header, self._bounds.batch_bytes_max)
            except InvalidBatch as error:
                bytes_used = self._bounds.batch_bytes_max if isinstance(error, DecodedTooLarge) else 0
                gap = Undecodable(max(header.base_offset, self._offset), header.next_offset - 1)
                self._add([gap], bytes_used)
                return
            if self._compiled(batch, 0, _UNBOUNDED)[0] != _DECLINED:
                return
        self._plainly(bytes(batch), header)

    def _plainly(self, batch: bytes, header: Header) -> None:
        records_left = None if self._bounds.max_records is None else self._records_left()
        bounds = Bounds(records_left, self._bounds.batch_bytes_max, self._bounds.bytes_max)
        show = partial(records_out, form=self._form)
        self._add(*decode_stored(batch, self._offset, header.next_offset, bounds, show)[::2])

    def _add(self, outs: Sequence[Out], size_bytes: int) -> None:
        self._size_bytes += size_bytes
        if outs:
            self._has_gap = self._has_gap or any(isinstance(out, Undecodable) for out in outs)
            self._record_count += len(outs)
            self._last_offset = end_of(outs[-1]) - 1
            self._pieces.append(text_of(outs, self._style))
