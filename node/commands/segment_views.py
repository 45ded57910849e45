"""Prints batches and records for `penstock segment dump`: as lines for people, or as one JSON object per line."""

from __future__ import annotations

import shutil
import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import click
import orjson

from engine.format.batch import Codec, Header, Record
from engine.format.control_batch import FENCING_TOKEN, Control
from penstock.cli.output import format_bytes, format_count, format_time, print_facts

_HEADINGS = ("position", "offset", "records", "epoch", "codec", "bytes", "first time ({})", "crc")


class View(Protocol):
    def batch(self, position: int, header: Header, *, is_valid: bool) -> None: ...

    def record(self, record: Record) -> None: ...

    def control(self, header: Header, control: Control) -> None:
        """Show a control batch, which has no records for consumers."""

    def end(self, batches: int, records: int, damage: Sequence[str]) -> None: ...


class TextView:
    """Prints lines for people. Numbers have no separators, so that a line fits 80 columns and can be searched for."""

    def __init__(self, file: str, size_bytes: int) -> None:
        print_facts([("file", file), ("size", f"{format_bytes(size_bytes)} ({size_bytes:,} bytes)")])
        zone = "local" if sys.stdout.isatty() else "UTC"
        self._headings = [heading.format(zone) for heading in _HEADINGS]
        self._widths = [len(heading) for heading in self._headings]
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def fit(self, headers: Iterable[Header]) -> None:
        """Set the widths of the columns. Call it once, before the first batch."""
        position = last = most = largest = 0
        for header in headers:
            last, most, largest = header.base_offset, max(most, header.record_count), max(largest, header.size_bytes)
            position += header.size_bytes
        for column, number in enumerate((position, last, most)):
            self._widths[column] = max(self._widths[column], len(str(number)))
        self._widths[5] = max(self._widths[5], len(str(largest)))
        self._widths[6] = 19
        if position:
            click.echo()
            click.secho(self._line(self._headings), dim=True)

    def batch(self, position: int, header: Header, *, is_valid: bool) -> None:
        cells = (
            str(position),
            str(header.base_offset),
            str(header.record_count),
            str(header.leader_epoch),
            _codec(header),
            str(header.size_bytes),
            format_time(header.base_timestamp)[:19],
        )
        verdict = click.style("ok", fg="green") if is_valid else click.style("BAD", fg="red", bold=True)
        click.echo(f"{self._line(cells)}  {verdict}")

    def record(self, record: Record) -> None:
        key = f"{_text(record.key)}  " if record.key is not None else ""
        value = "(tombstone)" if record.value is None else _text(record.value)
        line = f"    {record.offset}  {format_time(record.timestamp)}  {key}{value}"
        click.echo(line if self._width is None or len(line) <= self._width else line[: self._width - 1] + "…")

    def control(self, header: Header, control: Control) -> None:
        click.echo(f"    {header.base_offset}  {format_time(header.base_timestamp)}  ({_meaning(control)})")

    def end(self, batches: int, records: int, damage: Sequence[str]) -> None:
        click.echo()
        verdict = f"{format_count(len(damage), 'fault')}" if damage else "all sound"
        click.echo(f"{format_count(batches, 'batch', 'batches')}, {format_count(records, 'record')}, {verdict}")

    def _line(self, cells: Sequence[str]) -> str:
        """Join the cells of a line: text aligned left, numbers right."""
        padded = [
            cell.ljust(width) if column in (4, 6, 7) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, self._widths, strict=False))
        ]
        return "  ".join(padded).rstrip()


class JsonView:
    def batch(self, position: int, header: Header, *, is_valid: bool) -> None:
        fields = {name: value for name, value in header._asdict().items() if name != "batch_length"}
        print_line(
            {"kind": "batch", "position": position, "size_bytes": header.size_bytes, **fields, "crc_ok": is_valid}
        )

    def record(self, record: Record) -> None:
        shown: dict[str, Any] = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
        shown |= _bytes_fields("key", record.key) | _bytes_fields("value", record.value)
        shown["headers"] = [{"name": name, **_bytes_fields("value", value)} for name, value in record.headers]
        print_line(shown)

    def control(self, header: Header, control: Control) -> None:
        shown: dict[str, Any] = {"kind": "control", "offset": header.base_offset, "timestamp": header.base_timestamp}
        print_line(shown | {"type": control.type} | _bytes_fields("value", control.value))

    def end(self, batches: int, records: int, damage: Sequence[str]) -> None:
        print_line({"kind": "end", "batches": batches, "records": records, "damage": list(damage)})


def print_line(document: Any) -> None:
    click.echo(orjson.dumps(document).decode())


def _bytes_fields(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as text if they are UTF-8, else as base64."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data or b"").decode()}


def _codec(header: Header) -> str:
    if header.is_control:
        return "control"
    return Codec(header.codec).name.lower() if header.codec <= Codec.ZSTD else str(header.codec)


def _meaning(control: Control) -> str:
    if control.type != FENCING_TOKEN:
        return f"control record of type {control.type}"
    return f"fencing token {_text(control.value)}" if control.value else "no fencing token"


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else repr(text)[1:-1]
