"""Rows of a DataFrame as the requests of one task: lines for each partition, cut into ranges of positions. Pure.

The source of a task's requests is the write and the number of the task; the positions are those of a batch of the
stream. The last request of a batch has all remaining positions of the batch, so that the partition then has the
output of the whole batch, whatever a later attempt would send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from penstock.producer.lines import as_record_line, key_bytes, line_of
from penstock.producer.partitioners import partition_of_key
from spark_ingest.frames.sink_options import RECORD_COLUMNS

POSITIONS = 1 << 20  # of a batch of a stream: the most requests that a task sends to a partition for it


class SinkRequest(NamedTuple):
    """A body of records for one partition, with its first and last position."""

    partition: int
    first: int
    last: int
    body: bytes
    rows: int


def lines_by_partition(batches: Iterable[pa.RecordBatch], task: int, partitions: int) -> dict[int, list[bytes]]:
    """Returns the records of rows. A partition follows from the column, else from the key, else from the task.

    Raises ValueError for a partition that the topic does not have.
    """
    lines: dict[int, list[bytes]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            partition = _partition(row, task, partitions)
            lines.setdefault(partition, []).append(_line(row))
    return lines


def requests(lines: Sequence[bytes], partition: int, epoch: int, request_bytes: int) -> Iterator[SinkRequest]:
    """Yields the requests for the records of one partition, in order."""
    start = epoch * POSITIONS
    parts = list(_cut(lines, request_bytes))
    assert len(parts) < POSITIONS
    for at, part in enumerate(parts):
        last = start + POSITIONS - 1 if at == len(parts) - 1 else start + at
        yield SinkRequest(partition, start + at, last, b"\n".join(part), len(part))


def _cut(lines: Sequence[bytes], request_bytes: int) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if part and size_bytes + len(line) >= request_bytes:
            yield part
            part, size_bytes = [], 0
        part.append(line)
        size_bytes += len(line) + 1
    if part:
        yield part


def _line(row: dict[str, Any]) -> bytes:
    if "value" in row:
        value = row["value"]
        value = value.encode() if isinstance(value, str) else value
    else:
        members = {name: value for name, value in row.items() if name not in RECORD_COLUMNS}
        value = orjson.dumps(members, default=_text)
    headers = [(header["name"], header["value"]) for header in row.get("headers") or ()]
    text, is_plain = line_of(value, row.get("key"), headers or None, row.get("timestamp"))
    return as_record_line(text) if is_plain else text


def _text(value: object) -> str:
    """Returns values that JSON does not have: decimals, bytes."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _partition(row: dict[str, Any], task: int, partitions: int) -> int:
    number = row.get("partition")
    if number is None:
        key = row.get("key")
        return task % partitions if key is None else partition_of_key(key_bytes(key), partitions)
    if not 0 <= number < partitions:
        raise ValueError(f"a row is for partition {number}, and the topic has {partitions}")
    return int(number)
