"""Spark's Kafka source and sink. Arguments: servers, directory of state, records, time of the first, jars; a step."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

PARTITIONS = 3
servers, state, count, first_time, jars, step = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def source(topic: str, **options: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.options(**options).load()


def values(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


records = int(count)
if step == "reads":
    assert values(source("in")) == list(range(records))
    print("a read of all records: ok")
    offsets = json.dumps({"in": {str(number): 100 for number in range(PARTITIONS)}})
    assert len(values(source("in", startingOffsets=offsets))) == records - 100 * PARTITIONS
    print("a read from offsets: ok")
    half = source("in", startingTimestamp=str(int(first_time) + records // 2))
    assert values(half) == list(range(records // 2, records))
    print("a read from a time: ok")
else:
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "in")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1000").load()
    writer = stream.selectExpr("key", "value").writeStream.format("kafka").option("topic", "out")
    writer = writer.option("kafka.bootstrap.servers", servers).option("checkpointLocation", state)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert values(source("out")) == list(range(records))
    print(f"a stream from topic to topic, {records} records: ok")
spark.stop()
