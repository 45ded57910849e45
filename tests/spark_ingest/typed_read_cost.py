"""The processor time of a typed read beside `spark.read.parquet` of the same rows, of the JVM and all Python processes.

    make bench-typed-read

A million records of 164 bytes with seven members, as in test_rate.py, in four partitions; Parquet in eight files.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from random import Random

import psutil
from pyspark.sql import SparkSession

from engine.format.batch import Codec
from engine.tiering.store.store import open_store
from spark_ingest.data_source import PenstockDataSource
from spark_ingest.spark.context import open_context
from tests.spark_ingest.test_rate import value_of
from tests.spark_ingest.tiered import TieredLog, row

ROWS = 1_000_000
SEGMENTS = 8
ROUNDS = 5
SCHEMA = "id BIGINT, ts STRING, user STRING, carrier STRING, amount DOUBLE, ok BOOLEAN, note STRING"


def cpu_s() -> float:
    """Return the processor time of this process and of all below it, also of those that have ended."""
    me = psutil.Process()
    times = [one.cpu_times() for one in (me, *me.children(recursive=True))]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def main() -> None:
    random = Random(1)
    with tempfile.TemporaryDirectory() as place:
        log = TieredLog(open_store(Path(place, "store").as_uri()), batch_records=1000, codec=Codec.ZSTD)
        for at in range(SEGMENTS):
            ids = range(at * ROWS // SEGMENTS, (at + 1) * ROWS // SEGMENTS)
            log.add(at % 4, [row(value_of(one, random), one, key=b"k%d" % (one % 1000)) for one in ids])
        spark = SparkSession(open_context("local[2]"))
        spark.dataSource.register(PenstockDataSource)
        typed = spark.read.format("penstock").options(store=log.store.url, topic=log.topic, schema=SCHEMA).load()
        parquet = str(Path(place, "parquet"))
        typed.repartition(SEGMENTS).write.parquet(parquet)
        frames = {"parquet": spark.read.parquet(parquet), "typed": typed}
        assert {frame.count() for frame in frames.values()} == {ROWS}
        for at in range(ROUNDS):
            for name, frame in frames.items():
                began_s, started = cpu_s(), time.monotonic()
                frame.write.format("noop").mode("overwrite").save()
                taken_s = time.monotonic() - started
                print(f"round {at}: {name} {cpu_s() - began_s:.2f} s CPU, {taken_s:.2f} s", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
