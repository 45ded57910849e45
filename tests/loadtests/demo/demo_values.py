"""A small correct outcome of the demo, which tests modify."""

from pathlib import Path

from loadtests.demo.fetch import Fetched
from loadtests.demo.flights import CarrierFigures, Flights
from loadtests.demo.outcome import Outcome
from loadtests.demo.processes import Ingested
from loadtests.demo.produce import Produced
from loadtests.demo.spark_report import CarrierRow, DayRow, Report
from loadtests.demo.tier import Tiered

LINES = [b'{"flight":1}', b'{"flight":2}', b'{"flight":3}']
KEYS = ["N1", None, "N2"]
NAMES = {"UA": "United Air Lines Inc.", "AS": "Alaska Airlines Inc."}


def flights() -> Flights:
    by_carrier = {"UA": CarrierFigures(2, 4.5), "AS": CarrierFigures(1, None)}
    return Flights(list(LINES), list(KEYS), by_carrier, dict(NAMES))


def report() -> Report:
    carriers = [CarrierRow("UA", 2, 4.5), CarrierRow("AS", 1, None)]
    return Report(rows=3, positions=3, hours=2, carriers=carriers, days=[DayRow(2013, 1, 1, 3, 4.5)])


def good_outcome(output: Path) -> Outcome:
    return Outcome(
        flights=flights(),
        produced=Produced(records=3, size_bytes=36, requests=1, seconds=0.5, http_version="HTTP/2"),
        fetched=Fetched(records=3, seconds=0.6, median_lag_ms=12.0, faults=[]),
        tiered=Tiered(records=3, objects=2, size_bytes=300, store="file:///store", seconds=0.1),
        ingested=Ingested(rows=3, dead_letters=0, files=2, seconds=20.0),
        second_ingest=Ingested(rows=0, dead_letters=0, files=0, seconds=2.0),
        report=report(),
        table=output / "lake" / "tables" / "flights",
        plot=output / "flights.png",
        screen=output / "screen.txt",
        seconds=61.0,
    )
