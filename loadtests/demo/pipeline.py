"""The order of the demo: read, produce and long-poll, tier, ingest, ingest again, query with Spark, draw.

Each step has its own file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from loadtests.demo import spark_report
from loadtests.demo.fetch import Checker, Fetched, fetch
from loadtests.demo.flights import Flights, read_flights
from loadtests.demo.outcome import Outcome
from loadtests.demo.plot import draw
from loadtests.demo.processes import Command, Ingested, ingest, run_to_end, running_node
from loadtests.demo.produce import Produced, produce
from loadtests.demo.progress import Progress
from loadtests.demo.screen import plain_screen
from loadtests.demo.spark_report import Report
from loadtests.demo.tier import Tiered, tier
from loadtests.demo.workspace import LAKE, PLOT, SCREEN, workspace
from penstock import Client

TOPIC = "flights"
PARTITIONS = 4


class Log(NamedTuple):
    """The results of the steps that use the node."""

    produced: Produced
    fetched: Fetched
    tiered: Tiered


class Tables(NamedTuple):
    """The results of the steps from the store to tables."""

    ingested: Ingested
    second_ingest: Ingested
    report: Report


async def play(output: Path, flights_max: int | None, progress: Progress) -> Outcome:
    """Runs the whole pipeline; returns its measurements. Raises DemoFailed and the client's errors."""
    started = time.perf_counter()
    flights = await _read(flights_max, progress)
    with workspace(output) as way:
        log = await send_through_log(way, flights, progress)
        tables = await _ingest_into_tables(way, output / LAKE, log.tiered.store, progress)
        await _draw(tables.report, output / PLOT, progress)
    outcome = Outcome(
        flights=flights,
        produced=log.produced,
        fetched=log.fetched,
        tiered=log.tiered,
        ingested=tables.ingested,
        second_ingest=tables.second_ingest,
        report=tables.report,
        table=output / LAKE / "tables" / TOPIC,
        plot=output / PLOT,
        screen=output / SCREEN,
        seconds=time.perf_counter() - started,
    )
    outcome.screen.write_text(plain_screen(outcome))
    return outcome


async def _read(flights_max: int | None, progress: Progress) -> Flights:
    step = progress.step("read the package")
    flights = await asyncio.to_thread(read_flights, flights_max)
    step.finish(f"{len(flights):,} flights")
    return flights


async def send_through_log(way: Path, flights: Flights, progress: Progress) -> Log:
    """Produces, fetches and tiers. The node stops at the end: later steps read the store."""
    step = progress.step("start a node")
    async with running_node(way) as url, Client(url) as client:
        step.finish(url)
        await client.create_topic(TOPIC, partitions=PARTITIONS)
        produced, fetched = await _produce_and_fetch(client, url, flights, progress)
        step = progress.step("tier", len(flights))
        tiered = await tier(client, TOPIC, step.advance)
        step.finish(f"{tiered.records:,} in {tiered.objects} objects")
    return Log(produced, fetched, tiered)


async def _produce_and_fetch(
    client: Client, url: str, flights: Flights, progress: Progress
) -> tuple[Produced, Fetched]:
    sending = progress.step("produce over HTTP/2", len(flights))
    reading = progress.step("long-poll and check", len(flights))
    async with client.consume(TOPIC) as consumer:  # its long polls are open before the first record
        producing = asyncio.create_task(produce(url, TOPIC, flights, sending.advance))
        try:
            fetched = await fetch(consumer, Checker(flights), producing, reading.advance)
            produced = await producing
        finally:
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)
    sending.finish(f"{produced.records:,} acknowledged")
    reading.finish(f"{fetched.records:,} checked")
    return produced, fetched


async def _ingest_into_tables(way: Path, lake: Path, store: str, progress: Progress) -> Tables:
    table = lake / "tables" / TOPIC
    step = progress.step("ingest with Spark")
    ingested = await ingest(store, TOPIC, lake, way)
    step.finish(f"{ingested.rows:,} rows")
    step = progress.step("ingest once more")
    second_ingest = await ingest(store, TOPIC, lake, way)
    step.finish(f"{second_ingest.rows:,} rows")
    step = progress.step("ask Spark about the table")
    asking = [sys.executable, "-P", spark_report.__file__, str(table)]  # this package is not installed
    report = msgspec.json.decode(await run_to_end(Command("spark-report", asking, way)), type=Report)
    step.finish(f"{report.rows:,} rows")
    return Tables(ingested, second_ingest, report)


async def _draw(report: Report, path: Path, progress: Progress) -> None:
    step = progress.step("draw the year")
    await asyncio.to_thread(draw, report.days, path)
    step.finish(path.name)
