"""The plot: flights per day and their mean arrival delay, as Spark read them. Only draws."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import dates
from matplotlib.figure import Figure

from loadtests.demo.spark_report import DayRow

PAPER, INK, SOFT, GRID = "#fbfaf7", "#22262b", "#7a8088", "#e4e1da"
FLIGHTS, FLIGHTS_MEAN = "#b9cfe0", "#1f5f8b"
LATE, EARLY = "#d9603b", "#3a9188"
_WEEK_DAYS = 7
_EDGE_DAYS = 0.8
_LABELS = 4
_LABEL_DAYS = 21  # the width of a label

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.facecolor": PAPER,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.major.size": 0,
}


def draw(days: Sequence[DayRow], path: Path) -> None:
    """Writes the PNG."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 7), dpi=160, facecolor=PAPER)
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.15))
        figure.subplots_adjust(left=0.06, right=0.975, top=0.83, bottom=0.075, hspace=0.24)
        when = [date(day.year, day.month, day.day) for day in days]
        _draw_flights(upper, when, [day.flights for day in days])
        _draw_delays(lower, when, [day.mean_delay_minutes or 0.0 for day in days])
        _set_months(lower, when)
        _title(figure, sum(day.flights for day in days), days)
        figure.savefig(path, facecolor=PAPER)


def _title(figure: Figure, flights: int, days: Sequence[DayRow]) -> None:
    years = sorted({day.year for day in days})
    figure.text(0.06, 0.935, f"A year of flights out of New York, {'–'.join(map(str, years))}", size=19, weight="bold")
    text = f"{flights:,} flights from JFK, LaGuardia and Newark, through Penstock into Parquet, counted by Spark"
    figure.text(0.06, 0.9, text, size=11, color=SOFT)


def _draw_flights(axes: Any, when: Sequence[date], flights: Sequence[int]) -> None:
    axes.plot(when, flights, color=FLIGHTS, linewidth=0.8, marker="o", markersize=3.2, markeredgewidth=0)
    axes.plot(when, _rolling_mean(flights), color=FLIGHTS_MEAN, linewidth=2.2, solid_capstyle="round")
    axes.set_title("Flights per day, and the mean of the week around", loc="left", size=11, weight="bold", pad=8)
    axes.margins(y=0.12)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    for at in _extremes([-count for count in flights]):
        _label(axes, when[at], flights[at], f"{when[at]:%-d %b}  {flights[at]:,}", below=True)


def _draw_delays(axes: Any, when: Sequence[date], delays: Sequence[float]) -> None:
    axes.bar(when, [max(delay, 0) for delay in delays], width=1.0, color=LATE, linewidth=0)
    axes.bar(when, [min(delay, 0) for delay in delays], width=1.0, color=EARLY, linewidth=0)
    axes.axhline(0, color=SOFT, linewidth=0.8)
    axes.set_title("Mean arrival delay per day, minutes", loc="left", size=11, weight="bold", pad=8)
    axes.margins(y=0.09)
    for x, text, color in ((0.948, "late", LATE), (0.998, "early", EARLY)):
        axes.text(x, 1.046, text, transform=axes.transAxes, ha="right", size=10, weight="bold", color=color)
    for at in _extremes(delays):
        _label(axes, when[at], delays[at], f"{when[at]:%-d %b}  {delays[at]:+.0f}", below=False)


def _extremes(values: Sequence[float]) -> list[int]:
    """Returns the positions of the largest values, far enough apart that their labels do not overlap."""
    positions: list[int] = []
    for at in sorted(range(len(values)), key=values.__getitem__, reverse=True):
        if all(abs(at - other) > _LABEL_DAYS for other in positions):
            positions.append(at)
        if len(positions) == _LABELS:
            break
    return positions


def _label(axes: Any, day: date, height: float, text: str, *, below: bool) -> None:
    axes.annotate(
        text,
        (day, height),
        xytext=(0, -5 if below else 4),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
        size=8.5,
        color=INK,
    )


def _set_months(axes: Any, when: Sequence[date]) -> None:
    axes.set_xlim(dates.date2num(when[0]) - _EDGE_DAYS, dates.date2num(when[-1]) + _EDGE_DAYS)
    axes.xaxis.set_major_locator(dates.MonthLocator())
    axes.xaxis.set_major_formatter(dates.DateFormatter("%b"))
    axes.tick_params(axis="x", length=3)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("left")


def _rolling_mean(values: Sequence[float]) -> list[float]:
    """Returns the mean of the week around each day; of fewer days at both ends."""
    half = _WEEK_DAYS // 2
    windows = (values[max(0, at - half) : at + half + 1] for at in range(len(values)))
    return [sum(window) / len(window) for window in windows]
