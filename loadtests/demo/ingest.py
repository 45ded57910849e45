"""Runs `penstock ingest run` as a person would, and reads what it says it did."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import orjson

from loadtests.demo.flights import EVENT_TIME
from loadtests.demo.node import penstock
from loadtests.demo.processes import Command, run_to_end

# One task, so that an hour's fifty flights make one file and not one for each task. The files are so small that making
# them is nearly all of the work: three tasks on two cores take twice as long, and so does whoever reads the table.
_ONE_TASK = ("--master", "local[1]", "--task-bytes", str(1 << 28))


class Ingested(NamedTuple):
    """What the command says; the seconds are those of the whole command, Spark's start included."""

    rows: int
    dead_letters: int
    files: int
    seconds: float


async def ingest(store: str, topic: str, output: Path, directory: Path) -> Ingested:
    """One run of the job. Raises DemoFailed."""
    arguments = ["--store", store, "--topics", topic, "--output", output.as_uri(), "--event-time", EVENT_TIME, "--json"]
    started = time.perf_counter()
    printed = await run_to_end(Command("penstock-ingest", penstock("ingest", "run", *arguments, *_ONE_TASK), directory))
    told = orjson.loads(printed)
    return Ingested(told["rows"], told["dead_letters"], told["files"], time.perf_counter() - started)
