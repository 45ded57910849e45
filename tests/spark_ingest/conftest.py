"""One Spark session for all tests of this process: its start takes about ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from spark_ingest.data_source import PenstockDataSource
    from spark_ingest.spark.context import open_context

    context = open_context("local[2]")
    session = SparkSession(context)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    session.dataSource.register(PenstockDataSource)
    yield session
    session.stop()
