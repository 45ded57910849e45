"""`verify` reports every file that a table and the commits do not have in common."""

from __future__ import annotations

import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.tables.compare import Compared, compare
from spark_ingest.tables.publish import Publication, files_of
from spark_ingest.tables.values import TableFile, TableState
from tests.spark_ingest.jobs import run_job
from tests.spark_ingest.tiered import TieredLog, json_rows


@pytest.fixture
def commits() -> list[Commit]:
    """Return two commits of one file with five rows each."""
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for _ in range(2):
        log.add(0, json_rows(5))
        run_job(source, output)
    return list(History(output, "default").commits())


def published(after: int) -> Publication:
    return Publication("flights", "events.flights", TableState(after, 1), after)


def files(commits: list[Commit]) -> list[TableFile]:
    return [TableFile(key, 5) for one in commits if (run := files_of(one, "flights")) for key in run.keys]


def test_a_table_that_lists_the_files_of_its_commits_is_sound(commits: list[Commit]) -> None:
    assert compare(published(2), commits, files(commits)) == Compared(2)
    assert compare(published(1), commits, files(commits[:1])) == Compared(1)


def test_a_missing_a_foreign_a_doubled_and_an_early_file_are_named(commits: list[Commit]) -> None:
    first, second = files(commits)
    assert compare(published(2), commits, [first]).problems == (
        f"events.flights does not list {second.key} of commit 2",
    )
    assert compare(published(2), commits, [first, second, TableFile("s3://x/y", 1)]).problems == (
        "events.flights lists s3://x/y, which no commit has",
    )
    assert compare(published(2), commits, [first, second, first]).problems == (
        f"events.flights lists {first.key} 2 times",
    )
    assert compare(published(1), commits, [first, second]).problems == (
        f"events.flights lists {second.key}, whose commit it does not have",
    )


def test_files_that_another_program_rewrote_are_counted(commits: list[Commit]) -> None:
    assert compare(published(2), commits, [TableFile("s3://x/y", 10)]) == Compared(1, rewritten=2)
