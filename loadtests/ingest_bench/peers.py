"""`python -m loadtests.ingest_bench.peers NAME LINES OUTPUT`: another program makes hourly Parquet of the NDJSON rows.

Each has one thread and the schema of the rows, reads the event time, writes zstd, and does nothing else.
`spark-start` and `ingest-start` start Spark and run a task in Python that does nothing. `truth` prints the number and a
hash of the rows of the lines, and of those of the Parquet files of our table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

from loadtests.ingest_bench.rows import DDL

MASTER = "local[1]"


def duckdb(lines: str, output: str) -> None:
    import duckdb as library

    columns = {name: kind.replace("STRING", "VARCHAR") for name, kind in _columns().items()}
    columns["ts"] = "TIMESTAMP"
    columns["device"] = "STRUCT(os VARCHAR, version VARCHAR, width BIGINT, ratio DOUBLE)"
    session = library.connect()
    session.execute("SET threads = 1")
    session.execute(
        f"COPY (SELECT *, strftime(ts, '%Y-%m-%d') AS dt, strftime(ts, '%H') AS hr FROM read_json('{lines}', "
        f"format = 'newline_delimited', columns = {columns})) TO '{output}' "
        "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARTITION_BY (dt, hr))"
    )


def pyarrow(lines: str, output: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.json

    pa.set_cpu_count(1)
    device = pa.struct([("os", pa.string()), ("version", pa.string()), ("width", pa.int64()), ("ratio", pa.float64())])
    kinds = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(), "STRING": pa.string()}
    schema = pa.schema([(name, kinds.get(kind, device)) for name, kind in _columns().items()])
    table = pyarrow.json.read_json(
        lines,
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=16 << 20),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema),
    )
    times = table["ts"].cast(pa.timestamp("us", "UTC"))
    table = table.append_column("dt", pc.strftime(times, "%Y-%m-%d")).append_column("hr", pc.strftime(times, "%H"))
    parquet = ds.ParquetFileFormat()
    ds.write_dataset(
        table,
        output,
        format=parquet,
        file_options=parquet.make_write_options(compression="zstd", compression_level=1),
        partitioning=ds.partitioning(pa.schema([("dt", pa.string()), ("hr", pa.string())]), flavor="hive"),
        max_partitions=4096,
        use_threads=False,
    )


def spark(lines: str, output: str) -> None:
    from pyspark.sql import SparkSession, functions

    session = SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    time = functions.to_timestamp("ts")
    frame = session.read.schema(DDL).json(lines)
    frame = frame.withColumn("dt", functions.date_format(time, "yyyy-MM-dd")).withColumn(
        "hr", functions.date_format(time, "HH")
    )
    frame.write.option("compression", "zstd").partitionBy("dt", "hr").parquet(output)
    session.stop()


def ingest_start(lines: str, output: str) -> None:
    spark_start(lines, output, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # as `penstock ingest run` starts the JVM


def spark_start(lines: str, output: str, java_options: str = "") -> None:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(MASTER).set("spark.ui.enabled", "false")
    context = SparkContext(conf=conf.set("spark.driver.extraJavaOptions", java_options))
    context.parallelize([lines], 1).map(len).collect()
    context.stop()


def truth(lines: str, output: str) -> None:
    import duckdb as library

    columns = {name: kind.replace("STRING", "VARCHAR") for name, kind in _columns().items()}
    columns["device"] = "STRUCT(os VARCHAR, version VARCHAR, width BIGINT, ratio DOUBLE)"
    expression = f"count(*), sum(hash({', '.join(_quote(columns))})::HUGEINT)"
    session = library.connect()
    expected = session.execute(
        f"SELECT {expression} FROM read_json('{lines}', format = 'newline_delimited', columns = {columns})"
    ).fetchall()
    ours = session.execute(
        f"SELECT {expression} FROM read_parquet('{output}/tables/**/*.parquet', hive_partitioning = false)"
    ).fetchall()
    sys.stdout.write(f"{expected[0]} {ours[0]} {'equal' if expected == ours else 'DIFFERENT'}\n")


def count(lines: str, output: str) -> None:
    import duckdb as library

    session, started = library.connect(), time.monotonic()
    [row] = session.execute(f"SELECT count(*) FROM read_parquet('{output}/tables/**/*.parquet')").fetchall()
    sys.stdout.write(f"{row[0]} {time.monotonic() - started:.3f}\n")


def _quote(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _columns() -> dict[str, str]:
    """Returns the top columns of the rows; that of the struct is `STRUCT`."""
    before, _, rest = DDL.partition(", device ")
    fields = [*before.split(", "), "device STRUCT", rest.partition(">, ")[2]]
    return dict(field.split(" ", 1) for field in fields)


PEERS: dict[str, Callable[[str, str], None]] = {
    "duckdb": duckdb,
    "pyarrow": pyarrow,
    "spark": spark,
    "spark-start": spark_start,
    "ingest-start": ingest_start,
    "truth": truth,
    "count": count,
}

if __name__ == "__main__":
    PEERS[sys.argv[1]](*sys.argv[2:])
