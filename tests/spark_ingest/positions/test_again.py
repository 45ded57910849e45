"""`ingest backfill` and `replay`: the table has each record once, also after a kill at any PUT."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore
from spark_ingest.choices import TopicChoice
from spark_ingest.errors import IngestRefused
from spark_ingest.output.rewrites import Rewrites
from spark_ingest.plan import BACKFILL, REPLAY, Recipe
from spark_ingest.positions.again import Bounds, ingest_again
from spark_ingest.positions.replayed import drop_replayed
from spark_ingest.protocol.failures import Limits
from spark_ingest.protocol.planner import Selection
from spark_ingest.protocol.runner import Components
from spark_ingest.protocol.task import run_task
from spark_ingest.protocol.verify import verify
from spark_ingest.protocol.verify_deep import verify_deep
from spark_ingest.tables.settings import DELTA, NAME_RULES
from tests.spark_ingest.jobs import NOW_MS, Remembering, Stores, head_of, invoke, run_job, table_rows
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row


def call(command: str, stores: Stores, *more: str) -> dict[str, Any]:
    given = [command, "--store", stores[0].url, "--output", stores[1].url, "--topics", "flights", "--json", *more]
    done = invoke(*given)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def offsets(output: ObjectStore) -> list[tuple[int, int]]:
    return [(one["_partition"], one["_offset"]) for one in table_rows(output)]


def problems(output: ObjectStore) -> list[str]:
    findings, commits = verify(output, "default")
    return [*findings.problems, *verify_deep(output, commits, effect=Rewrites(output, "default").effect())]


def test_a_backfill_ingests_what_no_commit_has(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(30))
    run_job(source, output, start="latest")
    log.add(0, json_rows(10, first=30))
    given = ["--store", source.url, "--output", output.url]
    assert invoke("offsets", "set", *given, "--to", "35", "--execute").exit_code == 0
    run_job(source, output)
    assert offsets(output) == [(0, at) for at in range(35, 40)]
    wanted = call("backfill", stores, "--from", "10")
    assert wanted["ranges"] == [{"topic": "flights", "partition": 0, "start": 10, "end": 35}]
    assert len(offsets(output)) == 5
    call("backfill", stores, "--from", "10", "--to-time", str(START_MS + 20_000), "--execute")
    assert offsets(output) == [(0, at) for at in (*range(10, 20), *range(35, 40))]
    call("backfill", stores, "--execute")
    assert offsets(output) == [(0, at) for at in range(40)]
    assert call("backfill", stores, "--execute")["ranges"] == []
    assert problems(output) == []
    status = json.loads(invoke("status", *given, "--json").stdout)
    assert (status["skipped_records"], status["skipped"], status["lag_records"]) == (0, [], 0)


def test_a_replay_replaces_rows_and_dead_letters(stores: Stores, tmp_path: Path) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, [row(b'{"id":%d,"at":"2013-11-21T09:00:00Z"}' % at, at) for at in range(20)] + [row(b"7,x", 20)])
    log.add(1, json_rows(5))
    run_job(source, output, bad_percent_max=100)
    config = tmp_path / "job.toml"
    config.write_text(
        '[job]\nstore = "s"\noutput = "o"\ntopics = ".*"\n'
        '[topics.flights]\nevent_time = "at"\ndead_letter_max_percent = 100\n'
    )
    bounds = ["--partition", "0", "--from", "5", "--config", str(config)]
    assert call("replay", stores, *bounds)["ranges"] == [{"topic": "flights", "partition": 0, "start": 5, "end": 21}]
    call("replay", stores, *bounds, "--execute")
    rows = table_rows(output)
    assert [(one["_partition"], one["_offset"]) for one in rows] == [
        *((0, at) for at in range(20)),
        *((1, at) for at in range(5)),
    ]
    assert [one["_offset"] for one in rows if one["_ingest_commit"] == 2] == list(range(5, 20))
    assert {one["_event_time"].hour for one in rows if one["_ingest_commit"] == 2} == {9}
    assert problems(output) == []
    assert len(list(output.list("dead_letters/flights/"))) == 1
    call("replay", stores, *bounds, "--execute")
    assert len(table_rows(output)) == 25
    assert problems(output) == []


def again(source: ObjectStore, output: ObjectStore, step: str, commit_bytes: int = 1 << 30, **bounds: Any) -> None:
    parts = Components(
        source,
        output,
        lambda orders: [run_task(order, source, output, clock=lambda: 0.0, puts_at_once=1) for order in orders],
        lambda: 2,
        Remembering(),
        new_id=iter(map(str, range(99))).__next__,
        now_ms=lambda: NOW_MS,
    )
    selection = Selection(
        re.compile(".*"), task_bytes=1 << 10, plan_bytes_max=commit_bytes, choices=lambda _: TopicChoice(Recipe())
    )
    ingest_again("default", step, selection, Bounds(**bounds), Limits(100, {}), parts)
    if step == REPLAY:
        drop_replayed(output, "default", new_id=lambda: "r")


@pytest.mark.parametrize("step", [BACKFILL, REPLAY])
def test_a_large_range_takes_several_commits(step: str) -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    log.add(0, json_rows(60))
    log.add(1, json_rows(60))
    run_job(source, output, start="latest" if step == BACKFILL else "earliest")
    again(source, output, step, commit_bytes=1 << 10)
    findings, _ = verify(output, "default")
    assert findings.commits > 4
    assert offsets(output) == [(partition, at) for partition in (0, 1) for at in range(60)]
    assert problems(output) == []


def test_a_backfill_that_is_killed_at_any_put_is_completed() -> None:
    for kill_at in range(1, 40):
        source, output = MemoryStore(), MemoryStore()
        TieredLog(source).add(0, json_rows(40))
        run_job(source, output, start="latest")
        killing = KillingStore(output, kill_at, is_after=True)
        with suppress(Killed):
            again(source, killing, BACKFILL)
        run_job(source, output)
        again(source, output, BACKFILL)
        assert (offsets(output), problems(output)) == ([(0, at) for at in range(40)], []), kill_at
        if killing.puts < kill_at:
            break
    assert kill_at > 3


@pytest.mark.parametrize("is_after", [False, True])
def test_a_replay_that_is_killed_at_any_put_is_completed(is_after: bool) -> None:
    for kill_at in range(1, 40):
        source, output = MemoryStore(), MemoryStore()
        TieredLog(source).add(0, json_rows(40))
        run_job(source, output)
        killing = KillingStore(output, kill_at, is_after=is_after)
        try:
            again(source, killing, REPLAY)
        except Killed:
            try:
                again(source, output, REPLAY)
            except IngestRefused:
                run_job(source, output)
                again(source, output, REPLAY)
            assert offsets(output) == [(0, at) for at in range(40)], kill_at
            assert problems(output) == [], kill_at
        if killing.puts < kill_at:
            break
    assert kill_at > 5


def test_an_incomplete_replay_is_a_problem_until_it_is_resumed(stores: Stores) -> None:
    source, output = stores
    TieredLog(source).add(0, json_rows(10))
    run_job(source, output)
    parts_only = [REPLAY]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.spark_ingest.positions.test_again.drop_replayed", lambda *_, **__: None)
        again(source, output, *parts_only)
    assert len(offsets(output)) == 20
    status = invoke("status", "--store", source.url, "--output", output.url).output
    assert "A replay is not complete" in status
    assert "the replay of commit 2 is not complete" in problems(output)[0]
    places = ["--store", source.url, "--output", output.url]
    assert invoke("replay", *places, "--topics", ".*", "--resume").exit_code == 0
    assert len(offsets(output)) == 10
    assert problems(output) == []
    again(source, output, BACKFILL)
    assert len(offsets(output)) == 10


@pytest.mark.parametrize("command", ["backfill", "replay"])
def test_members_that_the_tables_cannot_name_stay_in_extra(stores: Stores, tmp_path: Path, command: str) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, [row(b'{"a b":1}', at) for at in range(3)])
    run_job(source, output, start="latest" if command == "backfill" else "earliest", names=NAME_RULES[DELTA])
    if command == "backfill":
        log.add(0, [row(b'{"a":1}', 3)])
        run_job(source, output, names=NAME_RULES[DELTA])
    tables = tmp_path / "tables.toml"
    tables.write_text("[delta]\n")
    call(command, stores, "--tables", str(tables), "--execute")
    head = head_of(output)
    assert ["a b", "null"] in head.schemas["flights"].members
