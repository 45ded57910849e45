"""Verification reports nothing for sound output and finds every kind of fault. Also tests status."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import pyarrow.parquet as pq
import pytest

from engine.format.batch import encode
from engine.format.control_batch import encode_fence
from engine.testing.memory_store import MemoryStore
from spark_ingest.output import names
from spark_ingest.plan import encode as encode_plan
from spark_ingest.protocol.status import status
from spark_ingest.protocol.verify import verify
from spark_ingest.protocol.verify_deep import verify_deep
from tests.spark_ingest.jobs import assert_sound, listed_files, run_job
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row


@pytest.fixture
def log(source: MemoryStore) -> TieredLog:
    log = TieredLog(source)
    log.add(0, [*json_rows(50), row(b"bad", 50), *json_rows(9, first=51)])
    log.add(1, [row(b'{"id":%d}' % at, timestamp=START_MS + at * 600_000) for at in range(20)])
    return log


@pytest.fixture
def output(source: MemoryStore, log: TieredLog) -> MemoryStore:
    """Return two commits of several tasks, with a dead letter."""
    output = MemoryStore()
    run_job(source, output, bad_percent_max=5)
    log.add(0, json_rows(30, first=100))
    run_job(source, output)
    return output


def problems(output: MemoryStore, *, is_deep: bool = False) -> list[str]:
    findings, commits = verify(output, "default")
    return [*findings.problems, *(verify_deep(output, commits) if is_deep else ())]


def test_what_was_ingested_is_sound(output: MemoryStore) -> None:
    findings = assert_sound(output)
    assert (findings.commits, findings.rows, findings.dead_letters) == (2, 109, 1)
    assert findings.files == len(listed_files(output)) + 1


def test_offsets_of_control_batches_are_passed_and_counted_as_such() -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    fences = [encode_fence(token, START_MS) for token in ("a", "b", "")]
    batches = [fences[0], encode(json_rows(20)), fences[1], fences[2], encode(json_rows(5, first=20))]
    log.add_batches(0, batches, [START_MS], 25)
    run_job(source, output)
    findings, commits = verify(output, "default")
    assert (findings.rows, findings.dead_letters, findings.problems) == (25, 0, [])
    assert [result.absent for commit in commits for result in commit.results] == [3]
    assert list(verify_deep(output, commits)) == []


def remove(output: MemoryStore, key: str) -> str:
    output.delete(key)
    return "is missing"


def cut_off(output: MemoryStore, key: str) -> str:
    output.objects[key] = output.objects[key][:-1]
    return "bytes, "


def add_foreign(output: MemoryStore, key: str) -> str:
    output.objects[names.table_prefix("flights") + "part-0.parquet"] = b""
    return "belongs to no commit"


def add_copy(output: MemoryStore, key: str) -> str:
    output.objects[f"{key.rpartition('+')[0]}+7.parquet"] = output.objects[key]
    return "belongs to no commit"


@pytest.mark.parametrize("damage", [remove, cut_off, add_foreign, add_copy])
def test_a_wrong_listing_is_found(output: MemoryStore, damage: Callable[[MemoryStore, str], str]) -> None:
    wanted = damage(output, listed_files(output)[0])
    assert [one for one in problems(output) if wanted in one]


def test_a_missing_commit_is_found(output: MemoryStore) -> None:
    output.delete(names.commit_key("default", 1))
    assert "commits are missing" in problems(output)[0]


def change_commit(output: MemoryStore, change: Callable[[dict], object]) -> None:
    key = names.commit_key("default", 2)
    commit = msgspec.json.decode(output.get(key))
    change(commit)
    output.objects[key] = msgspec.json.encode(commit)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda commit: commit["results"][0]["ranges"][0].__setitem__(1, 62), "offsets 60 to 61 are missing"),
        (lambda commit: commit["results"][0]["ranges"][0].__setitem__(1, 55), "offsets 55 to 59 come twice"),
        (lambda commit: commit["positions"]["flights"]["ends"].__setitem__("0", 200), "position 200"),
        (lambda commit: commit["results"][0].__setitem__("rows", 1), "the 1 rows"),
        (lambda commit: commit.__setitem__("plan_nonce", "x"), "another plan"),
    ],
)
def test_a_commit_that_contradicts_itself_is_found(
    output: MemoryStore, change: Callable[[dict], object], problem: str
) -> None:
    change_commit(output, change)
    assert [one for one in problems(output) if problem in one]


def rewritten(output: MemoryStore, key: str, change: Callable[[list[dict]], list[dict]], *, is_committed: bool) -> None:
    """Change the rows of a file; with `is_told`, also commit the change."""
    import hashlib

    table = pq.read_table(io.BytesIO(output.get(key)))
    changed = io.BytesIO()
    pq.write_table(type(table).from_pylist(change(table.to_pylist()), schema=table.schema), changed)
    output.objects[key] = changed.getvalue()
    if not is_committed:
        return
    for number in (1, 2):
        commit_key = names.commit_key("default", number)
        commit = msgspec.json.decode(output.get(commit_key))
        for result in commit["results"]:
            for file in result["files"]:
                if file["key"] == key:
                    file["sha256"] = hashlib.sha256(changed.getvalue()).hexdigest()
                    file["size_bytes"] = len(changed.getvalue())
        output.objects[commit_key] = msgspec.json.encode(commit)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: [*rows[:-1], rows[0]], "comes twice"),
        (lambda rows: rows[:-1], " were committed"),
        (lambda rows: [{**rows[0], "_offset": 9999}, *rows[1:]], "offset 9999"),
        (lambda rows: [{**one, "_ingest_commit": 3} for one in rows], "rows of other commits"),
        (
            lambda rows: [{**one, "_event_time": one["_timestamp"].replace(hour=1)} for one in rows],
            "another directory",
        ),
    ],
)
def test_a_file_with_other_rows_is_found_by_reading_it(
    output: MemoryStore, change: Callable[[list[dict]], list[dict]], problem: str
) -> None:
    rewritten(output, listed_files(output)[0], change, is_committed=True)
    assert [one for one in problems(output, is_deep=True) if problem in one]


def test_a_file_with_another_digest_is_found_by_reading_it(output: MemoryStore) -> None:
    [key, *_] = listed_files(output)
    data = bytearray(output.objects[key])
    data[100] ^= 1
    output.objects[key] = bytes(data)
    assert problems(output) == []
    [problem] = problems(output, is_deep=True)
    assert key in problem
    assert "SHA-256" in problem


def test_files_of_a_plan_under_way_are_no_problem(source: MemoryStore, log: TieredLog) -> None:
    output = MemoryStore()
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 7, is_after=True), bad_percent_max=5)
    findings, _ = verify(output, "default")
    assert (findings.problems, findings.commits) == ([], 0)


def test_records_that_were_skipped_on_purpose_are_no_problem(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    log.add(0, json_rows(10, first=200))
    log.raise_log_start(0, 95)
    run_job(source, output, on_lost="skip")
    assert problems(output, is_deep=True) == []


def test_an_abandoned_plan_is_no_problem(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    from spark_ingest.protocol.runner import abandon

    log.add(0, json_rows(10, first=200))
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 4, is_after=True))
    assert abandon(output, "default", 0) is not None
    run_job(source, output)
    assert problems(output, is_deep=True) == []


def test_status_reports_positions_and_lag(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    log.add(1, [row(b'{"id":1}', at) for at in range(5)])
    found = status(source, output, "default", lambda topic: True, None)
    assert (found["head"], found["pending_plan"], found["lag_records"]) == (2, None, 5)
    assert [(one["partition"], one["committed_end"], one["tiered_end"]) for one in found["partitions"]] == [
        (0, 90, 90),
        (1, 20, 25),
    ]
    assert found["partitions"][1]["lag_ms"] == 4000


def test_status_of_a_job_that_never_ran(source: MemoryStore, log: TieredLog) -> None:
    found = status(source, MemoryStore(), "default", lambda topic: True, None)
    assert (found["head"], found["lag_records"]) == (None, 80)


def test_a_plan_of_a_later_format_is_refused(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    from spark_ingest.plan import UnreadablePlan
    from spark_ingest.protocol.history import History

    plan = History(output, "default").plan(1)
    assert plan is not None
    output.objects[names.plan_key("default", 3)] = encode_plan(plan).replace(b'"format":1', b'"format":2')
    with pytest.raises(UnreadablePlan, match="format 2"):
        run_job(source, output)
