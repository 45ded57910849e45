"""A job registers in the store which records it still needs; a node's retention waits for them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from engine.format.paths import store_registrations_prefix
from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.manifest.job_registration import Registration, decode_registration
from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.shipping.job_holds import JobHolds, held_from
from engine.tiering.store.store import ObjectStore, StoreUnavailable, open_store
from spark_ingest.errors import IngestRefused, TooManyBadRecords
from spark_ingest.protocol.registration import unregister as remove_registrations
from tests.engine.conftest import HandClock
from tests.spark_ingest.jobs import Remembering, head_of, invoke, run_job
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID, TieredLog, json_rows, row

PREFIX = store_registrations_prefix(CLUSTER)


def registered(store: ObjectStore) -> dict[str, dict[int, int]]:
    """Return the registered positions by topic."""
    [key] = [one.key for one in store.list(PREFIX)]
    return {topic: dict(one.ends) for topic, one in decode_registration(store.get(key), key).topics.items()}


def held(store: ObjectStore, partition: int = 0, topic: str = "flights") -> int | None:
    return held_from(JobHolds(store, CLUSTER, HandClock()).of(topic, TOPIC_ID, partition), 0, 60_000)


def ingested() -> tuple[MemoryStore, MemoryStore, TieredLog]:
    """Return a store with 20 records, the output of a run, and the log."""
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    log.add(0, json_rows(20))
    run_job(source, output)
    return source, output, log


def test_a_job_holds_what_it_has_not_committed() -> None:
    source, output, log = ingested()
    assert registered(source) == {"flights": {0: 20}}
    log.add(0, json_rows(5, first=20))
    log.add(1, json_rows(7))
    TieredLog(source, topic="other").add(0, json_rows(3))
    assert (held(source, 0), held(source, 1), held(source, 0, "other")) == (20, 0, None)
    run_job(source, output)
    assert registered(source) == {"flights": {0: 25, 1: 7}, "other": {0: 3}}
    [info] = source.list(PREFIX)
    commits = decode_registration(source.get(info.key), info.key).figures.commits
    assert [(row.number, row.rows, row.files, row.small_files) for row in commits] == [(1, 20, 1, 1), (2, 15, 2, 2)]


@pytest.mark.parametrize("kill_at", range(1, 7))
@pytest.mark.parametrize("is_after", [False, True])
def test_whenever_a_run_is_killed_the_store_keeps_what_is_not_committed(kill_at: int, is_after: bool) -> None:
    source, output, log = ingested()
    log.add(0, json_rows(5, first=20))
    for store in (source, output):
        killing = KillingStore(store, kill_at, is_after=is_after)
        with suppress(Killed):
            run_job(*((killing, output) if store is source else (source, killing)))
        head = head_of(output)
        found = held(source)
        assert found is not None
        assert found <= head.positions["flights"].ends[0]
    run_job(source, output)
    assert held(source) == 25


def test_the_first_plan_holds_before_its_commit() -> None:
    source, output = MemoryStore(), MemoryStore()
    TieredLog(source).add(0, json_rows(20))
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 3, is_after=True))  # the plan; nothing is registered yet
    assert held(source) is None

    def executed(_: object) -> list[object]:
        raise Killed("while it executes")

    with pytest.raises(Killed):
        run_job(source, output, execute=executed)  # type: ignore[arg-type]
    assert held(source) == 0


def test_a_topic_that_fails_stays_held() -> None:
    source, output, log = ingested()
    log.add(0, [row(b"no JSON")])
    with pytest.raises(TooManyBadRecords):
        run_job(source, output)
    assert held(source) == 20


def test_jobs_of_one_name_with_two_outputs_hold_both() -> None:
    source = MemoryStore()
    log = TieredLog(source)
    log.add(0, json_rows(20))
    first, second = MemoryStore(), MemoryStore()
    second.url = "memory://second"
    run_job(source, first)
    log.add(0, json_rows(5, first=20))
    run_job(source, second)
    assert (len([*source.list(PREFIX)]), held(source)) == (2, 20)
    run_job(source, second)
    assert held(source) == 20
    run_job(source, first)
    assert held(source) == 25


def test_an_output_without_the_commits_of_a_registered_job_is_refused_until_the_job_is_unregistered() -> None:
    """The file system of the output may not be mounted: the job would ingest everything again below it."""
    source, _, _ = ingested()
    empty = MemoryStore()
    with pytest.raises(IngestRefused, match="has no commit of job 'default'") as raised:
        run_job(source, empty)
    assert "mount the output" in raised.value.hint
    assert not empty.objects
    assert remove_registrations(source, CLUSTER, "default", None)
    run_job(source, empty)
    assert registered(source) == {"flights": {0: 20}}


def test_a_job_that_takes_turns_with_two_patterns_holds_the_topics_of_both() -> None:
    source, output = MemoryStore(), MemoryStore()
    for topic in ("a", "b"):
        TieredLog(source, topic=topic).add(0, json_rows(3))
        run_job(source, output, topics=topic)
    assert registered(source) == {"a": {0: 3}, "b": {0: 3}}


def test_a_start_at_the_end_holds_from_there() -> None:
    source, output = MemoryStore(), MemoryStore()
    TieredLog(source).add(0, json_rows(20))
    run_job(source, output, start="latest")
    assert held(source) == 20


def test_a_recreated_topic_replaces_the_registration_of_the_old_one() -> None:
    source, output = MemoryStore(), MemoryStore()
    TieredLog(source).add(0, json_rows(20))
    run_job(source, output)
    remove_topic(source, CLUSTER, "flights", TOPIC_ID, 1)
    TieredLog(source, topic_id="b" * 32).add(0, json_rows(5))
    run_job(source, output)
    assert registered(source) == {"flights": {0: 5}}


class ReadOnly(StoreProxy):
    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        raise StoreUnavailable("AccessDenied")


def test_a_store_that_cannot_be_written_is_reported_and_ingested_all_the_same() -> None:
    source, output = MemoryStore(), MemoryStore()
    TieredLog(source).add(0, json_rows(20))
    ran = run_job(ReadOnly(source), output)
    assert (ran.rows, ran.unregistered) == (20, ["AccessDenied"])


@pytest.mark.parametrize("data", [b'{"format":2}', b"damaged"])
def test_a_registration_that_is_not_understood_is_not_overwritten(data: bytes) -> None:
    source, output, log = ingested()
    [key] = [one.key for one in source.list(PREFIX)]
    source.put(key, data)
    log.add(0, json_rows(5, first=20))
    listener = Remembering()
    assert run_job(source, output, listener=listener).rows == 5
    assert key in listener.unregistered[0]
    assert source.get(key) == data


def test_a_history_of_an_older_release_keeps_its_registration() -> None:
    source, output, log = ingested()
    before = registered_of(source)
    for one in list(output.list("_ingest/default/commits/")):
        document = json.loads(output.get(one.key))
        del document["first_nonce"]
        output.put(one.key, json.dumps(document).encode())
    log.add(0, json_rows(5, first=20))
    run_job(source, output)
    assert registered_of(source).job_id == before.job_id
    head = head_of(output)
    assert head.first_nonce


def registered_of(store: ObjectStore) -> Registration:
    [key] = [one.key for one in store.list(PREFIX)]
    return decode_registration(store.get(key), key)


def test_registrations_are_listed_and_removed(tmp_path: Path) -> None:
    source = open_store((tmp_path / "store").as_uri())
    TieredLog(source).add(0, json_rows(20))
    run_job(source, open_store((tmp_path / "lake").as_uri()))
    source.put(PREFIX + "README.txt", b"foreign")
    listed = invoke("jobs", "--store", source.url)
    assert listed.exit_code == 0
    assert "default" in listed.output
    assert "README.txt: not a registration; it holds nothing" in listed.output
    document = json.loads(invoke("jobs", "--store", source.url, "--json").stdout)
    [job] = document["jobs"]
    assert job["topics"] == {"flights": {"topic_id": TOPIC_ID, "ends": {"0": 20}}}
    assert [one["key"] for one in document["not_understood"]] == [PREFIX + "README.txt"]

    run_job(source, open_store((tmp_path / "other").as_uri()))
    both = invoke("unregister", "--store", source.url, "--job", "default")
    assert "use --id" in both.output
    done = invoke("unregister", "--store", source.url, "--job", "default", "--id", job["job_id"], "--json")
    assert json.loads(done.stdout)["unregistered"] == [job["job_id"]]
    assert invoke("unregister", "--store", source.url, "--job", "default").exit_code == 0
    missing = invoke("unregister", "--store", source.url, "--job", "default")
    assert "no job default is registered" in missing.output
    assert [one.key for one in source.list(PREFIX)] == [PREFIX + "README.txt"]
