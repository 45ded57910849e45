"""The costs that `penstock doctor --plan` computes with are those that were measured."""

from __future__ import annotations

import json

from loadtests.capacity.__main__ import FORMS, MEASURED
from loadtests.capacity.costs import Sample, draw, fit
from penstock.cli.doctor.sizing import FETCH, PRODUCE, Costs


def samples_of(costs: Costs, noise: float = 0.0) -> list[Sample]:
    sizes = [(n, n * each) for n in (1, 10, 100, 1000) for each in (100, 1000)]
    return [
        Sample("produce", n, size, costs.seconds(1, n, size) * 1e6 * (1 + noise * (-1) ** at))
        for at, (n, size) in enumerate(sizes)
    ]


def test_a_fit_finds_the_costs_that_made_the_figures():
    costs = Costs(request_us=30, record_us=0.2, byte_ns=0.8)
    assert fit(samples_of(costs)) == costs
    near = fit(samples_of(costs, 0.05))
    assert abs(near.request_us / 30 - 1) < 0.1
    # a cost of nothing never comes out as less than nothing
    assert min(fit(samples_of(Costs(30, 0, 0.8), 0.1))._asdict().values()) > 0


def test_the_costs_are_those_of_the_measured_figures(tmp_path):
    samples = [Sample(**row) for row in json.loads(MEASURED.read_text())]
    costs = {kind: fit([sample for sample in samples if sample.kind == kind]) for kind in ("produce", *FORMS)}
    assert costs == {"produce": PRODUCE, **FETCH}
    draw(samples, costs, tmp_path / "capacity.png")
    assert (tmp_path / "capacity.png").read_bytes().startswith(b"\x89PNG")
