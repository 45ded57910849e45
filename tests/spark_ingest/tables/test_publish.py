"""Tables get the commits that they do not have, oldest first, and one table's error does not stop another."""

from __future__ import annotations

import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import ORC, Field, Layout
from spark_ingest.output import names
from spark_ingest.plan import Recipe
from spark_ingest.protocol.history import History
from spark_ingest.tables.publish import MARK_AFTER, pending, publish
from spark_ingest.tables.values import RunFiles, TableFile, TableState
from spark_ingest.upkeep.clean import clean
from tests.spark_ingest.jobs import run_job
from tests.spark_ingest.tiered import TieredLog, json_rows


class RememberedTables:
    """Tables in memory."""

    kind = "Iceberg"

    lists_files = True

    def __init__(self) -> None:
        self.runs: list[RunFiles] = []
        self.commits: dict[str, int] = {}
        self.refused: set[str] = set()

    def name(self, topic: str) -> str:
        return f"events.{topic}"

    def state(self, topic: str) -> TableState | None:
        return TableState(self.commits[topic], None) if topic in self.commits else None

    def add(self, run: RunFiles) -> bool:
        if run.topic in self.refused:
            raise IngestRefused(f"{run.topic} does not fit")
        if self.commits.get(run.topic, 0) >= run.commit:
            return False
        self.runs.append(run)
        self.commits[run.topic] = run.commit
        return True

    def mark(self, topic: str, commit: int) -> None:
        self.commits[topic] = commit

    def files(self, topic: str) -> list[TableFile]:
        return [TableFile(key, 0) for run in self.runs if run.topic == topic for key in run.keys]


def test_each_table_gets_each_commit_of_its_topic_once(source: MemoryStore, output: MemoryStore) -> None:
    flights, rides = TieredLog(source), TieredLog(source, topic="rides")
    tables, history = RememberedTables(), History(output, "default")
    flights.add(0, json_rows(5))
    run_job(source, output)
    assert [one.commits for one in publish(history, tables)] == [[1]]
    rides.add(0, json_rows(3))
    run_job(source, output)
    flights.add(0, json_rows(2))
    rides.add(0, json_rows(3))
    run_job(source, output)
    assert {one.topic: one.commits for one in pending(history, tables)} == {"flights": [3], "rides": [2, 3]}
    assert {one.topic: one.commits for one in publish(history, tables)} == {"flights": [3], "rides": [2, 3]}
    assert [(run.topic, run.commit, run.rows) for run in tables.runs] == [
        *(("flights", 1, 5), ("rides", 2, 3), ("flights", 3, 2), ("rides", 3, 3)),
    ]
    assert [one.commits for one in publish(history, tables)] == [[], []]


def test_a_table_that_refuses_does_not_stop_another(source: MemoryStore, output: MemoryStore) -> None:
    for topic in ("flights", "rides"):
        TieredLog(source, topic=topic).add(0, json_rows(5))
    run_job(source, output)
    tables = RememberedTables()
    tables.refused = {"flights"}
    found = {one.topic: one for one in publish(History(output, "default"), tables)}
    assert str(found["flights"].error) == "flights does not fit"
    assert (found["rides"].commits, found["rides"].error) == ([1], None)


@pytest.mark.parametrize("layout", [Layout(ORC), Layout(fields=(Field("by_name", "name"),))])
def test_a_topic_with_other_files_than_parquet_by_period_is_refused(
    source: MemoryStore, output: MemoryStore, layout: Layout
) -> None:
    TieredLog(source).add(0, json_rows(5))
    run_job(source, output, recipe=Recipe(layout=layout))
    tables = RememberedTables()
    (found,) = publish(History(output, "default"), tables)
    assert str(found.error).startswith("Iceberg tables take Parquet files in directories of periods, and a topic has")
    assert tables.runs == []


def test_a_quiet_table_is_marked_so_that_old_commits_are_not_read_each_time(
    source: MemoryStore, output: MemoryStore
) -> None:
    TieredLog(source).add(0, json_rows(5))
    rides, tables, history = TieredLog(source, topic="rides"), RememberedTables(), History(output, "default")
    for at in range(MARK_AFTER + 1):
        rides.add(0, json_rows(1, first=at))
        run_job(source, output)
    publish(history, tables)
    assert tables.commits == {"flights": MARK_AFTER + 1, "rides": MARK_AFTER + 1}


def test_a_new_table_needs_only_the_commits_since_its_topic_is_ingested(
    source: MemoryStore, output: MemoryStore
) -> None:
    flights, rides = TieredLog(source), TieredLog(source, topic="rides")
    tables, history = RememberedTables(), History(output, "default")
    for at in range(5):
        flights.add(0, json_rows(1, first=at))
        run_job(source, output)
    rides.add(0, json_rows(1))
    run_job(source, output)
    for number in (1, 2):
        output.delete(names.commit_key("default", number))
    found = {one.topic: one for one in publish(history, tables)}
    assert (found["rides"].commits, found["rides"].error) == ([6], None)
    assert str(found["flights"].error).startswith("commit 2 of job default is gone")


def test_a_job_without_commits_has_no_tables(output: MemoryStore) -> None:
    assert publish(History(output, "default"), RememberedTables()) == []


def test_a_table_also_gets_the_commits_of_archives(source: MemoryStore, output: MemoryStore) -> None:
    flights, rides = TieredLog(source), TieredLog(source, topic="rides")
    rides.add(0, json_rows(3))
    for at in range(6):
        flights.add(0, json_rows(2, first=2 * at))
        run_job(source, output)
    tables = RememberedTables()
    tables.commits["flights"] = 2
    clean(output, "default", keep_commits=1, keep_ms=0, archive_commits=2)
    found = {one.topic: one.commits for one in publish(History(output, "default"), tables)}
    assert found == {"flights": [3, 4, 5, 6], "rides": [1]}
    output.delete(names.archive_key("default", 1, 2))
    [_, gone] = publish(History(output, "default"), RememberedTables())
    assert "commit 1 of job default is gone" in str(gone.error)
