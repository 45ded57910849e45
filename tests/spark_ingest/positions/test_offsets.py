"""`ingest offsets`: what a move skips is counted and named, what it repeats is refused unless asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli.failures import ExitCode
from tests.spark_ingest.jobs import Stores, assert_sound, invoke, run_job, table_rows
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows


def call(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = invoke(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_positions_are_shown_found_by_time_and_moved(stores: Stores) -> None:
    source, output = stores
    log = TieredLog(source)
    log.add(0, json_rows(20))
    log.add(0, json_rows(20, first=20))
    log.add(1, json_rows(5))
    given = ("--store", source.url, "--output", output.url)
    assert "has no commit" in invoke("offsets", "get", "--output", output.url).output

    moved = call("offsets", "set", *given, "--to", "10", "--partition", "0")
    assert moved["changes"][0] | {"executed": moved["executed"]} == {
        "topic": "flights",
        "partition": 0,
        "before": None,
        "after": 10,
        "gone_records": 0,
        "passed_records": 10,
        "repeated_records": 0,
        "recovered_records": 0,
        "executed": False,
    }
    assert not [one for one in output.list("_ingest/") if "plans" in one.key]
    call("offsets", "set", *given, "--to", "10", "--partition", "0", "--execute")
    run_job(source, output)
    assert [row["_offset"] for row in table_rows(output) if row["_partition"] == 0] == list(range(10, 40))
    got = call("offsets", "get", "--output", output.url)
    assert got["topics"]["flights"]["ends"] == {"0": 40, "1": 5}
    status = call("status", *given)
    assert (status["skipped_records"], status["skipped"][0]["reason"]) == (10, "passed")
    verified = call("verify", "--output", output.url, code=ExitCode.LOST)
    assert (verified["lost_records"], verified["problems"]) == (10, [])

    at = call("offsets", "at-time", "--store", source.url, "--time", str(START_MS + 24_500))
    assert at["topics"]["flights"]["ends"] == {"0": 25, "1": 5}
    back = ["offsets", "set", *given, "--positions", "-", "--json"]
    done = invoke(*back, input=json.dumps(at))
    assert [one["repeated_records"] for one in json.loads(done.stdout)["changes"]] == [15]
    assert "the positions cannot be read" in invoke(*back, input='{"topics":1}').output


def test_a_repetition_is_refused_unless_asked_for_and_then_named(stores: Stores) -> None:
    source, output = stores
    TieredLog(source).add(0, json_rows(30))
    given = ("--store", source.url, "--output", output.url)
    call("offsets", "set", *given, "--to", "10", "--execute")
    run_job(source, output)
    back = ("offsets", "set", *given, "--to", "5", "--execute")
    refused = invoke(*back)
    assert "flights partition 0: 20 from offset 10 on" in refused.output
    call(*back, "--repeat")
    assert call("status", *given)["skipped_records"] == 5
    run_job(source, output)
    assert len(table_rows(output)) == 20 + 25
    verified = call("verify", "--deep", "--output", output.url, code=ExitCode.LOST)
    assert (verified["problems"], verified["lost_records"], verified["repeated_records"]) == ([], 5, 20)
    text = invoke("verify", "--output", output.url).output
    assert "repeated: flights partition 0: 20 records from offset 10 on" in text


def test_a_position_that_the_store_does_not_have_is_refused(stores: Stores) -> None:
    source, output = stores
    TieredLog(source).add(0, json_rows(30))
    given = ["offsets", "set", "--store", source.url, "--output", output.url]
    for more, text in (
        (["--to", "31"], "31 is outside"),
        (["--to", "soon"], "not earliest, latest or an offset"),
        ([], "name one of"),
        (["--to", "1", "--partition", "7"], "is chosen"),
        (["--positions", "/nowhere"], "cannot be read"),
    ):
        done = invoke(*given, *more)
        assert text in f"{done.exception}{done.output}", more


def test_a_killed_move_is_finished_by_the_next_run(stores: Stores) -> None:
    import re

    from spark_ingest.plan import TopicPosition
    from spark_ingest.positions.steps import components_of, set_positions
    from spark_ingest.protocol.planner import Selection
    from spark_ingest.source.discovery import discover
    from tests.spark_ingest.jobs import NOW_MS, Remembering
    from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID

    source, output = stores
    TieredLog(source).add(0, json_rows(30))
    with pytest.raises(Killed):
        set_positions(
            "default",
            Selection(re.compile(".*"), cluster=CLUSTER),
            discover(source, CLUSTER, lambda _: True),
            {"flights": TopicPosition(TOPIC_ID, {0: 12})},
            components_of(source, KillingStore(output, 1, is_after=True), Remembering(), lambda: "n", lambda: NOW_MS),
            may_repeat=False,
        )
    assert "plan 1" in str(invoke("status", "--output", output.url, "--store", source.url).output.lower())
    run_job(source, output)
    assert [row["_offset"] for row in table_rows(output)] == list(range(12, 30))
    assert_sound(output)
