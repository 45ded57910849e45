"""`verify --audit`: counts of commits equal those of the log, and each difference is named."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from engine.format.batch import encode
from engine.format.paths import store_accepted_key
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.accepted_object import CountedTopic, encode_accepted
from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.store.store import open_store
from spark_ingest.inspection.audit import audit
from spark_ingest.inspection.completeness import completeness, job_completeness
from spark_ingest.plan import Recipe
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.protocol.results import ALL_TIMES, PERIODS_MAX, TimeCounts, add_counts
from tests.spark_ingest.jobs import invoke, run_job
from tests.spark_ingest.tiered import CLUSTER, START_MS, TOPIC_ID, TieredLog, json_rows, row, undecodable_batch

PERIOD = START_MS // 600_000


@pytest.fixture
def source() -> MemoryStore:
    source = MemoryStore()
    log = TieredLog(source)
    log.add(0, [row(b'{"id":%d}' % at, timestamp=START_MS + at * 60_000) for at in range(25)])
    log.add(1, [row(b"bad"), row(b'{"id":1}', timestamp=-1)])
    log.add_batches(2, [undecodable_batch(), encode(json_rows(3))], [START_MS], 10)
    return source


def commits_of(output: MemoryStore) -> list[Commit]:
    return list(History(output, "default").commits())


def test_counts_equal_those_of_the_log(source: MemoryStore) -> None:
    output = MemoryStore()
    run_job(source, output, bad_percent_max=100, recipe=Recipe(event_time="id"), task_bytes=300)
    [commit] = commits_of(output)
    counted = commit.audit["flights"]
    assert counted.records == {PERIOD: 10 + 1 + 7 + 3, PERIOD + 1: 10, PERIOD + 2: 5, -1: 1}
    assert sum(counted.events.values()) == commit.rows == 28
    [found] = audit(source, [commit]).values()
    assert (found.records, found.log_records, found.differences, found.not_compared) == (37, 37, [], [])


def test_differences_are_named(source: MemoryStore) -> None:
    output = MemoryStore()
    run_job(source, output, bad_percent_max=100)
    [commit] = commits_of(output)
    wrong = msgspec.structs.replace(
        commit.audit["flights"], records=commit.audit["flights"].records | {PERIOD + 1: 9}, events={PERIOD: 1}
    )
    [found] = audit(source, [msgspec.structs.replace(commit, audit={"flights": wrong})]).values()
    assert found.differences == [
        "commit 1: flights 2013-11-21T05:10:00+00:00: 9 records were counted, the log has 10",
        "commit 1: flights: 1 rows were counted, it has 28",
    ]
    [found] = audit(source, [msgspec.structs.replace(commit, audit={})]).values()
    assert found.not_compared == [1]


def test_a_segment_with_another_number_of_records_than_the_node_counted_is_named(tmp_path: Path) -> None:
    source, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "output").as_uri())
    log = TieredLog(source)
    log.add_batches(0, [encode(json_rows(5))], [START_MS], 6)
    run_job(source, output)
    given = ["verify", "--output", output.url, "--store", source.url, "--audit"]
    done = invoke(*given, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["audit"]["flights"]["records"]) == (1, 5)
    assert "the node counted 6 records, the segment has 5" in document["problems"][0]
    assert "audit: flights: 1 commit, 5 records counted, 5 in the log" in invoke(*given).output


def test_what_retention_removed_is_not_compared(source: MemoryStore) -> None:
    output = MemoryStore()
    run_job(source, output, bad_percent_max=100)
    TieredLog(source).raise_log_start(0, 3)
    [found] = audit(source, commits_of(output)).values()
    assert (found.not_compared, found.differences) == ([1], [])


def test_what_nodes_accepted_and_the_table_lacks_is_missing_once_its_period_is_settled(source: MemoryStore) -> None:
    """Each batch counts under its greatest timestamp on both sides. A later or unread period is to come."""
    output = MemoryStore()
    run_job(source, output, bad_percent_max=100)
    [commit] = commits_of(output)
    counted = commit.audit["flights"].batches
    assert counted is not None
    assert sum(counted.values()) == 37
    topic = CountedTopic("flights", commit.positions["flights"].topic_id)
    late = commit.committed_ms // 600_000
    accepted = counted | {PERIOD + 2: counted[PERIOD + 2] + 4, late: 3}
    for hour, counts in ((PERIOD // 6, {PERIOD + 2: 2}), (PERIOD // 6 + 1, accepted)):
        source.put(store_accepted_key(commit.cluster, hour, "ab"), encode_accepted({topic: counts}))
    source.put(store_accepted_key(commit.cluster, 9, "ab"), b"{")
    [found] = completeness(source, [commit], {}).values()
    assert (found.accepted, found.ingested, found.missing, found.pending) == (46, 37, 6, 3)
    assert found.unreadable_counts == 1
    at_ms = (PERIOD + 2) * 600_000
    assert found.periods == [(at_ms, counted[PERIOD + 2] + 6, counted[PERIOD + 2])]
    [found] = completeness(source, [commit], {"flights": at_ms}).values()
    assert (found.missing, found.pending) == (0, 9)
    older = msgspec.structs.replace(commit, audit={"flights": TimeCounts(counted, counted)})
    [found] = completeness(source, [older], {}).values()
    assert (found.accepted, found.missing, found.unreadable_counts) == (0, 0, 1)


def test_every_topic_that_is_in_the_store_or_was_has_a_line() -> None:
    store, output = MemoryStore(), MemoryStore()
    ids = {"before": "0" * 32, "first": TOPIC_ID, "middle": "b" * 32, "last": "c" * 32}

    def make(name: str, records: int) -> None:
        TieredLog(store, topic_id=ids[name]).add(0, json_rows(records))

    make("before", 9)
    remove_topic(store, CLUSTER, "flights", ids["before"], 1)
    make("first", 20)
    TieredLog(store, topic="gone").add(0, json_rows(4))
    run_job(store, output)
    for topic in ("flights", "gone"):
        remove_topic(store, CLUSTER, topic, TOPIC_ID, 1)
    make("middle", 25)
    remove_topic(store, CLUSTER, "flights", ids["middle"], 1)
    make("last", 5)
    TieredLog(store, topic="new").add(0, json_rows(2))
    TieredLog(store, topic="unread").add(0, json_rows(6))
    remove_topic(store, CLUSTER, "unread", TOPIC_ID, 1)
    records = {"before": 9, "first": 20, "middle": 25, "last": 5}
    period = START_MS // 600_000
    counts = {CountedTopic("flights", ids[name]): {period: count} for name, count in records.items()}
    counts |= {CountedTopic(topic, TOPIC_ID): {period: count} for topic, count in (("gone", 4), ("unread", 6))}
    store.put(store_accepted_key(CLUSTER, period // 6, "ab"), encode_accepted(counts))

    def lines() -> dict[str, tuple[int, ...]]:
        found = job_completeness(store, output, "default", lambda _: True)
        return {
            topic: (one.accepted, one.ingested, one.missing, one.pending, one.not_of_job, one.is_deleted)
            for topic, one in found.items()
        }

    assert lines() == {
        "flights": (59, 20, 25, 5, 9, False),
        "gone": (4, 4, 0, 0, 0, True),
        "new": (0, 0, 0, 0, 0, False),
        "unread": (6, 0, 0, 0, 6, True),
    }
    run_job(store, output, on_lost="skip")
    assert lines()["flights"] == (59, 25, 25, 0, 9, False)


def test_too_many_periods_become_one_number() -> None:
    counts = add_counts(dict.fromkeys(range(PERIODS_MAX), 1), {-1: 2})
    assert counts == {ALL_TIMES: PERIODS_MAX + 2}
    assert add_counts(counts, {5: 1}) == {ALL_TIMES: PERIODS_MAX + 3}
