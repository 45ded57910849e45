"""Values between the commits of a job and tables of a catalog, and the interface of a kind of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spark_ingest.layout import DEFAULT, Layout


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The data files of one topic in one commit. A table takes them in one snapshot. `keys` are those of the output."""

    topic: str
    commit: int
    keys: tuple[str, ...]
    rows: int
    layout: Layout = DEFAULT


@dataclass(frozen=True, slots=True)
class RewriteFiles:
    """The files of rewrite `rewrite`, and of commits up to `commit`, for a table at commit `after` and rewrite `since`.

    The table takes the files `added` and drops those of `replaced` in one snapshot. It has all of `replaced`, unless
    another program has rewritten them.
    """

    topic: str
    after: int
    since: int
    commit: int
    rewrite: int
    added: tuple[str, ...]
    replaced: tuple[str, ...]
    layout: Layout = DEFAULT


@dataclass(frozen=True, slots=True)
class TableState:
    """A table that exists. It has the job's files up to commit `commit`; `snapshot` is its newest, None without one.

    It has the files of rewrites up to `rewrite`.
    """

    commit: int
    snapshot: int | None
    rewrite: int = 0


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that a table's newest snapshot lists. `key` is that of the output; of another place, its location."""

    key: str
    rows: int


class Tables(Protocol):
    """The tables of one job in a catalog. Every method may raise IngestRefused or NotPublished."""

    kind: str
    lists_files: bool  # a table names its files; in others, those of a directory are files of the table

    def name(self, topic: str) -> str:
        """Returns the table's name, for people."""

    def state(self, topic: str) -> TableState | None:
        """Returns the state of a topic's table; None if there is no table."""

    def add(self, run: RunFiles) -> bool:
        """Adds the files in one snapshot, and the table with its first ones; False if the table has this commit.

        Exactly once: of any number of callers, also killed ones, one adds the files of a commit.
        """

    def rewrite(self, change: RewriteFiles) -> bool:
        """Exchanges files in one snapshot, and makes the table if it is absent; False if its state is another one.

        Raises IngestRefused also if another program has rewritten files that are to be replaced.
        """

    def mark(self, topic: str, commit: int) -> None:
        """Records that no commit up to this one has further files for the table. May have no effect."""

    def files(self, topic: str) -> list[TableFile]:
        """Returns the data files of the newest snapshot."""
