"""`python -m loadtests.capacity`: measures a fresh node, and writes measured.json and the picture of the capacity page.

It prints the costs of penstock/cli/doctor/sizing.py; a test compares these with measured.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from loadtests.capacity.costs import Sample, draw, fit
from loadtests.generators import h2load
from loadtests.generators.bodies import BATCH_TYPE, NDJSON_TYPE, json_values, ndjson_body
from loadtests.generators.generators import Generators
from loadtests.generators.load import Load
from loadtests.host import proc, servers
from loadtests.host.admin_client import AdminClient

MEASURED = Path(__file__).with_name("measured.json")
PICTURE = Path(__file__).parents[2] / "docs" / "operate" / "capacity.png"
REQUEST_RECORDS = (1, 10, 100, 1000)
RECORD_BYTES = (100, 1000)
FORMS = {"json": NDJSON_TYPE, "batch": BATCH_TYPE}
TOPIC: dict[str, object] = {"segment_bytes": 1 << 30}
CONNECTIONS, STREAMS = 4, 16  # as in make bench
CPU_S_MIN = 1.0  # of a sample: the kernel counts hundredths
TIMEOUT_S = 300


class Costing:
    """One node, and the loads that it is measured by."""

    def __init__(self, server: servers.Server, generators: Generators, directory: Path) -> None:
        self._server, self._generators, self._directory = server, generators, directory
        self._admin = AdminClient(server.url)

    def measure_produce(self, records: int, record_bytes: int) -> Sample:
        topic = f"produce-{records}-{record_bytes}"
        self._admin.create_topic(topic, TOPIC)
        body = self._directory / f"{topic}.body"
        body.write_bytes(ndjson_body(json_values(records, record_bytes)).data)
        load = self._load(f"/v1/topics/{topic}/records?acks=all", body, "content-type", NDJSON_TYPE)
        cpu_us = self._cpu_us(load)
        return Sample("produce", records, records * record_bytes, cpu_us)

    def measure_fetch(self, form: str, records: int, record_bytes: int) -> Sample:
        """Reads the first batch of the topic that requests of this size made."""
        target = f"/v1/topics/produce-{records}-{record_bytes}/partitions/0/records?offset=0&max_bytes=1"
        _, answer = self._admin.request("GET", target, accept=NDJSON_TYPE)
        records = answer.count(b"\n")
        cpu_us = self._cpu_us(self._load(target, None, "accept", FORMS[form]))
        return Sample(form, records, records * record_bytes, cpu_us)

    def _load(self, target: str, body: Path | None, header: str, value: str) -> Load:
        return Load(self._server.url, (target,), 0, CONNECTIONS, STREAMS, body, ((header, value),))

    def _cpu_us(self, load: Load) -> float:
        requests = load.in_flight
        while True:
            before = proc.usage(self._server.pid).cpu_s
            outcome = self._generators.run_closed(replace(load, requests=requests), TIMEOUT_S)
            used_s = proc.usage(self._server.pid).cpu_s - before
            if outcome.bad:
                raise servers.ServerFailed(f"{outcome.bad} requests of {load.targets[0]}: {outcome.what_went_wrong}")
            if used_s >= CPU_S_MIN:
                return used_s * 1e6 / outcome.good
            requests = round(requests * min(20.0, max(1.5, 1.3 * CPU_S_MIN / max(used_s, 0.01))))


@click.command()
@click.option("--draw-only", is_flag=True, help="Draw measured.json again.")
def main(draw_only: bool) -> None:
    """Measure what requests cost, and draw it."""
    if not draw_only:
        samples = measure()
        MEASURED.write_text(json.dumps([sample._asdict() for sample in samples], indent=1) + "\n")
    samples = [Sample(**row) for row in json.loads(MEASURED.read_text())]
    costs = {kind: fit([s for s in samples if s.kind == kind]) for kind in ("produce", *FORMS)}
    for kind, cost in costs.items():
        print(kind, cost._asdict())
    draw(samples, costs, PICTURE)


def measure() -> list[Sample]:
    """Raises ServerFailed, GeneratorFailed."""
    generators = Generators(use_h2load=h2load.is_installed())
    try:
        with tempfile.TemporaryDirectory(prefix="penstock capacity ") as name:
            directory = Path(name)
            with servers.penstock(directory) as server:
                costing = Costing(server, generators, directory)
                sizes = [(n, size) for size in RECORD_BYTES for n in REQUEST_RECORDS]
                samples = [costing.measure_produce(*size) for size in sizes]
                return samples + [costing.measure_fetch(form, *size) for form in FORMS for size in sizes]
    finally:
        generators.close()


if __name__ == "__main__":
    sys.exit(main())
