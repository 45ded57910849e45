"""Measures cells round by round, with the CPU time of the servers, and checks each log afterwards.

The cells of a work run one after the other, and every other round in the reverse order. Before the first round of a
cell its server is warmed up with the same load, since a JVM compiles what it runs often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadtests.bench.entrants.session import Entrant, Session
from loadtests.bench.figures import COMPILER_SHARE_MAX, Round
from loadtests.bench.works import Cell, Plan
from loadtests.generators.load import GeneratorFailed
from loadtests.generators.percentiles import latency_of
from loadtests.host import proc
from loadtests.peers.processes import PeerFailed

ROUND_BYTES_MAX = 1 << 29  # that a round leaves on the disk or in memory
FAILURES = (GeneratorFailed, PeerFailed, RuntimeError, OSError)  # of a generator, of a server's answer
WARM_UP_RECORDS, WARM_UP_REQUESTS_MIN = 64, 4  # of the first run, which shows how long a longer one takes
WARM_UP_GROWTH = 3
WARM_UP_RUN_S = 1.0
COMPILER_THREAD = "CompilerThre"  # "C2 CompilerThread0" as the kernel cuts it
SETTLE_S = 0.2  # for the after-effects of a cell: deleted files, a last flush


@dataclass(frozen=True, slots=True)
class Measured:
    """The rounds of each cell by its key, and what was checked."""

    rounds: Mapping[str, Sequence[Round]]
    checked: int
    problems: tuple[str, ...]


class Rounds:
    """The servers, and what has been measured so far."""

    def __init__(self, plan: Plan, entrants: Mapping[str, Entrant]) -> None:
        self._plan = plan
        self._entrants = entrants
        self._rates: dict[str, float] = {}
        self._rounds: dict[str, list[Round]] = {}
        self._checked = 0
        self._problems: list[str] = []

    def run(self, works: Sequence[Sequence[Cell]], deadline: float, show_status: Callable[[str], None]) -> Measured:
        """Runs all rounds; after the deadline (of time.monotonic) no work begins a round but the first.

        A cell that fails is reported and left out from then on, so that a long run is not lost.
        """
        failed: set[str] = set()
        for number in range(self._plan.rounds):
            for cells in works:
                if number and time.monotonic() > deadline:
                    break
                for cell in cells if number % 2 == 0 else cells[::-1]:
                    if cell.key in failed:
                        continue
                    show_status(f"round {number + 1} of {self._plan.rounds}: {cell.key}")
                    try:
                        self._rounds.setdefault(cell.key, []).append(self._round(cell))
                    except FAILURES as error:
                        failed.add(cell.key)
                        self._problems.append(f"{cell.key} failed: {error}")
        return Measured(self._rounds, self._checked, tuple(self._problems))

    def _round(self, cell: Cell) -> Round:
        if cell.key not in self._rates:
            self._warm_up(cell)
        return self._in_session(cell, lambda session: self._measure(cell, session, self._requests(cell, session)))

    def _in_session(self, cell: Cell, work: Callable[[Session], Round]) -> Round:
        """Opens a session, runs it, checks its log, closes it."""
        session = self._entrants[cell.server].session(cell)
        try:
            done = work(session)
            self._checked += 1
            if problem := session.problem():
                self._problems.append(f"{cell.key}: {problem}")
        finally:
            session.close()
        time.sleep(SETTLE_S)
        return done

    def _warm_up(self, cell: Cell) -> None:
        """Runs for the plan's time, on a JVM until it compiles no more, and notes the rate."""
        started = time.perf_counter()

        def is_over(last: Round) -> bool:
            elapsed = time.perf_counter() - started
            is_warm = elapsed >= self._plan.warm_up_s and last.compiler_share < COMPILER_SHARE_MAX
            return is_warm or elapsed >= self._plan.jvm_warm_up_s or not last.records

        if cell.work.kind == "delivery":  # each run needs an empty log
            while not is_over(self._in_session(cell, lambda opened: self._measure(cell, opened, opened.requests_max))):
                pass
        else:
            self._in_session(cell, lambda session: self._grow(cell, session, is_over))

    def _grow(self, cell: Cell, session: Session, is_over: Callable[[Round], bool]) -> Round:
        """Runs with ever more requests, until a run takes about a second."""
        requests = _fitting(session, max(WARM_UP_REQUESTS_MIN, round(WARM_UP_RECORDS / session.records_each)))
        while not is_over(last := self._measure(cell, session, requests)):
            longest = max(1, round(self._rates[cell.key] * max(self._plan.warm_up_s, WARM_UP_RUN_S)))
            requests = _fitting(session, min(requests * WARM_UP_GROWTH, longest))
        return last

    def _requests(self, cell: Cell, session: Session) -> int:
        """Returns the number of requests of a round."""
        if cell.work.kind == "delivery":
            return session.requests_max
        requests = round(self._rates[cell.key] * self._plan.round_s)
        if cell.work.kind == "produce":
            requests = min(requests, round(ROUND_BYTES_MAX / (session.records_each * cell.work.record_bytes)))
        return _fitting(session, requests)

    def _measure(self, cell: Cell, session: Session, requests: int) -> Round:
        pid = self._entrants[cell.server].pid(cell)
        before, compiler = proc.usage(pid).cpu_s, _compiler_s(pid)
        others = proc.Others()
        counted = session.run(requests)
        server_cpu_s, compiler_s = proc.usage(pid).cpu_s - before, _compiler_s(pid) - compiler
        others_share = others.share()
        outcome = counted.outcome
        latency = counted.latency or latency_of(outcome.durations_us)
        self._rates[cell.key] = max(1, outcome.good) / outcome.seconds
        return Round(
            records=counted.records,
            seconds=outcome.seconds,
            server_cpu_s=server_cpu_s,
            p50_ms=latency.p50_ms,
            p99_ms=latency.p99_ms,
            generator_share=outcome.generator_cpu_s / outcome.seconds,
            others_share=others_share,
            compiler_share=max(0.0, compiler_s / server_cpu_s) if server_cpu_s else 0.0,
        )


def _fitting(session: Session, requests: int) -> int:
    """Returns the number of requests nearest to `requests` that a session can run."""
    step = session.requests_step
    return min(session.requests_max, max(1, round(requests / step)) * step)


def _compiler_s(pid: int) -> float:
    """Returns the CPU of a JVM's compiler threads; 0 for other servers."""
    return sum(cpu_s for name, cpu_s in proc.thread_cpu_s(pid).items() if COMPILER_THREAD in name)
