"""`penstock ingest run` as real processes with a real Spark: a user's runs, and crashes during them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyspark
import pytest

from engine.format.batch import Codec
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.execution.local import LocalExecutor
from spark_ingest.output.schema_object import table_ddl
from spark_ingest.plan import Recipe
from spark_ingest.protocol.history import History
from spark_ingest.protocol.verify import verify
from spark_ingest.protocol.verify_deep import verify_deep
from spark_ingest.spark.context import ROOT
from spark_ingest.spark.execute import SparkExecutor
from tests.engine.tiering import servers
from tests.spark_ingest.hostile_json import hostile_values
from tests.spark_ingest.jobs import Remembering, assert_sound, head_of, run_job, table_rows
from tests.spark_ingest.objects import objects_of
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(300)]

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
INGEST = [sys.executable, "-m", "penstock.cli.main", "ingest", "run"]


class Lake:
    """A tiered topic, and the directory or bucket that it is ingested into."""

    def __init__(self, store_url: str, output_url: str, environment: dict[str, str] | None = None) -> None:
        self.store_url, self.output_url = store_url, output_url
        self.environment = ENVIRONMENT | (environment or {})
        self.output: ObjectStore = open_store(output_url)
        self.log = TieredLog(open_store(store_url), batch_records=200)

    def command(self, *more: str) -> list[str]:
        return [*INGEST, "--store", self.store_url, "--output", self.output_url, "--topics", "flights", *more]

    def start(self, *more: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command("--json", *more),
            env=self.environment,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *more: str, cwd: Path | None = None) -> dict[str, Any]:
        return ended(self.start(*more, cwd=cwd))

    def assert_table_is_log(self) -> None:
        """Assert that count and content equal the log, in the listed files and in the committed ones."""
        found = [(one["_partition"], one["_offset"], one["_key"], one["id"]) for one in table_rows(self.output)]
        log = [(part, at, key, orjson.loads(value or b"")["id"]) for part, at, key, value in self.log.records()]
        assert found == log
        assert assert_sound(self.output).leftovers == 0


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    document: dict[str, Any] = json.loads(output)
    return document


def hourly(count: int, first: int = 0) -> list[Any]:
    """Create records that each fall into another hour than the one before."""
    return [
        row(b'{"id":%d,"at":%d}' % (at, START_MS + at % 50 * 3_600_000), at, key=b"k%d" % (at % 7))
        for at in range(first, first + count)
    ]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake((tmp_path / "a store").as_uri(), (tmp_path / "an output").as_uri())


def test_a_topic_becomes_a_table_that_spark_reads(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    lake.log.add(0, hourly(600))
    lake.log.add(1, [*hourly(300, first=600), row(b'{"id":1,"at":"soon"}', headers=[("h", b"1"), ("h", b"2")])])
    first = lake.run("--event-time", "at", cwd=tmp_path)
    assert (first["rows"], first["dead_letters"], first["head"]) == (901, 0, 1)
    assert first["topics"]["flights"]["event_time_fallbacks"] == 1
    assert lake.run("--event-time", "at", cwd=tmp_path)["rows"] == 0
    lake.assert_table_is_log()

    table = spark.read.parquet(str(tmp_path / "an output" / "tables" / "flights"))
    assert dict(table.dtypes)["dt"] == "date"
    assert table.selectExpr("count(*)", "sum(id)", "count(distinct dt, hr)").head() == (901, sum(range(900)) + 1, 50)
    assert table.where("dt = '2013-11-21' AND hr = 7").count() == 18
    assert table.where("size(_headers) > 0").selectExpr("map_keys(_headers)").head()[0] == ["h", "h"]
    assert table.where("hour(_event_time) != hr").count() == 0

    schema = json.loads(next(iter((tmp_path / "an output" / "_ingest/default/schemas/flights").iterdir())).read_text())
    read = spark.read.schema(schema["spark_ddl"]).parquet(str(tmp_path / "an output" / "tables" / "flights"))
    assert sorted(read.columns) == sorted(table.columns)
    assert read.selectExpr("sum(id)").head()[0] == sum(range(900)) + 1


def test_spark_sums_a_widened_column_over_old_and_new_files(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    for texts in ((b"1", b"2"), (b"0.5", b"0.25")):
        lake.log.add(0, [row(b'{"amt":%s}' % text) for text in texts])
        run_job(lake.log.store, lake.output, topics="flights", widens=True)
    head = head_of(lake.output)
    ddl = table_ddl("json", head.schemas["flights"])
    table = spark.read.schema(ddl).parquet(str(tmp_path / "an output/tables/flights"))
    assert dict(table.dtypes)["amt"] == "decimal(38,18)"
    assert table.selectExpr("cast(sum(amt) AS DOUBLE)", "count(_topic_id)").head() == (3.75, 4)


def test_both_engines_write_the_same_objects(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    """Byte by byte: plans, commits, schemas, files and dead letters of two runs. The second plan has new columns, of
    members that the first one saw. Spark reads the table of hostile values.
    """
    other = TieredLog(lake.log.store, topic="rides", codec=Codec.ZSTD, batch_records=50)
    local = open_store((tmp_path / "a local output").as_uri())
    urls = (lake.store_url, lake.output_url)
    on_spark = SparkExecutor(None, *urls, lambda tasks, rows: None, print, lambda _: spark.sparkContext)
    here = LocalExecutor(lake.log.store, local, 2, lambda tasks, rows: None)
    listener = Remembering()
    for first in (0, 40):
        lake.log.add(0, [*hourly(20, first=first), row(b"not json", 1), row(b'{"id":"text","new":[%d]}' % first, 2)])
        lake.log.add(1, [*hourly(20, first=first + 20), row(None, 3, key=b"k", headers=[("h", b"1"), ("h", b"2")])])
        other.add(0, [row(value, at) for at, value in enumerate(hostile_values(100, seed=first))])
        for output, executor in ((lake.output, on_spark), (local, here)):
            run_job(
                lake.log.store,
                output,
                listener=listener,
                recipe=Recipe(event_time="at"),
                bad_percent_max=100,
                execute=executor.execute,
            )
    theirs, ours = objects_of(lake.output), objects_of(local)
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if ours[key] != theirs[key]] == []
    assert {(plan.number, len(plan.tasks) > 1) for plan, _ in listener.plans} == {(1, True), (2, True)}
    assert sum(key.endswith(".parquet") for key in ours) > 80
    [*_, newest] = sorted((tmp_path / "an output/_ingest/default/schemas/rides").iterdir(), key=os.path.getmtime)
    ddl = json.loads(newest.read_text())["spark_ddl"]
    read = spark.read.schema(ddl).parquet(str(tmp_path / "an output/tables/rides")).collect()
    assert len(read) == len(table_rows(lake.output, "rides")) > 150
    assert len(read[0]) > 30


def test_both_engines_write_the_columns_that_a_payload_declares(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark reads them with these types, and the same values; the first plan has no value of any column."""
    pytest.importorskip("fastavro")
    from tests.spark_ingest.payload.test_declared import NULLS, ROW, SCHEMA, VALUES, datum

    local = open_store((tmp_path / "a local output").as_uri())
    urls = (lake.store_url, lake.output_url)
    on_spark = SparkExecutor(None, *urls, lambda tasks, rows: None, print, lambda _: spark.sparkContext)
    here = LocalExecutor(lake.log.store, local, 2, lambda tasks, rows: None)
    for value in (NULLS, VALUES):
        lake.log.add(0, [row(datum(value, SCHEMA))])
        for output, executor in ((lake.output, on_spark), (local, here)):
            run_job(lake.log.store, output, listener=Remembering(), recipe=Recipe("avro"), execute=executor.execute)
    ours, theirs = objects_of(local), objects_of(lake.output)
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if ours[key] != theirs[key]] == []
    head = head_of(local)
    ddl = table_ddl("avro", head.schemas["flights"])
    read = spark.read.schema(ddl).parquet(str(tmp_path / "an output/tables/flights")).orderBy("_offset")
    plain = spark.read.parquet(str(tmp_path / "an output/tables/flights"))
    assert {name: dict(plain.dtypes)[name] for name in ROW} == {name: dict(read.dtypes)[name] for name in ROW}
    instants = read.selectExpr("unix_micros(at)").collect()
    assert [one[0] for one in instants] == [None, round(ROW["at"].timestamp() * 1_000_000)]
    nulls, values = (one.asDict(recursive=True) for one in read.drop("at").collect())
    assert {nulls[name] for name in ROW if name != "at"} == {None}
    assert {name: values[name] for name in ROW if name != "at"} == {
        name: value for name, value in ROW.items() if name != "at"
    }


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.ministack(tmp_path_factory.mktemp("ministack")) as endpoint:
        servers.make_bucket(endpoint, "log")
        servers.make_bucket(endpoint, "lake")
        yield endpoint


