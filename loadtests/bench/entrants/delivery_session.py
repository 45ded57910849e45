"""A session of one open loop at an empty log, in the generator's process. The log is counted after it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from loadtests.bench.entrants.session import RUN_S, Counted
from loadtests.bench.works import Plan
from loadtests.generators.delivery import DeliveryOutcome
from loadtests.generators.generators import Generators
from loadtests.generators.load import Outcome
from loadtests.generators.open_loop import Schedule

Deliver = Callable[[Schedule], Coroutine[Any, Any, DeliveryOutcome]]


class DeliverySession:
    """One open loop. `deliver` is pickled; `count` takes what was acknowledged and counts the log."""

    requests_step = 1
    records_each = 1.0

    def __init__(
        self,
        generators: Generators,
        deliver: Deliver,
        plan: Plan,
        *,
        count: Callable[[int], int],
        close: Callable[[], None],
    ) -> None:
        self._generators = generators
        self._deliver = deliver
        self._rate = plan.delivery_rate
        self._count = count
        self._close = close
        self._problem = ""
        self.requests_max = round(plan.delivery_rate * plan.delivery_s)

    def run(self, requests: int) -> Counted:
        schedule = Schedule(self._rate, requests)
        done = self._generators.in_child(RUN_S + schedule.offset_s(requests), partial(self._deliver, schedule))
        produced = done.produced
        self._problem = done.what_went_wrong or produced.what_went_wrong
        if not self._problem and (stored := self._count(produced.good)) != produced.good:
            self._problem = f"the log has {stored} records, acked were {produced.good}"
        outcome = Outcome(
            good=len(done.delivered_us),
            bad=0,
            seconds=produced.seconds,
            durations_us=done.delivered_us,
            answer_bytes=0,
            generator_cpu_s=produced.generator_cpu_s,
        )
        return Counted(outcome, len(done.delivered_us))

    def problem(self) -> str:
        return self._problem

    def close(self) -> None:
        self._close()
