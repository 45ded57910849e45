"""Compares the file lists of tables with those of commits, for `ingest verify`. Reads no data file and changes nothing.

Another program may rewrite files of a table, as compaction does. Then the lists differ and the numbers of rows are
equal: such files are counted, and none is a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.errors import EngineError
from spark_ingest.protocol.commit import Commit
from spark_ingest.tables.publish import Publication, files_of
from spark_ingest.tables.values import TableFile, Tables


@dataclass(frozen=True, slots=True)
class Compared:
    """`rewritten` counts committed files that another program replaced by files with as many rows."""

    files: int = 0
    rewritten: int = 0
    problems: tuple[str, ...] = ()


def compare_tables(found: Iterable[Publication], commits: Sequence[Commit], tables: Tables) -> dict[str, Compared]:
    """Returns what differs, by topic; an error of reading a table is a problem of it."""
    compared = {}
    for one in found:
        try:
            if one.error:
                raise one.error
            listed = tables.files(one.topic) if one.state else []
            compared[one.topic] = compare(one, commits, listed)
        except EngineError as error:
            compared[one.topic] = Compared(problems=(str(error),))
    return compared


def compare(table: Publication, commits: Iterable[Commit], listed: Sequence[TableFile]) -> Compared:
    """Compares the files that a table lists with those of the commits that it has."""
    runs = [run for commit in commits if (run := files_of(commit, table.topic)) is not None]
    wanted = {key: run for run in runs if run.commit <= table.after for key in run.keys}
    ahead = {key for run in runs if run.commit > table.after for key in run.keys}
    times = Counter(one.key for one in listed)
    problems = [f"{table.table} lists {key} {count} times" for key, count in sorted(times.items()) if count > 1]
    problems += [f"{table.table} lists {key}, whose commit it does not have" for key in sorted(times.keys() & ahead)]
    missing, foreign = wanted.keys() - times.keys(), times.keys() - wanted.keys() - ahead
    rows = sum(run.rows for run in runs if run.commit <= table.after)
    if (missing or foreign) and not problems and sum(one.rows for one in listed) == rows:
        return Compared(len(listed), len(missing))
    problems += [f"{table.table} does not list {key} of commit {wanted[key].commit}" for key in sorted(missing)]
    problems += [f"{table.table} lists {key}, which no commit has" for key in sorted(foreign)]
    return Compared(len(listed), problems=tuple(problems))
