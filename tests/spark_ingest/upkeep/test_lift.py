"""A compaction moves values of `_extra` into the columns that the table has by now, once, whatever kills it."""

from __future__ import annotations

import io
import json
import re
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.decode import value_costs
from spark_ingest.decode.json_columns import arrow_fields, extra_array, payload_arrays
from spark_ingest.decode.json_rows import JsonRows
from spark_ingest.output.rewrites import RewritePlan, Rewrites
from spark_ingest.types.json_types import Members, columns, evolve, infer, merge_all
from spark_ingest.upkeep.compact import Compaction, compact
from spark_ingest.upkeep.lift import lifted
from spark_ingest.upkeep.rewrite import Done
from spark_ingest.upkeep.unified_columns import unified
from tests.spark_ingest.jobs import THIRDS, assert_sound, invoke, listed_files, run_job, table_rows
from tests.spark_ingest.killing_store import DyingStore, Killed
from tests.spark_ingest.tiered import START_MS, TieredLog, row


def widened(output: ObjectStore, source: ObjectStore | None = None) -> None:
    """Make three runs: amt is bigint with two misfits in the second one, and decimal in the third."""
    log = TieredLog(source or MemoryStore())
    for texts in ('{"amt":1}',), ('{"amt":2}', '{"amt":2.5}', '{"amt":"x","other":7}'), ('{"amt":3.5,"other":8}',):
        log.add(0, [row(text.encode(), at) for at, text in enumerate(texts)])
        run_job(log.store, output, widens=texts[0] == '{"amt":3.5,"other":8}')


def compacted(output: ObjectStore, **wanted: Any) -> Done:
    nonces = count(1)
    return compact(output, "default", Compaction(re.compile(".*"), **wanted), 0, new_id=lambda: f"nonce-{next(nonces)}")


def values(output: ObjectStore) -> list[tuple[object, object, object]]:
    return [(one.get("amt"), one.get("other"), one["_extra"]) for one in table_rows(output)]


LIFTED = [
    (Decimal(1), None, None),
    (Decimal(2), None, None),
    (Decimal("2.5"), None, None),
    (None, 7, '{"amt":"x"}'),
    (Decimal("3.5"), 8, None),
]


@pytest.mark.parametrize("wanted", [{}, {"file_bytes": 1, "widens": True}])
def test_old_files_get_the_types_and_the_values_of_the_columns_of_now(wanted: dict[str, Any]) -> None:
    output = MemoryStore(START_MS)
    widened(output)
    assert [one[2] for one in values(output)] == [None, None, '{"amt":2.5}', '{"amt":"x"}', None]
    done = compacted(output, **wanted)
    assert (done.replaced, done.left, values(output)) == (2 if wanted else 3, {}, LIFTED)
    assert {str(pq.read_schema(io.BytesIO(output.get(key))).field("amt").type) for key in listed_files(output)} == {
        "decimal128(38, 18)"
    }
    assert Rewrites(output, "default").effect().lifted == {"flights": {"amt": 1}}
    assert compacted(output, **wanted).replaced == 0
    assert_sound(output)


@pytest.mark.parametrize("first", THIRDS)
def test_a_kill_before_any_operation_lifts_each_value_once(first: int) -> None:
    before = MemoryStore(START_MS)
    widened(before)
    for kill_at in count(first, 3):
        output = MemoryStore(START_MS)
        output.objects = dict(before.objects)
        try:
            compacted(DyingStore(output, kill_at, is_after=False), file_bytes=1, widens=True)
            break
        except Killed:
            compacted(output, file_bytes=1, widens=True)
        assert values(output) == LIFTED
        assert Rewrites(output, "default").effect().lifted == {"flights": {"amt": 1}}
        assert_sound(output)
    assert kill_at > 15


def test_misfits_of_status_fall(tmp_path: Path) -> None:
    source, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "o").as_uri())
    widened(output, source)
    status = ["status", "--store", source.url, "--output", output.url, "--json"]
    found = []
    for command in (None, ["compact", "--output", output.url, "--widen", "--file-bytes", "1024", "--json"]):
        if command:
            assert invoke(*command, catch_exceptions=False).exit_code == 0
        found.append(json.loads(invoke(*status).stdout)["misfits"])
    assert found == [{"flights": {"amt": 2}}, {"flights": {"amt": 1}}]


def test_a_plan_of_an_older_release_lifts_nothing() -> None:
    output = MemoryStore(START_MS)
    widened(output)
    with pytest.raises(Killed):
        compacted(StopsBeforeCommit(output))
    key = next(key for key in output.objects if "/rewrites/plans/" in key)
    plan = msgspec.json.decode(output.get(key), type=RewritePlan)
    assert plan.lifts
    output.objects[key] = msgspec.json.encode(msgspec.structs.replace(plan, lifts=False))
    output.objects = {key: data for key, data in output.objects.items() if "+1.0." not in key}
    compacted(output)
    assert [one[2] for one in values(output)] == [None, None, '{"amt":2.5}', '{"amt":"x"}', None]
    assert compacted(output, widens=True).replaced == 1
    assert values(output) == LIFTED


class StopsBeforeCommit(DyingStore):
    """The client dies at the PUT of the commit of a rewrite."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, 0, is_after=False)

    def relay(self, method: str, key: str, do: Any) -> Any:
        if method == "put" and "/rewrites/commits/" in key:
            raise Killed(key)
        return do()


def table_of(members: Members, texts: list[bytes]) -> pa.Table:
    rows = JsonRows(members).decode(texts)
    arrays = [*payload_arrays(members, rows.structs), extra_array(rows)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*arrow_fields(members), pa.field("_extra", pa.string())]))


OBJECT = st.dictionaries(
    st.sampled_from("abc"),
    st.one_of(st.integers(-5, 5), st.text(max_size=2), st.dictionaries(st.sampled_from("xy"), st.integers(0, 3))),
)


@given(st.lists(OBJECT, min_size=1, max_size=6), st.integers(0, 6), st.sampled_from([value_costs.RUN_BYTES, 1]))
@settings(deadline=None, max_examples=60)
def test_lifted_rows_are_those_that_a_run_with_the_later_columns_makes(
    objects: list[dict[str, Any]], sampled: int, run_bytes: int
) -> None:
    first = merge_all(map(infer, objects[:sampled]))
    earlier = evolve([], first[1] if first != "null" else [])
    later = evolve(earlier, merge_all(map(infer, objects))[1])
    texts = [json.dumps(one).encode() for one in objects]
    wanted = table_of(later, texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_costs, "RUN_BYTES", run_bytes)
        found, counts = lifted(unified(table_of(earlier, texts), wanted.schema), later)
    assert found.to_pylist() == wanted.to_pylist()
    assert set(counts) <= {name for name, _ in columns(later)}


def test_a_row_with_a_value_in_both_places_stays() -> None:
    members: Members = [["a", "bigint"], ["b", "string"]]
    rows = pa.table({"a": [1, None], "b": pa.array([None, None], pa.string()), "_extra": ['{"a":2,"b":"x"}'] * 2})
    found, counts = lifted(rows, members)
    assert found.to_pylist() == [
        {"a": 1, "b": None, "_extra": '{"a":2,"b":"x"}'},
        {"a": 2, "b": "x", "_extra": None},
    ]
    assert counts == {"a": 1, "b": 1}
