"""`penstock segment`: shows the content of a segment file, on disk or fetched from the object store.

Reads only the file and changes nothing. Knows the format only through engine/format/batch.py.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import NamedTuple

import click

from engine.errors import InvalidBatch
from engine.format.batch import Header, decode_one, has_valid_crc, read_header, walk
from engine.format.control_batch import read_control
from node.commands.segment_views import JsonView, TextView, View
from penstock.cli.failures import Failure
from penstock.cli.groups import AliasGroup


class Totals(NamedTuple):
    batches: int
    records: int
    damage: list[str]


@click.group(cls=AliasGroup)
def segment() -> None:
    """Print segment files."""


@segment.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--records", "with_records", is_flag=True, help="Show the records of each batch, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an object a line.")
def dump(file: str, with_records: bool, as_json: bool) -> None:
    """Show every batch of a .log FILE and check its CRC.

    Ends with 1 when a batch is damaged or the file ends in the middle of one.

    \f
    Raises Failure.
    """
    size_bytes = os.path.getsize(file)
    view = JsonView() if as_json else TextView(file, size_bytes)
    with open(file, "rb") as handle:
        data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) if size_bytes else b""
        if isinstance(view, TextView):
            view.fit(header for _, header in _headers(data, []))
        totals = _dump(data, view, with_records=with_records)
    view.end(totals.batches, totals.records, totals.damage)
    if totals.damage:
        more = f" and {len(totals.damage) - 1} more" if len(totals.damage) > 1 else ""
        raise Failure(f"{file}: {totals.damage[0]}{more}")


def _dump(data: mmap.mmap | bytes, view: View, *, with_records: bool) -> Totals:
    damage: list[str] = []
    stopped_by: list[str] = []
    batches = records = end_position = 0
    for position, header in _headers(data, stopped_by):
        is_valid = has_valid_crc(data, position, header)  # type: ignore[arg-type]
        if not is_valid:
            damage.append(f"the batch at byte {position} fails its CRC")
        view.batch(position, header, is_valid=is_valid)
        if with_records:
            show = _show_control if header.is_control else _show_records
            show(data[position : position + header.size_bytes], position, view, damage)
        batches += 1
        records += 0 if header.is_control else header.record_count
        end_position = position + header.size_bytes
    if not stopped_by and end_position < len(data):
        stopped_by.append(f"the last {len(data) - end_position} bytes are an incomplete batch")
    return Totals(batches, records, damage + stopped_by)


def _headers(data: mmap.mmap | bytes, stopped_by: list[str]) -> Iterator[tuple[int, Header]]:
    """Yield the batches of the file up to the first invalid one, whose error goes to `stopped_by`."""
    try:
        yield from walk(data)  # type: ignore[arg-type]
    except InvalidBatch as error:
        stopped_by.append(str(error))


def _show_control(batch: bytes, position: int, view: View, damage: list[str]) -> None:
    try:
        view.control(read_header(batch), read_control(batch))
    except InvalidBatch as error:
        damage.append(f"the batch at byte {position}: {error}")


def _show_records(batch: bytes, position: int, view: View, damage: list[str]) -> None:
    try:
        records = decode_one(batch)
    except InvalidBatch as error:
        damage.append(f"the batch at byte {position}: {error}")
        return
    for record in records:
        view.record(record)
