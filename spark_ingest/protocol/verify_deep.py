"""Reads every committed file: checks its digest, its rows, its directory, and that each offset occurs exactly once.

Files of `text` have no offsets: only their digests and the numbers of their lines are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.layout import LINES, Layout, layout_of_key
from spark_ingest.output import names
from spark_ingest.output.file_formats import Unreadable, count_lines, read_places
from spark_ingest.output.owners import Layouts, layouts_of
from spark_ingest.output.rewrites import Effect
from spark_ingest.output.splitting import directory_of, starts_of
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.output.table_files import sha256
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.results import TaskResult

_GETS_AT_ONCE = 8


class _Read(NamedTuple):
    """One file's offsets as triples of partition, first and last, and its problems."""

    places: list[tuple[int, int, int]]
    problems: list[str]


class _Made(NamedTuple):
    """The places of a rewritten file: rows of commit, partition, first and last offset."""

    topic: str
    places: np.ndarray
    problems: list[str]


def verify_deep(
    output: ObjectStore,
    commits: Sequence[Commit],
    is_retired: Callable[[str], bool] = lambda _: False,
    effect: Effect | None = None,
) -> Iterator[str]:
    """Yields problems, task by task. Skips retired files, and the offsets of a task that has any.

    `effect` is that of rewrites. Offsets of rewritten files belong to the tasks of the commits that their rows name.
    """
    effect, layouts = effect or Effect(""), layouts_of(output)
    with ThreadPoolExecutor(_GETS_AT_ONCE) as pool:
        rewritten = _Rewritten()
        for made in pool.map(
            lambda file: _read_rewritten(output, file, layouts), _not_retired(effect.files.values(), is_retired)
        ):
            yield from made.problems
            rewritten.add(made)
        for commit in commits:
            for result in commit.results:
                live = [file for file in result.every_file if file.key not in effect.replaced]
                files = _not_retired(live, is_retired)
                data, letters = set(result.files), set(result.dead_letters)
                rows = pool.map(
                    lambda file, number=commit.number: _read_rows(output, file, number, layouts),
                    [file for file in files if file in data],
                )
                dead = pool.map(lambda file: _read_letters(output, file), [file for file in files if file in letters])
                reads = [*rows, *dead]
                yield from (problem for read in reads for problem in read.problems)
                places = [place for read in reads for place in read.places]
                places += rewritten.take(commit.number, result)
                if len(files) < len(live) or any(map(is_retired, (file.key for file in result.every_file))):
                    rewritten.has_gaps = True
                elif not any(read.problems for read in reads) and layouts(result.topic).format != LINES:
                    is_changed = len(live) < len(result.every_file)
                    yield from _of_places(commit, result, places, rewritten if is_changed else None)
        yield from rewritten.problems(sum(effect.dropped.values()))


def _not_retired(files: Iterable[StoredFile], is_retired: Callable[[str], bool]) -> list[StoredFile]:
    return [file for file in files if not is_retired(file.key)]


