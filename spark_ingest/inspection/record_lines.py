"""The records of tiered segments as lines of JSON, with the decoders of a job, for a person or a program to look at.

Reads the store as a run does: whole batches with verified checksums, one after another. Writes nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.record_columns import RecordColumns, columns_of
from spark_ingest.payload.decoder import Converter, converter_of
from spark_ingest.plan import RAW, Recipe
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, slices_between
from spark_ingest.source.scan import ScannedBatch, scan

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which records: offsets from `start` to before `end`, timestamps from `start_ms` to before `end_ms`, a number."""

    partitions: frozenset[int] = frozenset()  # empty: all
    start: int = 0
    end: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    records: int | None = None

    def has_time(self, timestamp: int | None) -> bool:
        if self.start_ms is None and self.end_ms is None:
            return True
        is_early = timestamp is None or (self.start_ms is not None and timestamp < self.start_ms)
        return not is_early and (self.end_ms is None or (timestamp or 0) < self.end_ms)


def record_lines(
    source: ObjectStore,
    cluster: str,
    is_wanted: Callable[[str], bool],
    bounds: Bounds,
    recipe_of: Callable[[str], Recipe],
) -> Iterator[bytes]:
    """Yields a JSON object for each record, by topic, partition and offset. Raises Corrupt, NoSuchObject."""
    partitions = [partition for partition in discover(source, cluster, is_wanted) if _has(bounds, partition)]
    yield from islice(
        (line for partition in partitions for line in _lines(source, partition, bounds, recipe_of(partition.topic))),
        bounds.records,
    )


def _has(bounds: Bounds, partition: TieredPartition) -> bool:
    return not bounds.partitions or partition.partition in bounds.partitions


def _lines(source: ObjectStore, partition: TieredPartition, bounds: Bounds, recipe: Recipe) -> Iterator[bytes]:
    start = max(bounds.start, partition.log_start)
    end = partition.tiered_end if bounds.end is None else min(bounds.end, partition.tiered_end)
    if start >= end:
        return
    folded = load_folded(source, [(partition, start, end)])
    converter = converter_of(recipe)
    for batch in scan(source, slices_between(partition, start, end, folded, bounds.start_ms, bounds.end_ms)):
        position = {"topic": partition.topic, "partition": partition.partition}
        if batch.undecodable is not None:
            yield _ENCODER.encode(position | _undecodable(batch))
        elif batch.record_count:
            columns = columns_of([batch])
            values = _values(columns.values.to_pylist(), recipe, converter)
            for at, value in enumerate(values):
                record = _record(columns, at)
                if bounds.has_time(record["timestamp"]):
                    yield _ENCODER.encode(position | record | value)


def _undecodable(batch: ScannedBatch) -> dict[str, Any]:
    header = batch.header
    offsets = {"offset": header.base_offset, "last_offset": header.next_offset - 1, "timestamp": header.max_timestamp}
    return {**offsets, "problem": "undecodable_batch", "message": batch.undecodable}


def _record(columns: RecordColumns, at: int) -> dict[str, Any]:
    offset, timestamp, key, headers = (
        column[at].as_py() for column in (columns.offsets, columns.timestamps, columns.keys, columns.headers)
    )
    pairs = [[name, *_text("value", value).values()] for name, value in headers or ()]
    return {"offset": offset, "timestamp": timestamp, **_text("key", key), "headers": pairs}


def _values(values: Sequence[bytes | None], recipe: Recipe, converter: Converter | None) -> list[dict[str, Any]]:
    """Returns the members of each line that show a value: decoded, or as it is with the problem."""
    if recipe.payload == RAW:
        return [_text("value", value) for value in values]
    if converter is None:
        return [_json(value, value) for value in values]
    done = converter.convert(list(values))
    lines: list[dict[str, Any]] = []
    for at, value in enumerate(values):
        if at in done.bad:
            lines.append({**_text("value", value), "problem": done.bad[at].reason, "message": done.bad[at].message})
        elif at in done.filtered:
            lines.append({**_text("value", value), "filtered": True})
        else:
            lines.append(_json(done.texts[at], value))
    return lines


def _json(text: bytes | None, value: bytes | None) -> dict[str, Any]:
    if text is None:
        return {"value": None}
    try:
        msgspec.json.decode(text)
        text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _text("value", value) | {"problem": "invalid_json"}
    return {
        "value": msgspec.Raw(text.translate(None, b"\r\n"))
    }  # white space between tokens: JSON escapes them in text


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    """Returns bytes as text if they are UTF-8, else as base64 under another name."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
