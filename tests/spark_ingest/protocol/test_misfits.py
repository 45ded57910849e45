"""Values of another type than their column are counted, and above a limit the topic is not committed."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.decode.declared_columns import read_declared
from spark_ingest.decode.json_columns import payload_arrays
from spark_ingest.decode.json_rows import JsonRows
from spark_ingest.errors import IngestRefused, TooManyMisfits
from spark_ingest.output import names
from spark_ingest.plan import Plan, Recipe, decode, encode
from spark_ingest.protocol.history import History
from spark_ingest.protocol.sample import READ_RECORDS_MAX, schema_of
from spark_ingest.protocol.verify import verify
from spark_ingest.report import Report, print_summary, topic_totals
from spark_ingest.types.numbers import decimal_of
from tests.spark_ingest.jobs import Remembering, head_of, invoke, listed_files, run_job, table_rows
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import TieredLog, row


def log_of(*texts: str, store: ObjectStore | None = None) -> TieredLog:
    log = TieredLog(store or MemoryStore())
    add(log, *texts)
    return log


def add(log: TieredLog, *texts: str) -> None:
    log.add(0, [row(b'{"amt":%s}' % text.encode(), at) for at, text in enumerate(texts)])


def amounts(output: ObjectStore) -> list[object]:
    return [one["amt"] for one in table_rows(output)]


def types(output: MemoryStore) -> list[str]:
    return [str(pq.read_schema(io.BytesIO(output.get(key))).field("amt").type) for key in listed_files(output)]


BIG = "1152921504606846977"  # no double holds it


def test_ids_beyond_a_double_are_never_rounded_beside_fractions() -> None:
    """1 in the first sample, where one value is odd or half of them are; 2 in a later commit."""
    for texts, kind in (([BIG] * 1000 + ["1.5"], "int64"), ([BIG, "1.5"], "decimal128(38, 18)")):
        log, output = log_of(*texts), MemoryStore()
        run_job(log.store, output)
        assert set(types(output)) == {kind}
        add(log, *(str(int(BIG) + at) for at in range(1, 20)), "2.5")
        ran = run_job(log.store, output)
        found = [one["amt"] for one in table_rows(output)][len(texts) :]
        assert [str(one).partition(".")[0] for one in found[:19]] == [str(int(BIG) + at) for at in range(1, 20)]
        assert (table_rows(output)[-1]["_extra"] is None) == (kind != "int64")
        assert ran.commits[0].misfits == ({"flights": {"amt": 2}} if kind == "int64" else {})


def test_numbers_that_a_double_column_does_not_hold_are_misfits_at_any_depth() -> None:
    log, output = log_of('{"d":0.5,"a":[0.5]}', '{"d":1.5,"a":[]}'), MemoryStore()
    run_job(log.store, output)
    inexact = [f'{{"d":{BIG}}}', f'{{"a":[1,{BIG}]}}', '{"d":12345678901234567890.1234567890}']
    add(log, '{"d":9007199254740992}', *inexact)
    ran = run_job(log.store, output)
    rows = table_rows(output)[2:]
    assert [one["_extra"] for one in rows] == [None, *(f'{{"amt":{text}}}' for text in inexact)]
    assert rows[0]["amt"] == {"d": 9007199254740992.0, "a": None}
    assert ran.commits[0].misfits == {"flights": {"amt": 3}}


def test_a_resumed_plan_of_an_earlier_generation_rounds_as_its_release_did() -> None:
    log, output = log_of("0.5", BIG), MemoryStore()
    with pytest.raises(Killed):
        run_job(log.store, KillingStore(output, 3, is_after=True))
    key = names.plan_key("default", 1)
    plan = decode(output.get(key), "plan", Plan)
    old = msgspec.structs.replace(plan, generation=7, schemas={"flights": schema_of([["amt", "double"]], "json")})
    output.objects[key] = encode(old)
    run_job(log.store, output)
    assert amounts(output) == [0.5, float(BIG)]


def test_one_odd_value_of_the_first_sample_is_named_and_does_not_decide_the_type(tmp_path: Path) -> None:
    store, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "o").as_uri())
    log = log_of(*map(str, range(100)), '"x"', store=store)
    log.add(1, [row(b'{"amt":1,"t":%s}' % (b"1" if at % 2 else b'"x"'), at) for at in range(10)])
    arguments = ["--store", str(tmp_path / "store"), "--output", str(tmp_path / "o"), "--topics", ".*"]
    shown = invoke("plan", *arguments)
    ran = invoke("run", "--engine", "local", *arguments)
    assert ran.exit_code == 0, ran.output
    for text in (shown.output, ran.output):
        assert "flights: column amt is bigint: 1 of 111 values are text, such as partition 0 offset 100\n" in text
        assert "flights: column t is text, with the JSON of each value: 5 of 10 values are" in text
    [commit] = History(output, "default").commits()
    assert commit.misfits == {"flights": {"amt": 1}}
    add(log, '"y"', "5")
    assert "column amt is" not in invoke("run", "--engine", "local", *arguments).output


def test_misfits_are_counted_by_column_in_the_commit_the_summary_and_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, output = log_of("1", store=open_store((tmp_path / "store").as_uri())), open_store((tmp_path / "o").as_uri())
    run_job(log.store, output)
    for _ in range(2):
        add(log, "2", "2.5", '"x"', "null")
        ran = run_job(log.store, output)
    [result] = ran.commits[0].results
    assert [(name, one.count, one.values) for name, one in result.misfits.items()] == [("amt", 2, 3)]
    assert ran.commits[0].misfits == {"flights": {"amt": 4}}
    assert topic_totals(ran.commits)["flights"]["misfits"] == {"amt": 2}
    report = Report(lambda topic: Recipe(), is_quiet=True)
    report.on_commit(ran.commits[0], is_ours=True)
    print_summary(report.document("default", "o", ran.commits[0]))
    assert "  values of another type than their column, in _extra: amt 2" in capsys.readouterr().out
    command = ["status", "--store", log.store.url, "--output", output.url]
    assert json.loads(invoke(*command, "--json").stdout)["misfits"] == {"flights": {"amt": 4}}
    assert "in _extra: flights: amt 4" in invoke(*command).output


def test_a_column_with_too_many_misfits_stops_its_topic_only() -> None:
    log, output = log_of("1"), MemoryStore()
    run_job(log.store, output)
    add(log, *["2"] * 8, "2.5", '"x"')
    TieredLog(log.store, topic="other").add(0, [row(b'{"a":1}')])
    with pytest.raises(TooManyMisfits, match=r"flights: .*amt \(bigint\): 2 of 10; the limit is 10 %"):
        run_job(log.store, output, misfit_max_percent=10)
    assert (amounts(output), len(table_rows(output, "other"))) == ([1], 1)
    assert run_job(log.store, output, misfit_max_percent=20).rows == 10


def test_a_widened_bigint_column_holds_fractions_exactly_in_new_files() -> None:
    log, output = log_of("1"), MemoryStore()
    run_job(log.store, output)
    add(log, "2", "2.5", "0.1", "-9223372036854775808", "12345678901234567890.123456789012345678", "1e3", "null", '"x"')
    run_job(log.store, output, widens=True)
    expected = ["1", "2", "2.5", "0.1", "-9223372036854775808", "12345678901234567890.123456789012345678", "1000"]
    assert amounts(output) == [*map(Decimal, expected), None, None]
    assert types(output) == ["int64", "decimal128(38, 18)"]
    assert [one["_extra"] for one in table_rows(output)][-1] == '{"amt":"x"}'
    head = head_of(output)
    assert head.schemas["flights"].members == [["amt", "decimal"]]
    add(log, "7")
    run_job(log.store, output)  # a widened column stays
    assert amounts(output)[-1] == 7


def test_fractions_that_the_sample_missed_widen_the_column_within_the_same_run() -> None:
    log, output = log_of("1"), MemoryStore()
    run_job(log.store, output)
    add(log, *["2"] * (READ_RECORDS_MAX + 500), *["0.5"] * 1000)
    ran = Remembering()
    run_job(log.store, output, widens=True, misfit_max_percent=10, listener=ran, task_bytes=1 << 20)
    assert [(commit.rows, [*commit.held]) for commit in ran.commits] == [(0, ["flights"]), (3500, [])]
    assert sum(map(Decimal, amounts(output))) == 1 + 2 * (READ_RECORDS_MAX + 500) + 500  # type: ignore[arg-type]
    assert verify(output, "default")[0].problems == []


@pytest.mark.parametrize(
    "text",
    ["1e20", "-1e20", "1e-19", "1e400", "9" * 5000, "1e999999999999999999999", '"1"', "true", "[1]", "0.1" + "1" * 18],
)
def test_what_no_decimal_holds_exactly_goes_to_extra(text: str) -> None:
    value = b'{"amt":%s}' % text.encode()
    rows = JsonRows([["amt", "decimal"]]).decode([b'{"amt":1}', value])
    assert {name: bytes(raw).decode() for name, raw in rows.leftovers[1].items()} == {"amt": text}
    assert payload_arrays([["amt", "decimal"]], rows.structs)[0].to_pylist() == [1, None]
    with pytest.raises(ValueError, match=r".*"):
        decimal_of(msgspec.Raw(text.encode()))


def test_declared_types_hold_for_new_columns_and_contradict_no_published_one(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text('[flights]\namt = "double"\nnote = "json"\n')
    log, output = log_of("1", "2"), MemoryStore()
    run_job(log.store, output, declared=read_declared(path))
    assert types(output) == ["double"]
    for kind in ("bigint", "decimal"):
        add(log, "3")
        with pytest.raises(IngestRefused, match=f"'amt' is declared {kind}, and published as double"):
            run_job(log.store, output, declared={"flights": {"amt": kind}})
    with pytest.raises(IngestRefused, match="'AMT' is published as 'amt'"):
        run_job(log.store, output, declared={"flights": {"AMT": "double"}})
    assert run_job(log.store, output).rows == 2


def test_a_bigint_column_may_be_declared_decimal() -> None:
    log, output = log_of("1"), MemoryStore()
    run_job(log.store, output)
    add(log, "2")
    run_job(log.store, output, declared={"flights": {"amt": "decimal"}})
    assert types(output) == ["int64", "decimal128(38, 18)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "is not TOML"),
        ("flights = 1", "not a table of members"),
        ('[flights]\na = "number"', "has the type 'number'"),
        ('[flights]\n_Offset = "bigint"', "cannot be a column"),
        ('[flights]\na = "bigint"\nA = "bigint"', "cannot be a column"),
    ],
)
def test_a_wrong_schema_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(IngestRefused, match=message):
        read_declared(tmp_path / "schema.toml")
