"""Bounds wrong credentials by address: after too many, an address waits before the next one is looked at.

Only failures count, so that a client with a good credential never waits for itself; no principal is ever locked, which
would be a switch for anyone on the network. A connection whose credential is known goes on (gateway/access/access.py).
Each process counts for itself: a node of n shards takes n times as many. A core: it is given times of a clock that does
not go back.
Invariant: at most ADDRESSES_MAX addresses are kept; the one that has failed the longest ago goes first.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from math import ceil

from gateway.access.rules import Address
from gateway.http.problems import Problem
from gateway.quotas.bucket import Bucket

ADDRESSES_MAX = 10_000  # about 3 MB
ROUNDING = 1e-6


class TooManyAttempts(Problem):
    """A credential was not looked at."""


class Attempts:
    """The wrong credentials of one process: `per_second` for each address, and `burst` at once."""

    def __init__(self, per_second: int, burst: int) -> None:
        self._per_second = per_second
        self._burst_s = burst / per_second
        self._buckets: dict[int | None, Bucket] = {}  # in the order of last failures
        self.refused = self.limited = 0

    def __repr__(self) -> str:
        return f"Attempts(addresses={self.addresses}, refused={self.refused}, limited={self.limited})"

    def check(self, address: Address | None, now: float) -> None:
        """Checks that a credential from this address may be looked at. Raises TooManyAttempts."""
        bucket = self._buckets.get(_key(address))
        if bucket is not None and (missing := 1 - bucket.balance(now)) > ROUNDING:
            self.limited += 1
            seconds = ceil(missing * bucket.per_unit_s)
            text = f"too many wrong credentials came from this address: send the next one in {seconds} s"
            raise TooManyAttempts("too_many_requests", text, headers={"Retry-After": str(seconds)})

    def fail(self, address: Address | None, now: float) -> None:
        """Notes that a credential from this address was refused."""
        self.refused += 1
        key, buckets = _key(address), self._buckets
        bucket = buckets.pop(key, None) or Bucket(self._per_second, self._burst_s)
        bucket.debit(1, now)
        buckets[key] = bucket
        while buckets[oldest := next(iter(buckets))].full_in_s(now) <= 0:
            del buckets[oldest]
        if len(buckets) > ADDRESSES_MAX:
            del buckets[next(iter(buckets))]

    @property
    def addresses(self) -> int:
        return len(self._buckets)


def _key(address: Address | None) -> int | None:
    """Returns what attempts are counted by: an IPv4 address, or the network of 64 bits that one client has."""
    if isinstance(address, IPv6Address):
        return -1 - (int(address) >> 64)
    return None if address is None else int(address)
