"""Compares acknowledged records with records read. Pure: no HTTP, no clock, no locust.

A value carries its producer's name, a sequence number without gaps, and a checksum. A reader of a partition must see
offsets without a gap, and each producer's numbers once and in order. At the end no acknowledged record may be missing.
A producer with a failed request cannot know whether it was stored. So it continues under a new name, and its last
records may be stored or not.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

Value = dict[str, Any]


def make_value(producer: str, sequence: int, sent_ms: int, text: str) -> Value:
    value = {"producer": producer, "sequence": sequence, "sent_ms": sent_ms, "text": text}
    return {**value, "crc": _checksum(value)}


def _checksum(value: Value) -> int:
    """Returns the CRC of the other members in a fixed form; white space, escapes and order do not matter."""
    covered = [value.get(name) for name in ("producer", "sequence", "sent_ms", "text")]
    return zlib.crc32(json.dumps(covered, separators=(",", ":")).encode())


class Reader:
    """One consumer's reads of one partition, from its beginning."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.next_offset = 0
        self.sequences: dict[str, int] = {}  # by producer: the next expected number

    def __repr__(self) -> str:
        return f"Reader(partition={self.partition}, next_offset={self.next_offset}, producers={len(self.sequences)})"

    def take(self, records: Iterable[dict[str, Any]], next_offset: int) -> list[str]:
        """Reads one answer to its end. Returns what is wrong with it."""
        faults: list[str] = []
        for record in records:
            if record["offset"] != self.next_offset:
                faults.append(f"offset {record['offset']} came where {self.next_offset} was due")
            self.next_offset = record["offset"] + 1
            faults += self._look_into(record.get("value"))
        if next_offset != self.next_offset:
            faults.append(f"the response continues at {next_offset}, its records end before {self.next_offset}")
            self.next_offset = max(next_offset, self.next_offset)
        return [f"partition {self.partition}: {fault}" for fault in faults]

    def _look_into(self, value: Any) -> list[str]:
        if not isinstance(value, dict) or value.get("crc") != _checksum(value):
            return [f"the value at offset {self.next_offset - 1} was never sent: {str(value)[:100]}"]
        producer, sequence = value["producer"], value["sequence"]
        expected = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        if sequence == expected:
            return []
        what = "came again or late" if sequence < expected else "came too early"
        return [f"{producer}: number {sequence} {what}, {expected} was due"]


class Ledger:
    """The acknowledged records of a run, and its readers."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, tuple[int, int]] = {}  # by producer: its partition and count
        self.readers: list[Reader] = []

    def begin_reader(self, partition: int) -> Reader:
        reader = Reader(partition)
        self.readers.append(reader)
        return reader

    def acknowledge(self, producer: str, partition: int, count: int) -> None:
        """Records that the first `count` records of a producer are acknowledged."""
        self.acknowledged[producer] = (partition, count)

    def furthest(self, partition: int) -> Reader:
        """Returns the reader with the highest offset of a partition; a new one if there is none."""
        readers = [reader for reader in self.readers if reader.partition == partition]
        return max(readers, key=lambda reader: reader.next_offset) if readers else self.begin_reader(partition)

    def missing(self) -> list[str]:
        """Returns acknowledged records that were not read, after readers reached the end."""
        faults = []
        for producer, (partition, count) in self.acknowledged.items():
            read = self.furthest(partition).sequences.get(producer, 0)
            if read < count:
                faults.append(f"partition {partition}: {producer} has {count} acknowledged records, {read} were read")
        return faults

    @property
    def acknowledged_count(self) -> int:
        return sum(count for _, count in self.acknowledged.values())
