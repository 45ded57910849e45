"""Fits the costs of requests to measured ones, and draws both. Pure but for the picture that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from loadtests.demo.plot import INK, PAPER, SOFT, STYLE
from penstock.cli.doctor.sizing import Costs

COLOURS = {100: "#1f5f8b", 1000: "#d9603b"}  # by the size of a record
FORMS = {"produce": "", "json": "as JSON, ", "batch": "as stored batches, "}
LEAST = 1e-6  # of each cost: a fit of noisy figures must not be negative


class Sample(NamedTuple):
    """Processor time of the server for one request, in us, with the records and the bytes of values in it."""

    kind: str
    records: float
    size_bytes: float
    cpu_us: float


def fit(samples: Sequence[Sample]) -> Costs:
    """Returns the costs of least squares of relative errors: a large request does not outweigh a small one."""
    rows = np.array([[1, sample.records, sample.size_bytes / 1000] for sample in samples])
    measured = np.array([sample.cpu_us for sample in samples])
    active = [0, 1, 2]
    while True:  # what would be negative is left out, and the others are fitted again
        found, *_ = np.linalg.lstsq(rows[:, active] / measured[:, None], np.ones(len(measured)), rcond=None)
        if min(found) >= 0:
            break
        active.pop(int(np.argmin(found)))
    costs = dict(zip(active, found, strict=True))
    return Costs(*(float(f"{max(LEAST, costs.get(at, 0.0)):.2g}") for at in range(3)))


def draw(samples: Sequence[Sample], costs: dict[str, Costs], path: Path) -> None:
    """Writes a PNG: processor time of a record by the records of its request; points are measured, lines computed."""
    with mpl.rc_context({**STYLE, "axes.grid.axis": "both"}):
        figure = Figure(figsize=(10, 4.4), dpi=120, facecolor=PAPER)
        figure.subplots_adjust(left=0.075, right=0.98, top=0.84, bottom=0.13, wspace=0.14)
        axes = figure.subplots(1, 2, sharey=True)
        for ax, title, kinds in zip(axes, ("produce", "fetch"), (("produce",), ("json", "batch")), strict=True):
            lines = sorted({(s.kind, round(s.size_bytes / s.records)) for s in samples if s.kind in kinds})
            for kind, record_bytes in lines:
                of_line = sorted(
                    s for s in samples if (s.kind, round(s.size_bytes / s.records)) == (kind, record_bytes)
                )
                counts = np.geomspace(of_line[0].records, of_line[-1].records, 60)
                computed = [costs[kind].seconds(1, n, n * record_bytes) * 1e6 / n for n in counts]
                look = {"color": COLOURS[record_bytes], "linestyle": "--" if kind == "batch" else "-"}
                ax.plot(counts, computed, **look, linewidth=1.2, label=f"{FORMS[kind]}{record_bytes:,} B a record")
                measured = [s.cpu_us / s.records for s in of_line]
                ax.plot([s.records for s in of_line], measured, "o", color=COLOURS[record_bytes], ms=4)
            ax.set(xscale="log", yscale="log", xlabel=f"records of one {title}")
            ax.legend(frameon=False, fontsize=8)
        axes[0].set_ylabel("µs of a processor for a record")
        figure.text(0.075, 0.93, "Processor time of a node for a record", fontsize=13, color=INK, weight="bold")
        figure.text(
            0.075, 0.875, "points: measured; lines: what penstock doctor --plan computes", fontsize=9, color=SOFT
        )
        figure.savefig(path, facecolor=PAPER)
