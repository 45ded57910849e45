"""The measurements of a run and their checks. Pure; the screen and the exit code use both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from loadtests.demo.fetch import Fetched
from loadtests.demo.flights import CarrierFigures, Flights
from loadtests.demo.processes import Ingested
from loadtests.demo.produce import Produced
from loadtests.demo.spark_report import CarrierRow, Report
from loadtests.demo.tier import Tiered

_MINUTES_TOLERANCE = 1e-6  # means of whole minutes: both sums are exact, only the division may round


@dataclass(frozen=True, slots=True)
class Outcome:
    """All measurements, beside the package's flights and its own figures about them."""

    flights: Flights
    produced: Produced
    fetched: Fetched
    tiered: Tiered
    ingested: Ingested
    second_ingest: Ingested
    report: Report
    table: Path
    plot: Path
    screen: Path
    seconds: float


class Check(NamedTuple):
    """One line of the screen: a count, whether it is right, and a reason if it is not."""

    name: str
    measured: int
    wrong: str

    @property
    def is_good(self) -> bool:
        return not self.wrong


def checks(outcome: Outcome) -> dict[str, Check]:
    """Returns the checks by name, in the order of the pipeline."""
    report, fetched, expected = outcome.report, outcome.fetched, len(outcome.flights)
    results = [
        _count("produced", outcome.produced.records, expected, _http_fault(outcome.produced.http_version)),
        _count("fetched", fetched.records, expected, *fetched.faults),
        _count("tiered", outcome.tiered.records, expected),
        _count("ingested", report.rows, expected, *_table_faults(outcome)),
        _count("again", outcome.second_ingest.rows, 0),
    ]
    return {check.name: check for check in results}


def _count(name: str, count: int, expected: int, *faults: str) -> Check:
    differs = f"{expected:,} were expected" if count != expected else ""
    return Check(name, count, "; ".join(filter(None, (differs, *faults))))


def _http_fault(version: str) -> str:
    return "" if version == "HTTP/2" else f"over {version or 'nothing'}, not HTTP/2"


def _table_faults(outcome: Outcome) -> list[str]:
    report, ingested = outcome.report, outcome.ingested
    faults = {
        f"the command reported {ingested.rows:,}": ingested.rows != report.rows,
        f"{ingested.dead_letters:,} dead letters": ingested.dead_letters > 0,
        f"from only {report.positions:,} places in the log": report.positions != report.rows,
        _other_carriers(outcome): True,
    }
    return [fault for fault, is_there in faults.items() if is_there]


def _other_carriers(outcome: Outcome) -> str:
    """True if Spark's table agrees with the package about each other carrier."""
    theirs = {row.carrier: row for row in outcome.report.carriers}
    ours = outcome.flights.by_carrier
    wrong = theirs.keys() ^ ours.keys()
    wrong |= {code for code in theirs.keys() & ours.keys() if not _agree(theirs[code], ours[code])}
    return f"figures differ from the package's for {', '.join(sorted(wrong))}" if wrong else ""


def _agree(row: CarrierRow, figures: CarrierFigures) -> bool:
    if row.flights != figures.flights or (row.mean_delay_minutes is None) != (figures.mean_delay_minutes is None):
        return False
    return abs((row.mean_delay_minutes or 0.0) - (figures.mean_delay_minutes or 0.0)) < _MINUTES_TOLERANCE