@pytest.mark.long
def test_from_s3_to_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    options = f"?endpoint={endpoint}&region=us-east-1"
    lake = Lake(f"s3://log/tiered{options}", f"s3://lake/out{options}", servers.CREDENTIALS)
    lake.log.add(0, json_rows(3000))
    lake.log.add(1, [*json_rows(2000, first=3000), row(b"not json", 1)])
    done = lake.run("--dead-letter-max-percent", "1")
    assert (done["rows"], done["dead_letters"]) == (5000, 1)
    findings, commits = verify(lake.output, "default")
    assert [*findings.problems, *verify_deep(lake.output, commits)] == []
    assert [one["id"] for one in table_rows(lake.output)] == list(range(5000))


def wait_until(is_so: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.long
def test_kill_9_in_the_middle_neither_loses_nor_repeats_a_row(lake: Lake, tmp_path: Path) -> None:
    """Killed after its plan was made, then after some files were written; the JVM may keep working for a moment."""
    for partition in range(4):
        lake.log.add(partition, hourly(15_000, first=partition * 15_000))
    plans, tables = tmp_path / "an output/_ingest/default/plans", tmp_path / "an output/tables/flights"

    planned = lake.start("--event-time", "at")
    wait_until(lambda: plans.exists() and any(plans.iterdir()), planned)
    kill_9(planned)
    writing = lake.start("--event-time", "at")
    wait_until(lambda: tables.exists() and sum(1 for _ in tables.glob("dt=*/hr=*")) >= 5, writing)
    kill_9(writing)
    assert History(lake.output, "default").head() is None

    lake.log.add(0, hourly(100, first=90_000))
    done = lake.run("--event-time", "at")
    assert (done["rows"], done["commits"]) == (60_100, [1, 2])
    lake.assert_table_is_log()
    assert lake.run("--event-time", "at")["rows"] == 0


def kill_9(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL


def test_two_runs_at_once_make_one_table(lake: Lake) -> None:
    for partition in range(2):
        lake.log.add(partition, hourly(1000, first=partition * 1000))
    both = [lake.start("--event-time", "at", "--engine", "local") for _ in range(2)]
    documents = [ended(one) for one in both]
    assert sum(one["rows"] for one in documents) == 2000
    lake.assert_table_is_log()


@pytest.mark.long
def test_a_task_that_fails_is_one_line_and_commits_nothing(lake: Lake) -> None:
    lake.log.add(0, json_rows(5000))
    [key] = [one.key for one in lake.log.store.list("") if one.key.endswith(".log")]
    data = bytearray(lake.log.store.get(key))
    data[-100] ^= 1  # after the part that planning samples
    lake.log.store.put(key, bytes(data))
    process = lake.start()
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "fails its checksum (restore the object from a replica; nothing was committed)" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert History(lake.output, "default").head() is None


@pytest.mark.long
def test_spark_submit_does_the_same(lake: Lake, tmp_path: Path) -> None:
    lake.log.add(0, json_rows(1000))
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]
    command = [*submit, str(ROOT / "spark_ingest/job.py"), *lake.command("--json")[len(INGEST) :]]
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # Spark's script finds it only if no path has spaces
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 1000
    lake.assert_table_is_log()
