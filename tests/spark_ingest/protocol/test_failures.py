"""A topic that fails is named and held back; the other topics are ingested."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.errors import Corrupt, EngineError
from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import StoreUnavailable, open_store
from spark_ingest.choices import TopicChoice
from spark_ingest.commands import run as run_module
from spark_ingest.commands.run import limits_of
from spark_ingest.errors import IngestRefused, TooManyBadRecords, TooManyMisfits, TopicsFailed
from spark_ingest.options import TopicPercent
from spark_ingest.plan import TaskSpec
from spark_ingest.protocol.failures import Limits, Outcome
from spark_ingest.protocol.history import History
from spark_ingest.protocol.status import status
from spark_ingest.protocol.task import run_task
from spark_ingest.protocol.verify import verify
from tests.spark_ingest.jobs import Remembering, assert_sound, dead_letters, invoke, listed_files, run_job, table_rows
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import TieredLog, json_rows, row


@pytest.fixture
def good(source: MemoryStore) -> TieredLog:
    log = TieredLog(source, topic="good")
    log.add(0, json_rows(30))
    return log


@pytest.fixture
def bad(source: MemoryStore) -> TieredLog:
    log = TieredLog(source, topic="bad")
    log.add(0, [*json_rows(20), row(b"not json", 20), row(b"{", 21)])
    return log


def offsets(output: MemoryStore, topic: str) -> list[int]:
    return [one["_offset"] for one in table_rows(output, topic)]


def test_a_topic_with_too_many_dead_letters_holds_back_itself_only(
    source: MemoryStore, output: MemoryStore, good: TieredLog, bad: TieredLog
) -> None:
    ran = Remembering()
    with pytest.raises(TooManyBadRecords, match="bad: 2 of 22 records are dead letters"):
        run_job(source, output, listener=ran)
    assert [*ran.failures] == ["bad"]
    assert (offsets(output, "good"), offsets(output, "bad")) == ([*range(30)], [])
    assert len(dead_letters(output, "bad")) == 2  # to look at, until the next run
    findings, _ = verify(output, "default")
    assert (findings.problems, findings.leftovers) == ([], 1)
    assert "2 of 22 records" in findings.held["bad"]
    assert "2 of 22 records" in status(source, output, "default", lambda _: True, None)["held"]["bad"]

    good.add(0, json_rows(5, first=30))
    with pytest.raises(TooManyBadRecords):
        run_job(source, output)
    assert (len(offsets(output, "good")), offsets(output, "bad")) == (35, [])

    ran = run_job(source, output, bad_percents_max={"bad": 10.0})
    assert (ran.rows, ran.commits[-1].held, ran.failures) == (20, {}, {})
    assert (offsets(output, "bad"), len(dead_letters(output, "bad"))) == ([*range(20)], 2)
    assert_sound(output)
    assert verify(output, "default")[0].leftovers == 0


def test_a_plan_whose_topics_all_failed_does_not_block_other_topics(
    source: MemoryStore, output: MemoryStore, bad: TieredLog
) -> None:
    for _ in range(2):
        with pytest.raises(TooManyBadRecords):
            run_job(source, output)
        assert History(output, "default").head() is None  # the plan waits for another limit
    TieredLog(source, topic="other").add(0, json_rows(7))
    with pytest.raises(TooManyBadRecords):
        run_job(source, output)
    assert len(offsets(output, "other")) == 7
    assert run_job(source, output, bad_percent_max=100).rows == 20
    assert_sound(output)


def test_a_damaged_segment_stops_its_topic_only(
    source: MemoryStore, output: MemoryStore, good: TieredLog, bad: TieredLog
) -> None:
    [key] = [key for key in source.objects if key.endswith(".log") and "/bad/" in key]
    whole, damaged = source.objects[key], bytearray(source.objects[key])
    damaged[-30] ^= 1
    source.objects[key] = bytes(damaged)
    with pytest.raises(Corrupt, match="fails its checksum"):
        run_job(source, output, bad_percent_max=100)
    assert len(offsets(output, "good")) == 30
    source.objects[key] = whole
    assert run_job(source, output, bad_percent_max=100).rows == 20
    assert_sound(output)


def test_lost_records_stop_their_topic_only_and_every_failed_topic_is_named(
    source: MemoryStore, output: MemoryStore, good: TieredLog, bad: TieredLog
) -> None:
    other = TieredLog(source, topic="other")
    other.add(0, json_rows(3))
    run_job(source, output, bad_percent_max=100)
    for log in (good, other):
        log.add(0, json_rows(30, first=100))
    good.raise_log_start(0, 40)
    bad.add(0, [row(b"[", 22)])
    with pytest.raises(TopicsFailed, match=r"2 topics were not ingested: .*1 of 1 records.*10 records or more"):
        run_job(source, output)
    assert (len(offsets(output, "good")), len(offsets(output, "other"))) == (30, 33)
    with pytest.raises(TooManyBadRecords):
        run_job(source, output, on_lost="skip")
    assert len(offsets(output, "good")) == 50
    assert_sound(output)


def test_a_table_of_another_job_or_a_damaged_manifest_stops_its_topic_only(
    source: MemoryStore, output: MemoryStore, good: TieredLog, bad: TieredLog
) -> None:
    run_job(source, output, topics="bad", name="other", bad_percent_max=100)
    with pytest.raises(IngestRefused, match=r"table bad .* belongs to job other"):
        run_job(source, output)
    assert len(offsets(output, "good")) == 30
    for key in [key for key in source.objects if "/bad/" in key and "manifest" in key]:
        source.objects[key] = b"{"
    good.add(0, json_rows(2, first=30))
    with pytest.raises(EngineError):
        run_job(source, output)
    assert len(offsets(output, "good")) == 32


def test_a_store_that_does_not_answer_fails_no_topic(
    source: MemoryStore, output: MemoryStore, good: TieredLog, bad: TieredLog
) -> None:
    def execute(specs: Sequence[TaskSpec]) -> list[Outcome]:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        run_job(source, output, bad_percent_max=100, execute=execute)
    assert History(output, "default").head() is None


@pytest.mark.parametrize("is_after", [False, True])
def test_a_kill_at_any_put_of_a_run_with_a_held_topic_neither_loses_nor_repeats_a_row(
    source: MemoryStore, good: TieredLog, bad: TieredLog, is_after: bool
) -> None:
    for at in range(1, 30):
        output = MemoryStore()
        output.url = f"memory://{at}"
        try:
            run_job(source, KillingStore(output, at, is_after=is_after))
        except Killed:
            pass
        except TooManyBadRecords:
            break
        run_job(source, output, bad_percent_max=100)
        assert (offsets(output, "good"), offsets(output, "bad")) == ([*range(30)], [*range(20)])
        assert_sound(output)
    else:
        raise AssertionError("a run without a kill was never reached")


def test_a_driver_that_finds_its_plan_committed_without_a_topic_removes_what_it_wrote_of_it(
    source: MemoryStore, output: MemoryStore, good: TieredLog, bad: TieredLog
) -> None:
    """It allows more dead letters than the driver that commits first."""

    def execute(specs: Sequence[TaskSpec]) -> list[Outcome]:
        with pytest.raises(TooManyBadRecords):
            run_job(source, output)
        return [run_task(spec, source, output) for spec in specs]

    ran = run_job(source, output, bad_percent_max=100, execute=execute)
    assert [commit.number for commit in ran.others] == [1]
    assert listed_files(output, "bad") == []
    assert run_job(source, output, bad_percent_max=100).rows == 20
    assert_sound(output)


def test_limits_are_for_all_topics_or_for_one() -> None:
    given = [TopicPercent()(text) for text in ("0.5", "bad=20", "bad=30")]
    assert limits_of(dict(given)) == Limits(0.5, {"bad": 30.0})
    assert limits_of({}) == Limits(0.1, {})


@pytest.mark.parametrize(
    ("bad_records", "percent", "is_held"),
    [(10, 0.1, False), (11, 0.1, True), (11, 60, False), (1, 0, True), (0, 0, False)],
)
def test_some_dead_letters_hold_no_topic_back_unless_none_are_allowed(
    source: MemoryStore, output: MemoryStore, bad_records: int, percent: float, is_held: bool
) -> None:
    TieredLog(source, topic="small").add(0, [*json_rows(10), *[row(b"{")] * bad_records])
    limits = Limits(0, {}, choices=lambda _: TopicChoice(dead_letter_max_percent=percent))
    if is_held:
        with pytest.raises(TooManyBadRecords):
            run_job(source, output, limits=limits)
        return
    ran = run_job(source, output, limits=limits)
    assert (ran.rows, len(dead_letters(output, "small"))) == (10, bad_records)


@pytest.mark.parametrize(("values", "percent", "is_held"), [(10, 10, False), (11, 10, True), (1, 0, True)])
def test_some_misfits_hold_no_topic_back_unless_none_are_allowed(
    source: MemoryStore, output: MemoryStore, values: int, percent: float, is_held: bool
) -> None:
    log = TieredLog(source, topic="small")
    log.add(0, [row(b'{"amt":1}')])
    run_job(source, output)
    log.add(0, [row(b'{"amt":1e400}')] * values)
    limits = Limits(0, {}, choices=lambda _: TopicChoice(misfit_max_percent=percent))
    if is_held:
        with pytest.raises(TooManyMisfits):
            run_job(source, output, limits=limits)
        return
    assert run_job(source, output, limits=limits).rows == values


def test_status_and_verify_print_held_topics(tmp_path: Path) -> None:
    source, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "output").as_uri())
    TieredLog(source, topic="good").add(0, json_rows(3))
    TieredLog(source, topic="bad").add(0, [row(b"{")])
    with pytest.raises(TooManyBadRecords):
        run_job(source, output)
    for given in (["status", "--store", source.url], ["verify"]):
        result = invoke(*given, "--output", output.url)
        assert "blocked: bad: 1 of 1 records" in result.output
        document = json.loads(invoke(*given, "--output", output.url, "--json").stdout)
        assert [*document["held"]] == ["bad"]


class LocalExecutor:
    """Runs the tasks of the command without Spark."""

    def __init__(self, master: str | None, source: str, output: str, progress: object) -> None:
        self._stores = open_store(source), open_store(output)

    def parallelism(self) -> int:
        return 1

    def execute(self, specs: Sequence[TaskSpec]) -> list[Outcome]:
        return [run_task(spec, *self._stores) for spec in specs]

    def close(self) -> None: ...


def test_the_command_prints_the_document_and_fails_whether_or_not_other_topics_were_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "SparkExecutor", lambda *parts: LocalExecutor(*parts[:4]))
    monkeypatch.setattr(run_module, "require_spark", lambda: None)
    source = open_store((tmp_path / "store").as_uri())
    TieredLog(source, topic="good").add(0, json_rows(3))
    TieredLog(source, topic="bad").add(0, [row(b"{")] * 11)
    arguments = ["--store", source.url, "--output", (tmp_path / "output").as_uri(), "--topics", ".*", "--json"]
    for rows in (3, 0):
        result = CliRunner().invoke(run_module.run_command, arguments)
        document = json.loads(result.stdout)
        assert (document["rows"], [*document["failed"]]) == (rows, ["bad"])
        assert isinstance(result.exception, TooManyBadRecords)
    result = CliRunner().invoke(run_module.run_command, [*arguments, "--dead-letter-max-percent", "bad=100"])
    assert (result.exit_code, json.loads(result.stdout)["dead_letters"]) == (0, 11)
