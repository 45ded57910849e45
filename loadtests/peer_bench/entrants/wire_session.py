"""A session over any `Wire`: the closed loop runs in the generator's process, the log is counted after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from loadtests.generators.generators import Generators
from loadtests.generators.load import Outcome
from loadtests.generators.open_loop import Schedule
from loadtests.generators.wire import WireDelivery, WireLoad
from loadtests.generators.wire_delivery import deliver_over
from loadtests.generators.wire_loop import run_wire_loop
from loadtests.peer_bench.entrants.session import Counted

RUN_S = 120.0
UNBOUNDED = 1 << 40


class WireSession:
    """Closed loops at one log. `count` counts the log; without it, what is read is checked by the wire."""

    requests_step = 1

    def __init__(
        self,
        generators: Generators,
        make_load: Callable[[], WireLoad],
        records_each: float,
        *,
        count: Callable[[], int] | None = None,
        close: Callable[[], None] = lambda: None,
        requests_max: int = UNBOUNDED,
    ) -> None:
        self._generators = generators
        self._make_load = make_load
        self._count = count
        self._close = close
        self._acknowledged = 0
        self._problem = ""
        self.records_each = records_each
        self.requests_max = requests_max

    def run(self, requests: int) -> Counted:
        done = self._generators.in_child(RUN_S, partial(run_wire_loop, self._make_load(), requests))
        self._acknowledged += done.records
        if done.outcome.bad:
            self._problem = f"{done.outcome.bad} requests failed: {done.outcome.what_went_wrong}"
        return Counted(done.outcome, done.records)

    def problem(self) -> str:
        if self._problem or self._count is None:
            return self._problem
        stored = self._count()
        return "" if stored == self._acknowledged else f"the log has {stored} records, acked were {self._acknowledged}"

    def close(self) -> None:
        self._close()


class WireDeliverySession:
    """One open loop at an empty log."""

    requests_step = 1
    records_each = 1.0

    def __init__(
        self,
        generators: Generators,
        delivery: WireDelivery,
        rate: float,
        *,
        count: Callable[[], int],
        close: Callable[[], None],
        requests_max: int,
    ) -> None:
        self._generators = generators
        self._delivery = delivery
        self._rate = rate
        self._count = count
        self._close = close
        self._problem = ""
        self.requests_max = requests_max

    def run(self, requests: int) -> Counted:
        schedule = Schedule(self._rate, requests)
        done = self._generators.in_child(
            RUN_S + schedule.offset_s(requests), partial(deliver_over, self._delivery, schedule)
        )
        produced = done.produced
        self._problem = done.what_went_wrong or produced.what_went_wrong
        if not self._problem and (stored := self._count()) != produced.good:
            self._problem = f"the log has {stored} records, acked were {produced.good}"
        return Counted(delivered(done.delivered_us, produced.seconds, produced.generator_cpu_s), len(done.delivered_us))

    def problem(self) -> str:
        return self._problem

    def close(self) -> None:
        self._close()


def delivered(delivered_us: list[int], seconds: float, cpu_s: float) -> Outcome:
    """Returns the outcome of an open loop: its durations are those of the deliveries."""
    return Outcome(
        good=len(delivered_us), bad=0, seconds=seconds, durations_us=delivered_us, answer_bytes=0, generator_cpu_s=cpu_s
    )
