"""Records that are deleted before they are ingested: run, status and verify count and name them, and exit with a
code.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result

from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.deleted_topic import deleted_ends
from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.store.store import ObjectStore
from penstock.cli.failures import ExitCode
from spark_ingest.errors import IngestRefused, LostRecords
from spark_ingest.output.names import commit_key
from spark_ingest.protocol.history import History
from tests.spark_ingest.jobs import Remembering, Stores, head_of, invoke, run_job, table_rows
from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID, TieredLog, json_rows


def run(command: str, *stores: ObjectStore, more: tuple[str, ...] = ()) -> tuple[Result, dict[str, Any]]:
    names = ("--output", "--store")
    given = [part for name, store in zip(names, stores, strict=False) for part in (name, store.url)]
    result = invoke(command, *given, "--json", *more)
    return result, json.loads(result.stdout)


def delete(source: ObjectStore, topic: str = "flights", topic_id: str = TOPIC_ID) -> None:
    remove_topic(source, CLUSTER, topic, topic_id, 2)


def forget_ended(output: ObjectStore) -> None:
    """Make the newest commit one of a release that did not keep ids of deleted topics."""
    head = head_of(output)
    document = json.loads(output.get(commit_key("default", head.number)))
    del document["ended"], document["knows_ended"]
    output.put(commit_key("default", head.number), json.dumps(document).encode())


def test_a_deleted_topic_with_records_that_were_not_ingested_stops_the_job(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    TieredLog(source, topic="other").add(0, json_rows(3))
    run_job(source, output)
    log.add(0, json_rows(5, first=20))
    log.add(1, json_rows(7))
    delete(source)
    assert not any(one.key.startswith(f"{CLUSTER}/flights/") for one in source.list(""))

    message = r"12 records or more .* partition 0: 5 records, offsets 20 to 24 .* partition 1: 7"
    with pytest.raises(LostRecords, match=message):
        run_job(source, output)
    for command, given in (("status", (output, source)), ("verify", (output, source))):
        result, document = run(command, *given)
        assert result.exit_code == ExitCode.LOST
        assert document["lost_records"] == 12
        assert [(one["topic"], one["partition"], one["records"]) for one in document["lost"]] == [
            ("flights", 0, 5),
            ("flights", 1, 7),
        ]

    ran = run_job(source, output, on_lost="skip")
    assert [(one.partition, one.start, one.end) for one in ran.commits[0].lost] == [(0, 20, 25), (1, 0, 7)]
    assert run_job(source, output).commits == []
    result, document = run("status", output, source)
    assert (result.exit_code, document["lost"], document["skipped_records"]) == (0, [], 12)
    assert [(one["partition"], one["start"], one["records"]) for one in document["skipped"]] == [(0, 20, 5), (1, 0, 7)]
    message = invoke("status", "--output", output.url, "--store", source.url).output
    assert "skipped: flights partition 1: 7 records from offset 0 on" in message
    result, document = run("verify", output)
    assert (result.exit_code, document["lost_records"], document["problems"]) == (ExitCode.LOST, 12, [])
    assert len(table_rows(output)) == 20


@pytest.mark.parametrize("log_ends", [None, {0: (0, 20), 1: (0, 0)}])
def test_a_deleted_topic_that_was_ingested_whole_is_no_loss(
    stores: Stores, log_ends: dict[int, tuple[int, int]] | None
) -> None:
    source, output = stores
    TieredLog(source).add(0, json_rows(20))
    TieredLog(source, topic="other").add(0, json_rows(3))
    run_job(source, output)
    remove_topic(source, CLUSTER, "flights", TOPIC_ID, 2, log_ends)
    assert run_job(source, output).commits == []
    assert run("status", output, source)[0].exit_code == 0
    assert run("verify", output, source)[0].exit_code == 0


def test_a_topic_without_a_marker_is_not_taken_for_deleted_until_a_person_says_so(stores: Stores) -> None:
    source, output = stores
    TieredLog(source).add(0, json_rows(20))
    TieredLog(source, topic="other").add(0, json_rows(3))
    run_job(source, output)
    for one in list(source.list(f"{CLUSTER}/flights/")):
        source.delete(one.key)
    TieredLog(source, topic="other", ends={0: 3}).add(0, json_rows(2, first=3))
    failed = Remembering()
    with pytest.raises(IngestRefused, match=r"no marker of a deletion.* offsets drop"):
        run_job(source, output, on_lost="skip", listener=failed)
    assert [one.rows for one in failed.commits] == [2], "the other topic is not held back"
    result, document = run("status", output, source)
    assert (result.exit_code, document["lost"], list(document["failed"])) == (ExitCode.FAILED, [], ["flights"])
    given = ("offsets", "drop", "--output", output.url, "--store", source.url, "--topics", "flights|other")
    assert "--execute drops: flights" in invoke(*given).output
    assert "Dropped: flights" in invoke(*given, "--execute").output
    assert run_job(source, output).commits == []
    head = head_of(output)
    assert [(one.start, one.records) for one in head.lost] == [(20, None)]
    TieredLog(source, ends={0: 20}).add(0, json_rows(4, first=20))
    assert run_job(source, output).rows == 4, "it goes on where it was"


def test_what_retention_took_is_in_status_and_verify(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    run_job(source, output)
    log.add(0, json_rows(20, first=20))
    log.raise_log_start(0, 33)
    result, document = run("status", output, source)
    assert (result.exit_code, document["lost_records"]) == (ExitCode.LOST, 13)
    assert document["lost"][0]["reason"] == "retention"
    assert run_job(source, output, on_lost="skip").rows == 7
    result, document = run("verify", output, source)
    assert (result.exit_code, document["lost_records"], document["problems"]) == (ExitCode.LOST, 13, [])
    assert "what was ingested is sound" in invoke("verify", "--output", output.url).output


def test_status_names_the_losses_of_all_commits_and_reads_few(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = stores
    log = TieredLog(source)
    lost_at = (20, 90)  # of 16 runs with 10 records each
    for first in range(0, 160, 10):
        log.add(0, json_rows(10, first=first))
        if first in lost_at:
            log.raise_log_start(0, first + 3)
        run_job(source, output, on_lost="skip")
    read: list[int] = []
    real = History.commit
    monkeypatch.setattr(History, "commit", lambda self, number: read.append(number) or real(self, number))
    _, document = run("status", output, source)
    assert [(one["start"], one["end"]) for one in document["skipped"]] == [(20, 23), (90, 93)]
    assert document["skipped_records"] == 6
    assert len(read) < 12, "of 16 commits"


def test_the_marker_of_a_deleted_topic_is_written_once(stores: Stores) -> None:
    source, _ = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    delete(source)
    delete(source)
    assert deleted_ends(source, CLUSTER, "flights", TOPIC_ID) == {0: (0, 20)}
    assert deleted_ends(source, CLUSTER, "flights", "b" * 32) is None


def test_topics_that_match_nothing_are_refused_unless_allowed() -> None:
    source = MemoryStore()
    TieredLog(source).add(0, json_rows(3))
    with pytest.raises(IngestRefused, match="no topic in memory:// matches 'flihgts'"):
        run_job(source, MemoryStore(), topics="flihgts")
    assert run_job(source, MemoryStore(), topics="flihgts", allow_no_topics=True).commits == []


def test_what_had_not_reached_the_store_when_its_topic_was_deleted_is_counted(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    TieredLog(source, topic="other").add(0, json_rows(3))
    run_job(source, output)
    remove_topic(source, CLUSTER, "flights", TOPIC_ID, 2, {0: (0, 27), 1: (4, 6)})
    with pytest.raises(LostRecords, match=r"9 records .* partition 0: 7 records.*not in the store yet when topic"):
        run_job(source, output)
    result, document = run("status", output, source)
    assert (result.exit_code, document["lost_records"]) == (ExitCode.LOST, 9)
    assert {one["reason"] for one in document["lost"]} == {"not_tiered"}
    ran = run_job(source, output, on_lost="skip")
    assert [(one.partition, one.start, one.end) for one in ran.commits[0].lost] == [(0, 20, 27), (1, 4, 6)]
    result, document = run("verify", output)
    assert (document["lost_records"], document["problems"]) == (9, [])
    text = invoke("verify", "--output", output.url).output
    assert "partition 1: 2 records from offset 4 on (not in the store yet when topic" in text


def test_what_retention_removed_before_it_was_tiered_is_counted(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    run_job(source, output)
    log.lose(0, 12)  # the store was away for longer than retention_ms
    log.add(0, json_rows(5, first=32))
    with pytest.raises(LostRecords, match="12 records"):
        run_job(source, output)
    assert run_job(source, output, on_lost="skip").rows == 5
    result, document = run("verify", output, source)
    assert (result.exit_code, document["lost_records"], document["problems"]) == (ExitCode.LOST, 12, [])


def test_what_was_gone_before_the_job_began_is_named(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    for partition in (0, 1):
        log.add(partition, json_rows(20))
    log.raise_log_start(0, 8)
    run_job(source, output)
    _, document = run("status", output, source)
    assert document["unseen_records"] == {"flights": 8}
    text = invoke("status", "--output", output.url, "--store", source.url).output
    assert "flights: 8 offsets were gone before this job first read their partition" in text
    other = TieredLog(source, topic="other")
    other.add(0, json_rows(20))
    other.raise_log_start(0, 20)  # nothing is left in this partition
    log.add(0, json_rows(20, first=20))
    run_job(source, output)
    result, document = run("verify", output)
    assert (result.exit_code, document["unseen_records"], document["lost"], document["problems"]) == (0, 28, [], [])
    assert [(one["topic"], one["start"], one["end"]) for one in document["unseen"]] == [
        ("flights", 0, 8),
        ("other", 0, 20),
    ]
    assert run("status", output, source)[1]["unseen_records"] == {"flights": 8, "other": 20}
    assert run_job(source, output).commits == []


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_partition_that_came_after_the_first_run_is_read_from_its_first_offset(stores: Stores, start: str) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    run_job(source, output, start=start)
    log.add(1, json_rows(10))
    log.add(1, json_rows(11, first=10))
    log.raise_log_start(1, 10)  # retention, before the job has read it
    with pytest.raises(LostRecords, match=r"flights partition 1: 10 records, offsets 0 to 9 .removed by retention"):
        run_job(source, output, start=start)
    result, document = run("status", output, source)
    assert (result.exit_code, document["lost_records"]) == (ExitCode.LOST, 10)
    ran = run_job(source, output, start=start, on_lost="skip")
    assert (ran.rows, ran.commits[0].lost_records) == (11, 10)
    result, document = run("verify", output, source)
    assert (result.exit_code, document["lost_records"], document["problems"]) == (ExitCode.LOST, 10, [])


def test_a_topic_that_came_and_went_between_two_runs_is_lost_with_its_count(stores: Stores) -> None:
    source, output = stores
    TieredLog(source, topic_id="0" * 32).add(0, json_rows(9))
    delete(source, topic_id="0" * 32)  # before the job began: no loss of the job
    TieredLog(source).add(0, json_rows(20))
    run_job(source, output)
    delete(source)
    TieredLog(source, topic_id="b" * 32).add(0, json_rows(25))
    delete(source, topic_id="b" * 32)
    last = TieredLog(source, topic_id="c" * 32)
    last.add(0, json_rows(5))
    with pytest.raises(LostRecords, match=r"25 records or more .*topic b{32} was deleted"):
        run_job(source, output)
    assert run("verify", output, source)[1]["lost_records"] == 25
    ran = run_job(source, output, on_lost="skip")
    assert (ran.rows, [(one.topic_id, one.records) for one in ran.commits[0].lost]) == (5, [("b" * 32, 25)])
    delete(source, topic_id="c" * 32)
    TieredLog(source, topic_id="d" * 32).add(1, json_rows(3))
    delete(source, topic_id="d" * 32)
    with pytest.raises(LostRecords, match=r"3 records or more .*topic d{32} was deleted"):
        run_job(source, output)
    assert run_job(source, output, on_lost="skip").rows == 0
    assert run_job(source, output).commits == []
    result, document = run("verify", output, source)
    assert (result.exit_code, document["lost_records"], document["problems"]) == (ExitCode.LOST, 28, [])


def test_a_job_of_an_earlier_release_takes_old_markers_for_settled(stores: Stores) -> None:
    source, output = stores
    TieredLog(source, topic_id="0" * 32).add(0, json_rows(9))
    delete(source, topic_id="0" * 32)
    log = TieredLog(source)
    log.add(0, json_rows(20))
    run_job(source, output)
    forget_ended(output)
    assert run("status", output, source)[0].exit_code == 0
    log.add(0, json_rows(1, first=20))
    assert run_job(source, output).rows == 1
    delete(source)
    assert run_job(source, output).commits == []


def test_a_start_at_the_end_misses_nothing(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    log.raise_log_start(0, 8)
    run_job(source, output, start="latest")
    assert run("status", output, source)[1]["unseen_records"] == {}
