"""Shares of a limit among processes: a lender divides it by demand, and borrowers report theirs at each interval.

A process that has no share uses the even split of the limit, never all of it. It reports its demand while it has any:
what was taken and what was refused. The answer is its share: a small floor, and of the rest a part by demand. A share
lives `LIFE_S`; without a new one its process falls back to the even split. The lender counts what each process may
still use, so that the shares of all never exceed the limit: a share grows once the others have the answers that made
theirs smaller. It counts the even split for a process that had a demand and is silent, and the floor for one that has
reported none. A lender that has just begun counts the even split for each process that has not reported to it.

Invariant: all shares together are at most the limit, but for one interval after a process that had no demand begins,
joins, or loses its lender. Clocks are each process's own; only durations matter.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple

LIFE_S = 5.0  # of a share
FLOOR = 0.05  # of the even split, whatever the demand is: a process that begins is never at 0
SILENT_INTERVALS = 2  # without a report, after which the lender counts the even split
FADING = 0.5  # of an earlier demand in each interval: refused clients wait before they come again


class _Loan(NamedTuple):
    """The last share of one borrower, and the demand for which it has it."""

    share: float
    demand: float
    at: float


class Lender:
    """Divides one limit. Borrowers are known by any values; `interval_s` is the time between their reports."""

    def __init__(self, interval_s: float, began_at: float) -> None:
        """`began_at`: until then another lender may have granted shares."""
        self._interval_s = interval_s
        self._began_at = self.used_at = began_at
        self._loans: dict[Hashable, _Loan] = {}

    def __repr__(self) -> str:
        return f"Lender({self._loans})"

    def lend(self, limit: float, borrower: Hashable, demand: float, members: Collection[Hashable], now: float) -> float:
        """Returns the share of a borrower that reports a demand, in units of the limit. `members` are all processes."""
        self.used_at = now
        for gone in self._loans.keys() - set(members):
            del self._loans[gone]
        even = limit / max(len(members), 1)
        before = self._loans.get(borrower)
        if before is not None and demand:
            demand = max(demand, before.demand * FADING)
        held, kept, total = 0.0, 0.0, demand  # kept: of it what no report will make smaller
        for other in members:
            if other != borrower:
                loan = self._loans.get(other)
                of_other = self._held(loan, even, now)
                held += of_other
                if loan is None or not loan.demand or self._is_silent(loan, now):
                    kept += of_other
                else:
                    total += loan.demand
        floor = even * FLOOR
        target = max((limit - kept) * demand / total, floor) if demand else floor
        share = min(target, max(limit - held, floor))
        self._loans[borrower] = _Loan(share, demand, now)
        return share

    def _held(self, loan: _Loan | None, even: float, now: float) -> float:
        """Returns what another process may use, which has this loan."""
        if loan is None:
            return even if now - self._began_at < LIFE_S else 0.0
        return max(loan.share, even) if loan.demand and self._is_silent(loan, now) else loan.share

    def _is_silent(self, loan: _Loan, now: float) -> bool:
        return now - loan.at > SILENT_INTERVALS * self._interval_s


class Borrower:
    """The share of one process of one limit: the even split until a lender grants another one.

    `has_demand`: the last report had one.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._granted_at = float("-inf")
        self._reported_at = float("-inf")
        self.has_demand = False

    def __repr__(self) -> str:
        return f"Borrower(granted_at={self._granted_at})"

    def demand(self, asked: float, now: float) -> float | None:
        """Returns the demand to report now, in units a second; None: it is not time, or there is nothing to say."""
        if not asked:
            if not self.has_demand or now - self._reported_at < self._interval_s:
                return None
            self.has_demand = False
            self._reported_at = now
            return 0.0
        since_s = now - self._reported_at
        if self.has_demand and since_s < self._interval_s:
            return None
        self.has_demand = True
        self._reported_at = now
        return asked / min(max(since_s, 1e-3), self._interval_s)

    def is_alone(self, now: float) -> bool:
        """Returns whether its share has ended, so that it has the even split."""
        return not 0 <= now - self._granted_at < LIFE_S

    def grant(self, now: float) -> None:
        """Follows a share that was granted for the report of this time."""
        self._granted_at = now
