"""Batches to columns by the compiled codec: what Arrow finds in them are the records that the twin decodes."""

import struct
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidBatch
from engine.format.batch import decode_one
from tests.codecs import COMPILED, needs_compiled
from tests.gateway.fetch.test_record_json import STORED
from tests.penstock_codec.test_render import batch_of

pytestmark = needs_compiled


def texts(column: tuple[bytes, bytes, bytes, int], count: int) -> list[bytes | None]:
    """Return the texts of a column, read as Arrow reads them."""
    ends, data, bits, nulls = column
    found: list[bytes | None] = []
    numbers = struct.unpack(f"{len(ends) // 4}i", ends)
    for index, (begin, end) in enumerate(pairwise(numbers)):
        is_there = bits[index // 8] >> index % 8 & 1
        found.append(data[begin:end] if is_there else None)
    assert len(found) == count
    assert found.count(None) == nulls
    return found


def rows_of(columns: Any) -> list[Any]:
    count, offsets, timestamps, key, value, header_ends, name, header_value = columns
    ends = struct.unpack(f"{len(header_ends) // 4}i", header_ends) or (0,)
    names, values = texts(name, ends[-1]), texts(header_value, ends[-1])
    headers = [
        [(str(names[at], "utf-8"), values[at]) for at in range(begin, end)]  # type: ignore[arg-type]
        for begin, end in pairwise(ends)
    ]
    numbers = (struct.unpack(f"{count}q", offsets), struct.unpack(f"{count}q", timestamps))
    return list(zip(*numbers, texts(key, count), texts(value, count), headers, strict=True))


def decoded(batches: list[bytes], start: int, end: int) -> list[Any]:
    records = [record for batch in batches for record in decode_one(batch) if start <= record.offset < end]
    return [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in records]


@given(st.lists(STORED, max_size=4), st.booleans(), st.integers(0, 12), st.integers(0, 12))
def test_columns_have_the_records_of_the_twin(stored, is_keyed, start, end):
    batches, offset = [], 0
    for rows in stored:
        batches.append(bytes(batch_of(rows, offset, is_keyed=is_keyed)))
        offset += len(rows)
    assert rows_of(COMPILED.columns(list(batches), start, end)) == decoded(batches, start, end)


@given(STORED, st.data())
def test_a_damaged_batch_is_declined_or_read_as_by_the_twin(rows, data):
    batch = batch_of(rows, 0)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(21, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    found = COMPILED.columns([batch], 0, 99)
    if found is not None:
        try:
            assert rows_of(found) == decoded([bytes(batch)], 0, 99)
        except InvalidBatch:
            raise AssertionError("the twin refuses it") from None
