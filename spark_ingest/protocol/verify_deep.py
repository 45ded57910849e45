"""Reads every committed file again: its digest, its rows, its place, and that each offset is there exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.decode.event_time import HOUR_US
from spark_ingest.output import names
from spark_ingest.output.table_files import StoredFile, sha256
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.task import TaskResult

_GETS_AT_ONCE = 8


class _Read(NamedTuple):
    """One file's offsets as triples of partition, first and last, and what is wrong with it."""

    places: list[tuple[int, int, int]]
    problems: list[str]


def verify_deep(output: ObjectStore, commits: Iterable[Commit]) -> Iterator[str]:
    """Problems, task by task."""
    with ThreadPoolExecutor(_GETS_AT_ONCE) as pool:
        for commit in commits:
            for result in commit.results:
                rows = pool.map(lambda one, number=commit.number: _read_rows(output, one, number), result.files)
                letters = pool.map(lambda one: _read_letters(output, one), result.dead_letters)
                reads = [*rows, *letters]
                yield from (problem for read in reads for problem in read.problems)
                if not any(read.problems for read in reads):
                    yield from _of_places(commit, result, [place for read in reads for place in read.places])


def _read_rows(output: ObjectStore, file: StoredFile, number: int) -> _Read:
    table, problems = _read(output, file)
    if table is None:
        return _Read([], problems)
    hours = np.unique(np.asarray(table["_event_time"].cast(pa.int64())) // HOUR_US).tolist()
    if len(hours) != 1 or names.hour_directory(hours[0]) not in file.key:
        problems.append(f"{file.key} holds events of other hours")
    if table["_ingest_commit"].unique().to_pylist() != [number]:
        problems.append(f"{file.key} holds rows of other commits")
    offsets = table["_offset"].to_pylist()
    return _Read(list(zip(table["_partition"].to_pylist(), offsets, offsets, strict=True)), problems)


def _read_letters(output: ObjectStore, file: StoredFile) -> _Read:
    table, problems = _read(output, file)
    if table is None:
        return _Read([], problems)
    columns = [table[name].to_pylist() for name in ("_partition", "_offset", "_last_offset")]
    return _Read(list(zip(*columns, strict=True)), problems)


def _read(output: ObjectStore, file: StoredFile) -> tuple[pa.Table | None, list[str]]:
    try:
        data = output.get(file.key)
        if sha256(data) != file.sha256:
            return None, [f"{file.key} is not the file that was committed: its SHA-256 differs"]
        table = pq.read_table(pa.BufferReader(data))
    except NoSuchObject:
        return None, [f"{file.key} is missing"]
    except pa.ArrowInvalid as error:
        return None, [f"{file.key} cannot be read: {error}"]
    if table.num_rows != file.rows:
        return None, [f"{file.key} holds {table.num_rows} rows, {file.rows} were committed"]
    return table, []


def _of_places(commit: Commit, result: TaskResult, places: list[tuple[int, int, int]]) -> Iterator[str]:
    """Each offset of the task's ranges once, but for those that hold no record."""
    found = 0
    for one in result.ranges:
        mine = sorted((first, last) for partition, first, last in places if partition == one.partition)
        found += sum(last - first + 1 for first, last in mine)
        reached = one.start
        for first, last in mine:
            if first < reached or last >= one.end:
                yield (
                    f"commit {commit.number}: {result.topic} partition {one.partition} offset {first} "
                    + ("comes twice" if first < reached else "was not asked for")
                )
            reached = last + 1
    offsets = sum(one.end - one.start for one in result.ranges)
    if found != offsets - result.absent:
        yield f"commit {commit.number} task {result.task}: {offsets - result.absent} records, {found} are in its files"
