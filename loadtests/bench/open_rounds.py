"""The open-loop part of the bench: proves the generator against the bare function, then times deliveries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from loadtests.bench.cases import DELIVERY_ACKS, TOPIC_CONFIG, Plan
from loadtests.bench.figures import Round, Row, open_row, row_of
from loadtests.generators.bodies import RECORD_BYTES
from loadtests.generators.delivery import DeliveryOutcome, numbered_request
from loadtests.generators.generators import Generators
from loadtests.generators.load import Outcome
from loadtests.generators.open_loop import OpenOutcome, Schedule
from loadtests.generators.percentiles import latency_of
from loadtests.host import proc
from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import Server

PROOF_FACTOR = 2
PROOF_S = 1.5
PROOF_ATTEMPTS = 3  # other processes use the machine too; one good run shows the generator's capacity
KEPT_UP = 0.99
SEND_DELAY_MS_MAX = 2.0
TITLE = "produce to delivery, long poll"


def prove(rate: float, bare: Server, generators: Generators) -> str:
    """Returns one line on whether the open-loop generator sustains twice its later rate."""
    schedule = Schedule(rate=PROOF_FACTOR * rate, count=round(PROOF_FACTOR * rate * PROOF_S))
    host = urlsplit(bare.url).netloc
    body = numbered_request(host, "/", 0).partition(b"\r\n\r\n")[2]
    for _ in range(PROOF_ATTEMPTS):
        outcome = generators.run_open(bare.url, host, "/", body, schedule)
        if _keeps_up(outcome, schedule):
            break
    AdminClient(bare.url).request("DELETE", "/")
    is_proved, reached, delay_ms = _keeps_up(outcome, schedule), outcome.good / outcome.seconds, _send_delay_ms(outcome)
    return (
        f"Open-loop generator {'proved' if is_proved else 'not proved'} against the bare function: asked "
        f"{schedule.rate:,.0f}/s ({PROOF_FACTOR}x the target), reached {reached:,.0f}/s, sent within {delay_ms:.2f} ms "
        f"of the schedule at p99, {outcome.generator_cpu_s / outcome.seconds:.0%} of a core"
        + ("." if is_proved else f": needed {KEPT_UP:.0%} of it within {SEND_DELAY_MS_MAX:.0f} ms.")
    )


def _keeps_up(outcome: OpenOutcome, schedule: Schedule) -> bool:
    is_fast = outcome.good / outcome.seconds >= KEPT_UP * schedule.rate
    return outcome.bad == 0 and is_fast and _send_delay_ms(outcome) <= SEND_DELAY_MS_MAX


def _send_delay_ms(outcome: OpenOutcome) -> float:
    return latency_of(outcome.send_delays_us).p99_ms or 0.0


class Deliveries:
    """Measures the time of records from the schedule to the consumer."""

    def __init__(self, plan: Plan, node: Server, generators: Generators) -> None:
        self._seconds = plan.delivery_s
        self._node = node
        self._generators = generators
        self._control = AdminClient(node.url)
        self.checked = 0
        self.mismatches: list[str] = []

    def run(self, rate: float, show_status: Callable[[str], None], suffix: str = "") -> list[Row]:
        """Measures a row for each guarantee at `rate` records a second."""
        rows = []
        schedule = Schedule(rate, round(rate * self._seconds))
        for acks in DELIVERY_ACKS:
            show_status(f"{TITLE}, acks={acks}, {rate:,.0f}/s")
            key = f"delivery-{acks}{suffix}"
            outcome, sample = self._deliver(f"bench-{key}", acks, schedule)
            self._check(key, outcome)
            row = row_of(key, TITLE, "penstock", acks, [sample], [])
            rows.append(open_row(row, rate, outcome.produced.durations_us))
        return rows

    def _deliver(self, topic: str, acks: str, schedule: Schedule) -> tuple[DeliveryOutcome, Round]:
        self._control.create_topic(topic, TOPIC_CONFIG)
        before, machine, bench_before = proc.usage(self._node.pid), proc.machine_time(), proc.usage(os.getpid())
        started = time.perf_counter()
        outcome = self._generators.delivery(self._node.url, topic, acks, schedule)
        elapsed = time.perf_counter() - started
        after, busy_s = proc.usage(self._node.pid), proc.machine_time().busy_s - machine.busy_s
        others_s = busy_s - (proc.usage(os.getpid()).cpu_s - bench_before.cpu_s)
        self.checked += 1
        end, expected = self._control.wait_log_end(topic, outcome.produced.good), outcome.produced.good
        if end != expected:
            self.mismatches.append(f"{topic}: log end is {end}, acknowledged were {expected}")
        self._control.delete_topic(topic)
        produced = outcome.produced
        way = Outcome(
            good=produced.good,
            bad=produced.bad,
            seconds=produced.seconds,
            durations_us=outcome.delivered_us,
            answer_bytes=0,
            generator_cpu_s=produced.generator_cpu_s,
            what_went_wrong=outcome.what_went_wrong or produced.what_went_wrong,
        )
        return outcome, Round(
            outcome=way,
            records_each=1,
            body_bytes_each=RECORD_BYTES + 1,
            server_cpu_s=after.cpu_s - before.cpu_s,
            rss_bytes=after.rss_bytes,
            others_share=max(0.0, others_s / (elapsed * (os.cpu_count() or 1))),
        )

    def _check(self, key: str, outcome: DeliveryOutcome) -> None:
        self.checked += 1
        if outcome.what_went_wrong:
            self.mismatches.append(f"{key}: {outcome.what_went_wrong}")
        if outcome.produced.bad:
            self.mismatches.append(f"{key}: {outcome.produced.bad} produces failed: {outcome.produced.what_went_wrong}")
