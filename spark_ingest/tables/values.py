"""Values between the commits of a job and tables of a catalog, and the interface of a kind of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The data files of one topic in one commit. A table takes them in one snapshot. `keys` are those of the output."""

    topic: str
    commit: int
    keys: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class TableState:
    """A table that exists. It has the job's files up to commit `commit`; `snapshot` is its newest, None without one."""

    commit: int
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that a table's newest snapshot lists. `key` is that of the output; of another place, its location."""

    key: str
    rows: int


class Tables(Protocol):
    """The tables of one job in a catalog. Every method may raise IngestRefused or NotPublished."""

    def name(self, topic: str) -> str:
        """Returns the table's name, for people."""

    def state(self, topic: str) -> TableState | None:
        """Returns the state of a topic's table; None if there is no table."""

    def add(self, run: RunFiles) -> bool:
        """Adds the files in one snapshot, and the table with its first ones; False if the table has this commit.

        Exactly once: of any number of callers, also killed ones, one adds the files of a commit.
        """

    def mark(self, topic: str, commit: int) -> None:
        """Records that no commit up to this one has further files for the table. May have no effect."""

    def files(self, topic: str) -> list[TableFile]:
        """Returns the data files of the newest snapshot."""
