"""Checkers of compacted partitions. Pure functions that return findings as sentences; a good run has none.

- T1: positions never change. Each record that is acknowledged, read or stored is the one that was committed at its
  offset, and batches are a chain without gaps.
- T2: the table of each replica is the fold of what was committed.
- T3: no reading skips the last record of a key, except a tombstone that may have gone.
- T4: a reader that met an older value of a key less than delete_retention_ms ago meets its tombstone, at any replica.
- T5: a replica removes a tombstone delete_retention_ms after all replicas have removed the older records of its key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.checking.table_history import Extent, Put, Reading, Removal, Row, TableHistory

Ledger = Mapping[int, Row]
Table = dict[bytes, Row]


@dataclass(frozen=True)
class ReplicaTable:
    """The log of one replica at the end of a run, up to the high watermark."""

    partition: str
    node_id: int
    log_start: int
    end: int
    batches: tuple[Extent, ...]
    rows: tuple[Row, ...]


def check_tables(history: TableHistory, produced: Iterable[Put], replicas: Iterable[ReplicaTable]) -> list[str]:
    findings = []
    for put in produced:
        findings += _acknowledged(history.ledger.get(put.partition, {}), put)
    for replica in replicas:
        findings += _replica(history.ledger.get(replica.partition, {}), replica)
    findings += _early(history)
    for partition in sorted({reading.partition for reading in history.readings}):
        keys = by_key(history.ledger.get(partition, {}))
        for reading in history.readings:
            if reading.partition == partition:
                findings += _chain(f"{reading.client} of {partition}", _extents(reading), reading.begin)
                findings += _rows(history.ledger.get(partition, {}), reading)
                findings += _skipped(history, keys, reading)
    return findings


def fold(rows: Iterable[Row]) -> dict[bytes, tuple[int, bytes]]:
    """Return the table of records in their order: offset and value of each key that has one."""
    table: dict[bytes, tuple[int, bytes]] = {}
    for row in rows:
        if row.value is None:
            table.pop(row.key, None)
        else:
            table[row.key] = (row.offset, row.value)
    return table


def by_key(ledger: Ledger) -> dict[bytes, list[Row]]:
    """Return the committed records of each key, in order."""
    rows: dict[bytes, list[Row]] = {}
    for offset in sorted(ledger):
        rows.setdefault(ledger[offset].key, []).append(ledger[offset])
    return rows


def _early(history: TableHistory) -> list[str]:
    """Judges when tombstones went: all replicas had removed the older records of the key long enough before."""
    findings = []
    last = {partition: {row.key: row for row in ledger.values()} for partition, ledger in history.ledger.items()}
    older: dict[tuple[str, bytes], list[Removal]] = {}
    for removal in history.removals:
        older.setdefault((removal.partition, removal.row.key), []).append(removal)
    for removal in history.removals:
        if removal.row.value is not None or last[removal.partition].get(removal.row.key) != removal.row:
            continue
        for before in older[removal.partition, removal.row.key]:
            is_same = before.node_id == removal.node_id
            is_one = is_same and history.is_one_log(removal.partition, removal.node_id, before.began, removal.ended)
            is_judged = before.row.offset < removal.row.offset and (is_one or not (is_same or history.has_moves))
            if is_judged and removal.ended - before.began < history.delete_retention_s:
                what = f"node {removal.node_id} removed {removal.row} of {removal.partition} at {removal.ended:.4f}"
                findings.append(f"T5 early: {what}, node {before.node_id} {before.row} at {before.began:.4f}")
    return findings


def _acknowledged(ledger: Ledger, put: Put) -> list[str]:
    if put.outcome != "ok" or put.acks != "all":
        return []
    where = f"was acknowledged to {put.client} at {put.partition}"
    return [
        f"T1 lost: {key!r} {where} {offset}, committed is {ledger.get(offset)}"
        for offset, (key, value) in enumerate(put.rows, put.base_offset)
        if offset not in ledger or (ledger[offset].key, ledger[offset].value) != (key, value)
    ]


def _replica(ledger: Ledger, replica: ReplicaTable) -> list[str]:
    where = f"{replica.partition} of node {replica.node_id}"
    findings = _chain(where, replica.batches, None)
    findings += [
        f"T1 moved: {where} has {row}, committed is {ledger.get(row.offset)}"
        for row in replica.rows
        if ledger.get(row.offset) != row
    ]
    committed = fold(ledger[at] for at in sorted(ledger) if replica.log_start <= at < replica.end)
    table = fold(row for row in replica.rows if row.offset >= replica.log_start)
    findings += [
        f"T2 table: {where} has {key!r} = {table.get(key)}, committed is {committed.get(key)}"
        for key in sorted(table.keys() | committed.keys())
        if table.get(key) != committed.get(key)
    ]
    return findings


def _chain(where: str, batches: Iterable[Extent], begin: int | None) -> list[str]:
    findings = []
    chain = list(batches)
    if begin is not None and chain and not chain[0].begin <= begin < chain[0].end:
        findings.append(f"T1 gap: {where} begins at {chain[0]} in place of {begin}")
    gaps = ((before, after) for before, after in pairwise(chain) if after.begin != before.end)
    return findings + [f"T1 gap: {where} has {after} behind {before}" for before, after in gaps]


def _extents(reading: Reading) -> list[Extent]:
    """Returns the batches of a reading; the first of an answer may begin below the position."""
    findings: list[Extent] = []
    for step in reading.steps:
        first = step.batches[0]
        begin = step.asked if first.begin < step.asked < first.end else first.begin
        findings += [Extent(begin, first.end), *step.batches[1:]]
    return findings


def _rows(ledger: Ledger, reading: Reading) -> list[str]:
    return [
        f"T1 moved: {reading.client} read {row} of {reading.partition} at node {step.node_id}, committed is "
        f"{ledger.get(row.offset)}"
        for step in reading.steps
        for row in step.rows
        if ledger.get(row.offset) != row
    ]


def _skipped(history: TableHistory, keys: Mapping[bytes, list[Row]], reading: Reading) -> list[str]:
    """Judges the last record of each key, once a reading has passed it."""
    findings = []
    met: dict[bytes, tuple[Row, float, int]] = {}  # the last record of each key, when and where it was read
    last = {key: rows[-1] for key, rows in keys.items() if rows[-1].offset >= reading.begin}
    offsets = sorted((row.offset, key) for key, row in last.items())
    passed = bisect_left(offsets, (reading.begin, b""))
    for step in reading.steps:
        met |= {row.key: (row, step.asked_at, step.node_id) for row in step.rows}
        while passed < len(offsets) and offsets[passed][0] < step.batches[-1].end:
            row = last[offsets[passed][1]]
            passed += 1
            before, at, node_id = met.get(row.key, (None, 0.0, 0))
            if before == row or (row.value is None and (before is None or before.value is None)):
                continue
            where = f"{reading.client} passed {row} of {reading.partition} at node {step.node_id} at {step.at:.4f}"
            if row.value is not None:
                findings.append(f"T3 skipped: {where} without meeting it")
                continue
            partition = reading.partition
            is_here = step.node_id == node_id and history.is_one_log(partition, node_id, at, step.at)
            if (is_here or not history.has_moves) and step.at - at < history.delete_retention_s:
                text = f"without meeting it, and had read {before} at {at:.4f} at node {node_id}"
                findings.append(f"T4 tombstone: {where} {text}")
    return findings
