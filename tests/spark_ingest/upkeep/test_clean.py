"""`penstock ingest clean` keeps the history of a job small. Any step may be killed; verify and status lose nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.store.store import ObjectStore, StoreUnavailable, open_store
from spark_ingest.errors import HistoryDamaged, IngestRefused
from spark_ingest.output import names
from spark_ingest.plan import Recipe, TopicPosition, UnreadablePlan, encode
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.protocol.status import status
from spark_ingest.protocol.verify import verify
from spark_ingest.protocol.verify_deep import verify_deep
from spark_ingest.upkeep.clean import clean
from tests.spark_ingest.jobs import invoke, run_job
from tests.spark_ingest.killing_store import Killed
from tests.spark_ingest.tiered import TieredLog, json_rows, row

T = TypeVar("T")
RUNS, KEPT, WIDTH = 14, 3, 5  # runs, commits that stay, commits of an archive: two archives are due
QUICK: dict[str, Any] = {"keep_commits": KEPT, "keep_ms": 0, "archive_commits": WIDTH}


class Faulty(StoreProxy):
    """Ends the process, or fails, at the n-th change of an object, before or after it takes effect. Counts from 1."""

    def __init__(self, inner: ObjectStore, at: int, error: BaseException | None, *, is_after: bool = False) -> None:
        super().__init__(inner)
        self._at, self._error, self._is_after = at, error, is_after
        self.changes = 0

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        if method not in ("put", "delete"):
            return do()
        self.changes += 1
        fails = self.changes == self._at and self._error is not None
        if fails and not self._is_after:
            assert self._error
            raise self._error
        done = do()
        if fails:
            assert self._error
            raise self._error
        return done


def filled() -> tuple[MemoryStore, MemoryStore]:
    """Return a store and the output of runs that lost records, held a topic back, and abandoned nothing."""
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for at in range(RUNS):
        log.add(0, [*json_rows(3, first=10 * at), row(b"no JSON", 10 * at + 3)])
        if at in (4, 9):
            log.raise_log_start(0, 4 * at + 1)
        output.now_ms += 1000
        run_job(source, output, on_lost="skip", bad_percent_max=100)
    return source, output


def seen(source: ObjectStore, output: ObjectStore) -> Any:
    """Return what verify and status report, apart from the number of objects."""
    findings, commits = verify(output, "default")
    assert list(verify_deep(output, commits)) == []
    document = status(source, output, "default", lambda _: True, None)
    return findings, document


def history_objects(output: ObjectStore) -> dict[str, int]:
    kinds = ("plans", "commits", "archives")
    return {kind: len([*output.list(f"_ingest/default/{kind}/")]) for kind in kinds}


def test_a_clean_history_is_short_and_says_the_same() -> None:
    source, output = filled()
    before = seen(source, output)
    assert before[0].problems == []
    assert before[0].lost
    cleaned = clean(output, "default", **QUICK)
    assert (cleaned.archives, cleaned.removed, cleaned.left) == ([(1, 5), (6, 10)], 20, {})
    assert history_objects(output) == {"plans": 4, "commits": 4, "archives": 2}
    assert seen(source, output) == before
    assert clean(output, "default", **QUICK).archives == []
    log = TieredLog(source, ends={0: 4 * RUNS})
    log.add(0, json_rows(3, first=999))
    assert run_job(source, output).rows == 3
    assert verify(output, "default")[0].problems == []


def test_a_dry_run_changes_nothing() -> None:
    _, output = filled()
    before = dict(output.objects)
    cleaned = clean(output, "default", **QUICK, is_dry=True)
    assert (cleaned.archives, cleaned.removed) == ([(1, 5), (6, 10)], 20)
    assert output.objects == before


def test_young_commits_stay() -> None:
    _, output = filled()  # a second apart
    assert clean(output, "default", **{**QUICK, "keep_ms": 9_001}).archives == []
    assert clean(output, "default", **{**QUICK, "keep_ms": 9_000}).archives == [(1, 5)]
    assert clean(MemoryStore(), "default", **QUICK).archives == []


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("error", [Killed("here"), StoreUnavailable("503")])
def test_a_clean_that_ends_after_any_change_loses_nothing_and_is_finished_by_the_next(
    error: BaseException, is_after: bool
) -> None:
    source, output = filled()
    before, objects = seen(source, output), dict(output.objects)
    counting = Faulty(output, 0, None)
    clean(counting, "default", **QUICK)
    done = dict(output.objects)
    assert counting.changes == 22
    for at in range(1, counting.changes + 1):
        output.objects = dict(objects)
        with pytest.raises(type(error)):
            clean(Faulty(output, at, error, is_after=is_after), "default", **QUICK)
        findings, _ = verify(output, "default")
        assert findings == before[0], at
        clean(output, "default", **QUICK)
        assert output.objects == done, at
    assert seen(source, output) == before


def test_a_run_between_a_killed_clean_and_the_next_goes_on() -> None:
    source, output = filled()
    with pytest.raises(Killed):
        clean(Faulty(output, 7, Killed("here")), "default", **QUICK)
    TieredLog(source, ends={0: 4 * RUNS}).add(0, json_rows(3, first=999))
    assert run_job(source, output).rows == 3
    clean(output, "default", **QUICK)
    assert verify(output, "default")[0].problems == []


def test_what_is_not_understood_stays_and_is_named() -> None:
    _, output = filled()
    with pytest.raises(Killed):
        clean(Faulty(output, 3, Killed("here")), "default", **QUICK)
    foreign = {
        names.commit_key("default", 1): b'{"format":9}',
        names.commits_prefix("default") + "00000000000000000002.json.bak": b"a copy",
        names.plan_key("default", 3): output.objects[names.plan_key("default", 12)],
    }
    output.objects.update(foreign)
    cleaned = clean(output, "default", **QUICK)
    assert {key: output.objects[key] for key in foreign} == foreign
    assert list(cleaned.left.values()) == [
        "not the one that was archived",
        "_ingest/default/commits/00000000000000000001.json has format 9, this release reads 1",
        "not a plan or commit",
    ]


@pytest.mark.parametrize("kind", ["plans", "commits"])
def test_a_damaged_history_is_not_archived(kind: str) -> None:
    _, output = filled()
    key = f"_ingest/default/{kind}/{3:020}.json"
    whole = output.objects.pop(key)
    before = dict(output.objects)
    with pytest.raises(HistoryDamaged, match=r"commit 3 of job default: (its plan|it) is missing"):
        clean(output, "default", **QUICK)
    assert output.objects == before
    output.objects[key] = whole[:-1]
    with pytest.raises(UnreadablePlan):
        clean(output, "default", **QUICK)
    assert len(output.objects) == len(before) + 1


def test_a_lost_archive_file_is_a_problem_of_verify() -> None:
    _, output = filled()
    clean(output, "default", **QUICK)
    output.delete(names.archive_key("default", 1, 5))
    assert verify(output, "default")[0].problems[0].startswith("commits are missing")


def test_a_driver_that_slept_through_a_clean_stops() -> None:
    """It read commit 2 before it was suspended, and creates plan 3, which was cleaned away meanwhile."""
    source, output = filled()
    early = History(output, "default").commit(2)
    before = history_objects(output)

    class Asleep(StoreProxy):
        def list(self, prefix: str, start_after: str = "") -> Any:
            found = list(self.inner.list(prefix, start_after))
            is_head = prefix == names.commits_prefix("default") and not start_after
            return iter([one for one in found if one.key <= names.commit_key("default", 2)] if is_head else found)

    def sleeping(_: Any) -> Any:
        raise AssertionError("it executes nothing")

    kept = {key: data for key, data in output.objects.items() if key == names.commit_key("default", 2)}
    clean(output, "default", **QUICK)
    output.objects.update(kept)  # the driver knows it
    assert early
    with pytest.raises(IngestRefused, match="plan 3 of job default is older than its archives"):
        run_job(source, Asleep(output), on_lost="skip", execute=sleeping)
    clean(output, "default", **QUICK)
    left = history_objects(output)
    assert left["commits"] < before["commits"]
    assert verify(output, "default")[0].problems == []


def test_a_year_of_hourly_runs_stays_bounded() -> None:
    """In miniature: 2,000 runs with a clean every 24 of them."""
    output = MemoryStore()
    most = 0
    for number in range(1, 2001):
        output.now_ms += 3_600_000
        plan, commit = _plan_and_commit(number)
        output.put(names.plan_key("default", number), plan)
        output.put(names.commit_key("default", number), commit)
        if number % 24 == 0:
            clean(output, "default", keep_commits=20, keep_ms=50 * 3_600_000, archive_commits=250)
            most = max(most, len(output.objects))
    assert history_objects(output)["archives"] == 7
    assert most <= 2 * (250 + 50 + 24) + 7
    assert [one.number for one in History(output, "default").commits()] == list(range(1, 2001))


def _plan_and_commit(number: int) -> tuple[bytes, bytes]:
    from spark_ingest.plan import Plan

    positions = {"flights": TopicPosition("a" * 32, {0: number})}
    plan = Plan("default", number, f"n{number}", 0, "memory://", "c", Recipe(), positions, {}, ())
    commit = Commit("default", number, f"n{number}", 0, "c", positions, {}, {}, (), first_nonce="n1")
    return encode(plan), encode(commit)


def test_the_command_archives_and_says_what_it_would_do(tmp_path: Path) -> None:
    source, output = MemoryStore(), open_store((tmp_path / "lake").as_uri())
    TieredLog(source).add(0, json_rows(3))
    run_job(source, output)
    output.put("_ingest/default/plans/notes.txt", b"foreign")
    given = ["clean", "--output", output.url]
    done = invoke(*given, "--dry-run", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (
        0,
        {
            "job": "default",
            "is_dry_run": True,
            "archives": [],
            "objects_removed": 0,
            "left": {"_ingest/default/plans/notes.txt": "not a plan or commit"},
        },
    )
    text = invoke(*given)
    assert "0 commits archived, 0 objects removed." in text.output
    assert "left: _ingest/default/plans/notes.txt: not a plan or commit" in text.output
