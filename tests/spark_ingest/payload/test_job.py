"""Jobs with decoders and transformers: rows, dead letters with the raw value, and counts that verify agrees with."""

from __future__ import annotations

import msgspec

from engine.testing.memory_store import MemoryStore
from spark_ingest.plan import DEAD_LETTER, Recipe
from spark_ingest.protocol.verify import verify
from spark_ingest.protocol.verify_deep import verify_deep
from tests.spark_ingest.jobs import dead_letters, run_job, table_rows
from tests.spark_ingest.tiered import TieredLog, row

FILTER = {"do": "filter", "member": "kind", "values": ["test"], "keep": False}


def test_a_job_decodes_filters_and_sets_aside() -> None:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    values = [
        {"id": 1, "at": "2026-01-02T03:00:00Z", "kind": "x"},
        {"id": 2, "at": "2026-01-02T03:00:00Z", "kind": "test"},
        {"id": 3, "at": "never", "kind": "x"},
        {"id": "4", "at": "2026-01-02T04:00:00Z", "kind": "x"},
    ]
    packed = [msgspec.msgpack.encode(one) for one in values]
    log.add(0, [row(one, at) for at, one in enumerate([*packed, b"\xff\xff", None])])
    recipe = Recipe("msgpack", "at", DEAD_LETTER, transforms=(FILTER, {"do": "drop", "members": ["kind"]}))
    ran = run_job(log.store, output, recipe=recipe, bad_percent_max=100, misfit_max_percent=100)
    rows = table_rows(output)
    assert [(one["_offset"], one.get("id"), one["_extra"]) for one in rows] == [(0, 1, None), (3, None, '{"id":"4"}')]
    assert "kind" not in rows[0]
    assert [(one["_offset"], one["_reason"], one["_value"]) for one in dead_letters(output)] == [
        (2, "no_event_time", packed[2]),
        (4, "not_msgpack", b"\xff\xff"),
        (5, "no_event_time", None),
    ]
    [commit] = ran.commits
    assert [(one.rows, one.bad, one.absent, one.filtered) for one in commit.results] == [(2, 3, 1, 1)]
    findings, commits = verify(output, "default")
    assert (findings.problems, list(verify_deep(output, commits))) == ([], [])


def test_topics_of_a_plan_have_recipes_of_their_own_and_a_resumed_plan_keeps_them() -> None:
    from spark_ingest.choices import TopicChoice

    store, output = MemoryStore(), MemoryStore()
    for topic in ("a", "b"):
        TieredLog(store, topic).add(0, [row(b"1,x", 1)])
    csv = Recipe("csv", decoder={"names": ["n", "s"], "types": {"n": "bigint"}})
    choices = {"a": TopicChoice(csv, {"n": "bigint"}), "b": TopicChoice(Recipe("raw"))}
    ran = run_job(store, output, choices=lambda topic: choices[topic])
    [(plan, _)] = ran.plans
    assert plan.recipes == {"a": csv, "b": Recipe("raw")}
    assert [(one["n"], one["s"]) for one in table_rows(output, "a")] == [(1, "x")]
    assert [one["_value"] for one in table_rows(output, "b")] == [b"1,x"]
