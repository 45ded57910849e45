"""A token bucket with debt, in the form of the generic cell rate algorithm: one number says how full it is.

A bucket gains `rate` units a second, up to `burst_s` seconds of it. It may be overdrawn: a debit is never split, and
one that exceeds the balance leaves a debt that time pays. A sampled window would make its owner wait until a sample has
left it; a balance recovers with each moment (KIP-599). Times are those of any clock that does not go back.
Invariant: over any time t the debits that found no debt are at most rate × (t + burst_s), and the last one of them.
"""

from __future__ import annotations

ROUNDING_S = 1e-6  # a debt below it is one of floating point numbers
LOW = 0.2  # the share of its burst below which a bucket is low: clients learn of it then


class Bucket:
    """The balance of one owner in one dimension. `low_at` is the time at which a fifth of the burst is there.

    `asked` are the units that were debited or refused since a lender was last asked.
    """

    __slots__ = ("_low_s", "above_low_s", "asked", "burst_s", "low_at", "per_unit_s", "rate")

    def __init__(self, rate: float, burst_s: float = 1.0) -> None:
        self.low_at = float("-inf")  # full, whatever the clock says
        self.asked = 0.0
        self.burst_s = burst_s
        self._low_s = LOW * burst_s
        self.above_low_s = burst_s - self._low_s
        self.rate = rate
        self.per_unit_s = 1 / rate

    def __repr__(self) -> str:
        return f"Bucket(rate={self.rate:g}, burst_s={self.burst_s:g})"

    def debit(self, units: float, now: float) -> None:
        """Takes units, whether they are there or not."""
        self.asked += units
        full = now - self.above_low_s
        self.low_at = (max(full, self.low_at)) + units * self.per_unit_s

    def credit(self, units: float) -> None:
        """Gives units back that were debited and not used."""
        self.low_at -= units * self.per_unit_s

    def wait_s(self, now: float) -> float:
        """Returns the time until there is no debt; 0 if there is none."""
        wait_s = self.low_at - self._low_s - now
        return wait_s if wait_s > ROUNDING_S else 0.0

    def balance(self, now: float) -> float:
        """Returns the units that are there; of a debt a negative number."""
        return (self.burst_s - max(self.low_at + self.above_low_s - now, 0.0)) * self.rate

    def full_in_s(self, now: float) -> float:
        """Returns the time until it is full."""
        return max(self.low_at + self.above_low_s - now, 0.0)

    def change_rate(self, rate: float, now: float) -> None:
        """Fills it at another rate from now on. A debt keeps its units; a balance is cut to the new burst."""
        if rate != self.rate:
            balance = min(self.balance(now), self.burst_s * rate)
            self.rate = rate
            self.per_unit_s = 1 / rate
            self.low_at = now - self.above_low_s + (self.burst_s * rate - balance) * self.per_unit_s
