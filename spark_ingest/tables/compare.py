"""Compares the file lists of tables with those of commits, for `ingest verify`. Reads no data file and changes nothing.

Another program may rewrite files of a table, as compaction does. Then the lists differ and the numbers of rows are
equal: such files are counted, and none is a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import EngineError
from spark_ingest.output import names
from spark_ingest.output.rewrites import Effect
from spark_ingest.protocol.commit import Commit
from spark_ingest.tables.publish import Publication, files_of
from spark_ingest.tables.values import RunFiles, TableFile, Tables


@dataclass(frozen=True, slots=True)
class Compared:
    """`rewritten` counts committed files that another program replaced by files with as many rows."""

    files: int = 0
    rewritten: int = 0
    problems: tuple[str, ...] = ()


def compare_tables(
    publications: Iterable[Publication],
    commits: Sequence[Commit],
    tables: Tables,
    effect: Effect,
    is_retired: Callable[[str], bool] = lambda _: False,
) -> dict[str, Compared]:
    """Returns what differs, by topic; an error of reading a table is a problem of it."""
    compared = {}
    for publication in publications:
        try:
            if publication.error:
                raise publication.error
            listed = tables.files(publication.topic) if publication.state else []
            compared[publication.topic] = compare(publication, commits, listed, effect, is_retired)
        except EngineError as error:
            compared[publication.topic] = Compared(problems=(str(error),))
    return compared


def compare(
    table: Publication,
    commits: Iterable[Commit],
    listed: Sequence[TableFile],
    effect: Effect | None = None,
    is_retired: Callable[[str], bool] = lambda _: False,
) -> Compared:
    """Compares the files that a table lists with those of its commits and rewrites that are not retired."""
    effect = effect or Effect("")
    runs = [run for commit in commits if (run := files_of(commit, table.topic, is_retired)) is not None]
    runs_by_key = {key: run for run in runs if run.commit <= table.after for key in run.keys}
    ahead = {key for run in runs if run.commit > table.after for key in run.keys}
    rows = sum(run.rows for run in runs if run.commit <= table.after)
    is_behind = (table.state.rewrite if table.state else 0) < effect.latest.get(table.topic, 0)
    if is_behind:  # it may still have what was replaced
        listed = [file for file in listed if file.key not in effect.replaced]
    runs_by_key = {key: run for key, run in runs_by_key.items() if key not in effect.replaced}
    made = set() if is_behind else {file.key for file in effect.files_of(table.topic) if not is_retired(file.key)}
    times = Counter(file.key for file in listed)
    problems = [f"{table.table} lists {key} {count} times" for key, count in sorted(times.items()) if count > 1]
    problems += [f"{table.table} lists {key}, whose commit it does not have" for key in sorted(times.keys() & ahead)]
    missing, foreign = (runs_by_key.keys() | made) - times.keys(), times.keys() - runs_by_key.keys() - ahead - made
    rows -= effect.dropped_of(table.topic)
    if (missing or foreign) and not problems and sum(file.rows for file in listed) == rows:
        return Compared(len(listed), len(missing))
    problems += [f"{table.table} does not list {key} of {_origin(key, runs_by_key)}" for key in sorted(missing)]
    problems += [f"{table.table} lists {key}, which no commit has" for key in sorted(foreign)]
    return Compared(len(listed), problems=tuple(problems))


def _origin(key: str, runs_by_key: Mapping[str, RunFiles]) -> str:
    return f"commit {runs_by_key[key].commit}" if key in runs_by_key else f"rewrite {names.rewrite_of(key)}"
