"""Values between the commits of a job and tables of a catalog, the interface of a kind of tables, and how one sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from spark_ingest.errors import IngestRefused, NotPublished
from spark_ingest.layout import DEFAULT, Layout

TableT = TypeVar("TableT")  # of a library
_SENDS_MAX = 4  # each but the first after another writer's commit, or without an answer to the one before


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


def send_after_look(
    load: Callable[[], TableT], is_needed: Callable[[TableT], bool], commit: Callable[[TableT], object], refusal: str
) -> bool:
    """Commits one transaction unless a look at the table says that it is not needed; false then.

    Raises IngestRefused, and NotPublished with the text of the refusal.
    """
    last: Exception | None = None
    for _ in range(_SENDS_MAX):
        table = load()
        if not is_needed(table):
            return False
        try:
            commit(table)
        except IngestRefused:
            raise
        except Exception as error:  # of a library, a catalog or a file system: the next look decides
            last = error
        else:
            return True
    raise NotPublished(f"{refusal}: {first_line(last)}") from last


def first_line(error: Exception | None) -> str:
    """Returns the first line of an error's text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