class _Rewritten:
    """Places of rows in rewritten files, by topic and commit, until the tasks of the commit take them."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], list[np.ndarray]] = {}
        self.missing = 0  # rows of tasks, which rewrites dropped
        self.has_gaps = False  # a file is retired or damaged, so that rows cannot be counted

    def add(self, made: _Made) -> None:
        self.has_gaps |= bool(made.problems)
        for number in np.unique(made.places[:, 0]).tolist():
            self._places.setdefault((made.topic, number), []).append(made.places[made.places[:, 0] == number, 1:])

    def take(self, number: int, result: TaskResult) -> list[tuple[int, int, int]]:
        """Returns the places within the ranges of a task, and forgets them."""
        taken, rest = [], []
        for places in self._places.pop((result.topic, number), ()):
            is_mine = np.zeros(len(places), dtype=bool)
            for span in result.ranges:
                is_mine |= (places[:, 0] == span.partition) & (places[:, 1] >= span.start) & (places[:, 1] < span.end)
            taken += [(partition, first, last) for partition, first, last in places[is_mine].tolist()]
            rest.append(places[~is_mine])
        if any(map(len, rest)):
            self._places[result.topic, number] = rest
        return taken

    def problems(self, dropped: int) -> Iterator[str]:
        for (topic, number), places in sorted(self._places.items()):
            count = sum(map(len, places))
            yield f"{topic}: {count} rows of rewritten files are of commit {number}, which does not have them"
        if not self.has_gaps and self.missing != dropped:
            yield f"rewrites dropped {dropped} rows, {self.missing} rows are missing"


def _read_rewritten(output: ObjectStore, file: StoredFile, layouts: Layouts) -> _Made:
    """Reads a rewritten file of rows or of dead letters."""
    topic = names.topic_of(file.key)
    table, problems = _read(output, file, _read_parquet)
    if table is None:
        return _Made(topic, np.empty((0, 4), np.int64), problems)
    last = "_offset"
    if file.key.startswith(names.table_prefix(topic)):
        problems += _of_other_directories(file, table, layouts(topic))
    else:
        last = "_last_offset"
    columns = [np.asarray(table[name].cast(pa.int64())) for name in ("_ingest_commit", "_partition", "_offset", last)]
    return _Made(topic, np.stack(columns, axis=1), problems)


def _of_other_directories(file: StoredFile, table: pa.Table, layout: Layout) -> list[str]:
    """Compares the period or the positions of rows with the directory, and no value of a field."""
    starts = np.unique(starts_of(table, layout)).tolist()
    start = names.table_prefix(names.topic_of(file.key)) + (directory_of(layout, starts[0]) if starts else "")
    is_right = len(starts) == 1 and file.key.startswith(start)
    return [] if is_right else [f"{file.key} has rows of another directory"]


def _read_rows(output: ObjectStore, file: StoredFile, number: int, layouts: Layouts) -> _Read:
    layout = layouts(names.topic_of(file.key))
    layout = layout._replace(codec=layout_of_key(file.key).codec)
    if layout.format == LINES:
        return _Read([], _read_lines(output, file, layout))
    table, problems = _read(output, file, lambda data: read_places(data, layout))
    if table is None:
        return _Read([], problems)
    problems += _of_other_directories(file, table, layout)
    if table["_ingest_commit"].unique().to_pylist() != [number]:
        problems.append(f"{file.key} has rows of other commits")
    offsets = table["_offset"].to_pylist()
    return _Read(list(zip(table["_partition"].to_pylist(), offsets, offsets, strict=True)), problems)


def _read_lines(output: ObjectStore, file: StoredFile, layout: Layout) -> list[str]:
    _, problems = _read(output, file, lambda data: pa.table({"line": np.zeros(count_lines(data, layout), np.int8)}))
    return problems


def _read_letters(output: ObjectStore, file: StoredFile) -> _Read:
    table, problems = _read(output, file, _read_parquet)
    if table is None:
        return _Read([], problems)
    columns = [table[name].to_pylist() for name in ("_partition", "_offset", "_last_offset")]
    return _Read(list(zip(*columns, strict=True)), problems)


def _read_parquet(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data))


def _read(
    output: ObjectStore, file: StoredFile, read: Callable[[bytes], pa.Table]
) -> tuple[pa.Table | None, list[str]]:
    try:
        data = output.get(file.key)
        if sha256(data) != file.sha256:
            return None, [f"{file.key} differs from the committed file: its SHA-256 is different"]
        table = read(data)
    except NoSuchObject:
        return None, [f"{file.key} is missing"]
    except (pa.ArrowInvalid, Unreadable) as error:
        return None, [f"{file.key} cannot be read: {error}"]
    if table.num_rows != file.rows:
        return None, [f"{file.key} has {table.num_rows} rows, {file.rows} were committed"]
    return table, []


def _of_places(
    commit: Commit, result: TaskResult, places: list[tuple[int, int, int]], rewritten: _Rewritten | None
) -> Iterator[str]:
    """Checks that each offset of the task's ranges occurs once, except offsets without a record.

    Counts missing rows of rewritten files, which a rewrite may have dropped.
    """
    count = 0
    for result_span in result.ranges:
        mine = sorted((first, last) for partition, first, last in places if partition == result_span.partition)
        count += sum(last - first + 1 for first, last in mine)
        reached = result_span.start
        for first, last in mine:
            if first < reached or last >= result_span.end:
                yield (
                    f"commit {commit.number}: {result.topic} partition {result_span.partition} offset {first} "
                    + ("comes twice" if first < reached else "is outside the range")
                )
            reached = last + 1
    offsets = sum(span.end - span.start for span in result.ranges)
    if rewritten is not None and count <= offsets - result.absent:
        rewritten.missing += offsets - result.absent - count
    elif count != offsets - result.absent:
        yield f"commit {commit.number} task {result.task}: {offsets - result.absent} records, {count} are in its files"
