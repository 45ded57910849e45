"""Stores in memory, and one Spark session for all tests of this process: its start takes about ten seconds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import open_store
from tests.spark_ingest.jobs import Stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def source() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def output() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    """Return a store and an output in files, for commands."""
    return open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "output").as_uri())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from spark_ingest.data_source import PenstockDataSource
    from spark_ingest.spark.context import open_context

    interrupted = signal.getsignal(signal.SIGINT)
    context = open_context("local[2]")
    signal.signal(signal.SIGINT, interrupted)  # Spark's handler fails in later tests that interrupt themselves
    session = SparkSession(context)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    session.dataSource.register(PenstockDataSource)
    yield session
    session.stop()
