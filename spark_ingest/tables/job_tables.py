"""The tables of a job as commands use them: check, publish, report. The documents are those of `--json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from engine.errors import EngineError
from spark_ingest.errors import IngestRefused, NotPublished, TopicsFailed
from spark_ingest.layout import Layout
from spark_ingest.output.retained import load_retained
from spark_ingest.output.stores import open_output_store
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.tables.compare import compare_tables
from spark_ingest.tables.publish import Publication, check_layouts, pending, publications, publish
from spark_ingest.tables.settings import DELTA, ICEBERG, GlueSettings, name_rules, read_tables
from spark_ingest.tables.values import Tables

__all__ = ["JobTables", "name_rules", "print_tables"]
_LIBRARIES = ("pyiceberg", "sqlalchemy", "deltalake", "pyarrow")


class JobTables:
    """The tables that a file names; none without a file. Asks no catalog before the first call.

    Raises IngestRefused if the file is wrong or its library is not installed.
    """

    def __init__(self, path: Path | None, output: str, job: str) -> None:
        opened = open_output_store(output, is_written=False)
        self._history = History(opened, job)
        self._tables = _open(path, self._history) if path else None

    def check(self, *, widens: bool, layouts: Iterable[Layout] = ()) -> None:
        """Raises IngestRefused if a run would commit what its tables cannot take.

        Ignores a catalog that does not answer: the run commits, and a later call publishes.
        """
        if self._tables is None:
            return
        if widens:
            text = "--on-misfit widen makes a bigint column decimal, and a column of such a table cannot do that"
            raise IngestRefused(text, hint="declare the column decimal with --schema before its first run")
        check_layouts(layouts, self._tables.kind)
        for publication in publications(self._history, self._tables, self._history.head()).values():
            if publication.error and not isinstance(publication.error, NotPublished):
                raise publication.error

    def publish(self) -> tuple[list[dict[str, Any]], EngineError | None]:
        """Adds what the tables do not have; returns the document, and the error of tables that are not up to date."""
        publications = publish(self._history, self._tables) if self._tables else []
        return [_document(publication, "added") for publication in publications], _failure(publications)

    def require(self) -> None:
        """Adds what the tables do not have. Raises the error of tables that are not up to date."""
        _, failure = self.publish()
        if failure is not None:
            raise failure

    @property
    def publisher(self) -> Callable[[], None] | None:
        """Returns the function that adds the files of rewrites to the tables; None without tables."""
        return self.require if self._tables else None

    def status(self) -> list[dict[str, Any]]:
        """Returns the state of each table, and the commits that it does not have."""
        publications = pending(self._history, self._tables) if self._tables else []
        return [_document(publication, "not_published") for publication in publications]

    def verify(self, commits: Sequence[Commit]) -> tuple[list[dict[str, Any]], list[str]]:
        """Returns the state of each table with its number of files, and the problems of all of them."""
        if self._tables is None:
            return [], []
        publications = pending(self._history, self._tables)
        covers = load_retained(self._history.output, self._history.job).covers
        compared = compare_tables(publications, commits, self._tables, self._history.effect(), covers)
        rows = [
            _document(publication, "not_published")
            | {"files": compared[publication.topic].files, "rewritten_files": compared[publication.topic].rewritten}
            for publication in publications
        ]
        return rows, [problem for table in compared.values() for problem in table.problems]


def _open(path: Path, history: History) -> Tables:
    settings, output_url, job = read_tables(path), history.output.url, history.job
    if isinstance(settings, GlueSettings):
        from spark_ingest.tables.glue import GlueTables

        return GlueTables(settings, history)
    try:
        if settings is None:
            from spark_ingest.tables.delta import DeltaTables

            return DeltaTables(job, output_url)
        from spark_ingest.tables.iceberg import IcebergTables
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        extra = DELTA if settings is None else ICEBERG
        hint = f"pip install --find-links dist 'penstock-server[{extra}]', or make setup in a clone"
        raise IngestRefused(f"--tables needs {error.name}, which is not installed", hint=hint) from error
    return IcebergTables(settings, job, output_url)


def _document(publication: Publication, commits: str) -> dict[str, Any]:
    return {
        "topic": publication.topic,
        "table": publication.table,
        "commit": publication.after if publication.state else None,
        "snapshot": publication.state.snapshot if publication.state else None,
        "rewrite": publication.state.rewrite if publication.state else None,
        commits: publication.commits,
        f"{commits}_rows": publication.rows,
        "error": str(publication.error) if publication.error else None,
    }


def _failure(publications: Sequence[Publication]) -> EngineError | None:
    """Returns one kind of error for one table and for several, so that the exit code is the same."""
    errors = [publication.error for publication in publications if publication.error]
    if not errors:
        return None
    if len(errors) == 1 and isinstance(errors[0], NotPublished):
        return errors[0]
    tables = "table is" if len(errors) == 1 else "tables are"
    return TopicsFailed(f"{len(errors)} {tables} not up to date: {'; '.join(dict.fromkeys(map(str, errors)))}")


def print_tables(tables: Sequence[dict[str, Any]]) -> None:
    """Prints a line for each table: what was added to it, or what it has and what is missing."""
    for table in tables:
        has = f"has commit {table['commit']}" if table["commit"] else "is not there yet"
        has += f", snapshot {table['snapshot']}" if table["snapshot"] is not None else ""
        if table.get("added"):
            has += f", {_counted('added', table['added'], table['added_rows'])}"
        if table.get("not_published"):
            has += f"; not published: {_counted('', table['not_published'], table['not_published_rows'])}"
        if table.get("rewritten_files"):
            has += f"; {table['rewritten_files']:,} files were rewritten by another program"
        click.echo(f"table {table['table']} {has}" if not table["error"] else f"not published: {table['error']}")


def _counted(verb: str, commits: Sequence[int], rows: int) -> str:
    what = f"commit {commits[0]}" if len(commits) == 1 else f"commits {commits[0]} to {commits[-1]}"
    return f"{verb} {what} with {rows:,} rows".strip()
