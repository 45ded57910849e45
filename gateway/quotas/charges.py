"""The use of owners, and the debits of a request to all of its owners at once.

A request is admitted if no bucket of its owners has a debt. One that would wait for a short time is delayed; one that
would wait longer, or behind too many others of an owner, is refused and debits nothing. The balances are checked before
anything is debited. Invariant: a request that is refused leaves no trace but the count of refused ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.quotas.bucket import Bucket
from gateway.quotas.lent_shares import Borrower
from gateway.quotas.quota import COUNTS, RATES, Dimension, Owner, Quota

PARKED_MAX = 64  # delayed requests of one owner; more would only wait for each other
PREPAID_S = 0.002  # for less, little is saved; for more, owners with several busy clients would wait for each other
PREPAID_MAX = 64
CONTROL_FACTOR = 10  # heartbeats and commits have a bucket of their own, with this many times the requests


class OwnerUse:
    """The use that one owner makes of its quota in this process. `open` are its connections and long polls."""

    __slots__ = ("_borrowers", "asked", "buckets", "control", "counts", "name", "open", "owner", "parked", "quota")

    def __init__(self, quota: Quota, owner: Owner, name: str, part: float = 1.0) -> None:
        """`part`: the share of the limits that this process has, until a lender grants another one."""
        self.owner = owner
        self.name = name
        self.parked = 0
        self.open = dict.fromkeys(COUNTS, 0)
        self.use(quota, part)

    def __repr__(self) -> str:
        return f"OwnerUse({self.owner}, {self.name}, {self.buckets})"

    def use(self, quota: Quota, part: float) -> None:
        """Follows a quota from now on, with full buckets."""
        self.quota = quota
        self.buckets: dict[Dimension, Bucket] = {}
        self.counts: dict[Dimension, float] = {}  # the limits of what is open
        self._borrowers: dict[Dimension, Borrower] = {}
        self.asked = dict.fromkeys(COUNTS, 0)  # refused openings since the last report to a lender
        for dimension in RATES:
            if (limit := quota.limit(dimension)) is not None:
                self.buckets[dimension] = Bucket(limit * part, quota.burst_s)
        for dimension in COUNTS:
            if (limit := quota.limit(dimension)) is not None:
                self.counts[dimension] = limit * part
        requests = quota.requests
        self.control = None if requests is None else Bucket(requests * part * CONTROL_FACTOR, quota.burst_s)

    def may_report(self) -> bool:
        """Returns whether there may be a demand to report."""
        if any(bucket.asked for bucket in self.buckets.values()):
            return True
        is_counted = any(self.open[dimension] or self.asked[dimension] for dimension in self.counts)
        return is_counted or any(borrower.has_demand for borrower in self._borrowers.values())

    def demands(self, interval_s: float, now: float) -> Iterator[tuple[Dimension, float]]:
        """Yields the demands that are to be reported to a lender now."""
        for dimension in (*self.buckets, *self.counts):
            borrower = self._borrowers.get(dimension)
            if borrower is None:
                borrower = self._borrowers[dimension] = Borrower(interval_s)
            bucket = self.buckets.get(dimension)
            asked = self.open[dimension] + self.asked[dimension] if bucket is None else bucket.asked
            demand = borrower.demand(asked, now)
            if demand is None:
                continue
            if bucket is None:
                self.asked[dimension] = 0
                yield dimension, asked
            else:
                bucket.asked = 0.0
                yield dimension, demand

    def follow_share(self, dimension: Dimension, share: float | None, parts: int, asked_at: float, now: float) -> None:
        """Follows a share that a lender has granted. None: it has not, and a share that has ended is the even one."""
        borrower, limit = self._borrowers.get(dimension), self.quota.limit(dimension)
        if borrower is None or limit is None:  # the quota was changed meanwhile
            return
        if share is not None:
            borrower.grant(asked_at)
        elif borrower.is_alone(now):
            share = limit / parts
        else:
            return
        if dimension in self.counts:
            self.counts[dimension] = share
        else:
            self.buckets[dimension].change_rate(share, now)
            if dimension is Dimension.REQUESTS and self.control is not None:
                self.control.change_rate(share * CONTROL_FACTOR, now)

    def is_idle(self, now: float) -> bool:
        """Returns whether nothing is lost if it is made again."""
        is_open = self.parked or any(self.open.values())
        return not is_open and all(bucket.full_in_s(now) == 0 for bucket in self.buckets.values())


class Policy(NamedTuple):
    """The state of one limit, as clients see it. `reset_s`: until it has no debt, or is full again."""

    dimension: Dimension
    owner: Owner
    name: str
    limit: float
    window_s: int
    remaining: float
    reset_s: float


class Verdict(NamedTuple):
    """The decision about one request: it waits so long, or is refused. `low`: the limits that are low or overdrawn."""

    wait_s: float
    is_refused: bool
    low: tuple[Policy, ...]
    violated: tuple[Policy, ...] = ()
    is_crowded: bool = False  # too many requests of an owner wait already


class Prepaid:
    """The debits of busy charges for requests that are likely to follow within `PREPAID_S`.

    Most requests of a busy client then take from three numbers, in place of each bucket of each owner. A request that
    is not there in time is paid back by the next one, so that at most as much as one moment's use is debited too much.
    """

    __slots__ = ("_count", "_granted_at", "answered_bytes", "bytes_in", "bytes_out", "ends_at", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes_in = self.bytes_out = 0
        self.answered_bytes = 0  # since the last grant
        self.ends_at = self._granted_at = -math.inf
        self._count = 0

    def __repr__(self) -> str:
        return f"Prepaid(requests={self.requests}, bytes_in={self.bytes_in}, bytes_out={self.bytes_out})"

    def expect(self, now: float) -> tuple[int, int]:
        """Returns how many requests are expected from now on, this one among them, and the bytes of their answers."""
        if now - self._granted_at >= 2 * PREPAID_S:
            return 1, 0
        came = self._count - self.requests
        if now < self.ends_at:  # more came than were expected
            return min(2 * came, PREPAID_MAX), 2 * self.answered_bytes
        return came, self.answered_bytes

    def grant(self, now: float, count: int, size_bytes: int, bytes_out: int) -> None:
        """Holds what was debited for `count` requests with bodies of this size. The first one is there."""
        self._count, self._granted_at, self.ends_at = count, now, now + PREPAID_S
        self.requests = count - 1
        self.bytes_in = (count - 1) * size_bytes
        self.bytes_out, self.answered_bytes = bytes_out, 0


class Charges:
    """The buckets that the requests of one caller with one client id to one operation of one topic debit.

    `is_plain`: a request debits rates known at its beginning and its end, and nothing else is to be done about it.
    """

    __slots__ = ("_bytes_in", "_control", "_requests", "bytes_out", "counts_connections", "counts_polls",
                 "is_control", "is_plain", "loop", "names_topics", "prepaid", "rates", "uses")  # fmt: skip

    def __init__(self, uses: Sequence[OwnerUse], *, is_control: bool = False, names_topics: bool = False) -> None:
        """`is_control`: its requests are heartbeats or commits. `names_topics`: their bodies name topics."""
        self.uses = tuple(uses)
        self.is_control = is_control
        self.names_topics = names_topics
        self._requests, self._bytes_in, self.bytes_out, self.loop = (self._of(dimension) for dimension in RATES)
        self.rates = (*self._requests, *self._bytes_in, *self.bytes_out, *self.loop)
        self.counts_connections = any(Dimension.CONNECTIONS in use.counts for use in uses)
        self.counts_polls = any(Dimension.LONG_POLLS in use.counts for use in uses)
        is_counted = self.counts_connections or self.counts_polls
        self.is_plain = bool(uses) and not (is_control or names_topics or self.loop or is_counted)
        self._control = tuple(use.control for use in uses if use.control is not None)
        self.prepaid = Prepaid()

    def __repr__(self) -> str:
        return f"Charges({self.uses})"

    def enter_at_once(self, now: float, size_bytes: int) -> bool:
        """Debits a request and the announced bytes of its body; nothing, and returns False, if a limit is low."""
        prepaid = self.prepaid
        bytes_left = prepaid.bytes_in - size_bytes
        if bytes_left >= 0 and prepaid.requests and now < prepaid.ends_at:
            prepaid.bytes_in = bytes_left
            prepaid.requests -= 1
            return True
        return self._enter_and_prepay(now, size_bytes)

    def _enter_and_prepay(self, now: float, size_bytes: int) -> bool:
        """Debits a request, and those that are likely to follow at once, unless a limit is low or would be."""
        prepaid = self.prepaid
        count, bytes_out = prepaid.expect(now)
        self._return_prepaid(prepaid)
        if any(bucket.low_at > now for bucket in self.rates):
            return False
        if count > 1 and not self._leaves_room(now, count, count * size_bytes, bytes_out):
            count = 1
        if count == 1:
            bytes_out = 0
        for bucket in self._requests:
            bucket.debit(count, now)
        for bucket in self._bytes_in:
            bucket.debit(count * size_bytes, now)
        if bytes_out:
            for bucket in self.bytes_out:
                bucket.debit(bytes_out, now)
        prepaid.grant(now, count, size_bytes, bytes_out)
        return True

    def _leaves_room(self, now: float, requests: int, bytes_in: int, bytes_out: int) -> bool:
        """Returns whether no limit is low after this use."""
        amounts = ((self._requests, requests), (self._bytes_in, bytes_in), (self.bytes_out, bytes_out))
        return all(
            bucket.low_at + amount * bucket.per_unit_s <= now and amount * bucket.per_unit_s <= bucket.above_low_s
            for buckets, amount in amounts
            for bucket in buckets
        )

    def _return_prepaid(self, prepaid: Prepaid) -> None:
        """Gives back what was debited for requests that have not come."""
        amounts = (
            (prepaid.requests, self._requests),
            (prepaid.bytes_in, self._bytes_in),
            (prepaid.bytes_out, self.bytes_out),
        )
        for amount, buckets in amounts:
            for bucket in buckets if amount else ():
                bucket.credit(amount)
                bucket.asked = max(bucket.asked - amount, 0.0)
        prepaid.requests = prepaid.bytes_in = prepaid.bytes_out = 0

    def enter(self, now: float, size_bytes: int, longest_wait_s: float) -> Verdict | None:
        """Debits a request and the announced bytes of its body. None: it is admitted, and no limit is low."""
        return None if self.enter_at_once(now, size_bytes) else self._decide(now, size_bytes, longest_wait_s)

    def enter_control(self, now: float) -> Verdict | None:
        """Debits a heartbeat or a commit, which has a bucket of its own. None: it is admitted."""
        wait_s = max((bucket.wait_s(now) for bucket in self._control), default=0.0)
        if wait_s > 0:
            violated = tuple(
                _policy(use, Dimension.REQUESTS, use.control, now)
                for use in self.uses
                if use.control is not None and use.control.wait_s(now) > 0
            )
            return Verdict(wait_s, True, violated, violated)
        for bucket in self._control:
            bucket.debit(1, now)
        return None

    def take_in(self, now: float, size_bytes: int) -> None:
        """Debits bytes of a body that were not announced."""
        for bucket in self._bytes_in:
            bucket.debit(size_bytes, now)

    def return_in(self, size_bytes: int) -> None:
        """Gives announced bytes back that were not sent, or that repeated an answer."""
        for bucket in self._bytes_in:
            bucket.credit(size_bytes)

    def excess_wait_s(self, now: float, own_bytes: int) -> float:
        """Returns the time until the bodies of others are paid, beside `own_bytes` of one that is being received."""
        return max((bucket.wait_s(now) - own_bytes * bucket.per_unit_s for bucket in self._bytes_in), default=0.0)

    def take_out(self, now: float, size_bytes: int) -> None:
        """Debits bytes of an answer."""
        prepaid = self.prepaid
        prepaid.answered_bytes += size_bytes
        bytes_left = prepaid.bytes_out - size_bytes
        if bytes_left >= 0:
            prepaid.bytes_out = bytes_left
            return
        for bucket in self.bytes_out:
            bucket.debit(size_bytes, now)

    def take_loop(self, now: float, seconds: float) -> None:
        for bucket in self.loop:
            bucket.debit(seconds * 1000, now)

    def wait_s(self, now: float) -> float:
        """Returns the time until no bucket has a debt."""
        return max((bucket.wait_s(now) for bucket in self.rates), default=0.0)

    def violated(self, now: float) -> tuple[Policy, ...]:
        """Returns the limits with a debt."""
        return tuple(policy for policy in self._low(now) if policy.remaining < 0)

    def open_one(self, dimension: Dimension) -> Verdict | None:
        """Counts a connection or a long poll until `close_one`. None: it is within all limits."""
        full = [
            use
            for use in self.uses
            if dimension in use.counts and use.open[dimension] >= max(round(use.counts[dimension]), 1)
        ]
        for use in self.uses:
            use.asked[dimension] += 1
        if full:
            violated = tuple(
                Policy(dimension, use.owner, use.name, limit, 0, limit - use.open[dimension], 1.0)
                for use in full
                if (limit := use.quota.limit(dimension)) is not None
            )
            return Verdict(1.0, True, violated, violated)
        for use in self.uses:
            use.open[dimension] += 1
        return None

    def close_one(self, dimension: Dimension) -> None:
        for use in self.uses:
            use.open[dimension] -= 1

    def park(self) -> None:
        """Counts a request that waits, until `unpark`."""
        for use in self.uses:
            use.parked += 1

    def unpark(self) -> None:
        for use in self.uses:
            use.parked -= 1

    def _decide(self, now: float, size_bytes: int, longest_wait_s: float) -> Verdict:
        wait_s = self.wait_s(now)
        is_crowded = wait_s > 0 and any(use.parked >= PARKED_MAX for use in self.uses)
        if wait_s > longest_wait_s or is_crowded:
            for bucket in self._requests:
                bucket.asked += 1
            for bucket in self._bytes_in:
                bucket.asked += size_bytes
            return Verdict(wait_s, True, self._low(now), self.violated(now), is_crowded)
        for bucket in self._requests:
            bucket.debit(1, now)
        for bucket in self._bytes_in:
            bucket.debit(size_bytes, now)
        return Verdict(wait_s, False, self._low(now), self.violated(now) if wait_s else ())

    def _low(self, now: float) -> tuple[Policy, ...]:
        """Returns the limits that are low: of each dimension the tightest, and in the order of dimensions."""
        found: dict[Dimension, Policy] = {}
        for use in self.uses:
            for dimension, bucket in use.buckets.items():
                if bucket.low_at > now:
                    policy = _policy(use, dimension, bucket, now)
                    other = found.get(dimension)
                    if other is None or policy.reset_s > other.reset_s:
                        found[dimension] = policy
        return tuple(found[dimension] for dimension in RATES if dimension in found)

    def _of(self, dimension: Dimension) -> tuple[Bucket, ...]:
        return tuple(use.buckets[dimension] for use in self.uses if dimension in use.buckets)


NOTHING = Charges(())


def _policy(use: OwnerUse, dimension: Dimension, bucket: Bucket, now: float) -> Policy:
    limit = use.quota.limit(dimension)
    assert limit is not None, use
    window_s = max(math.ceil(bucket.burst_s), math.ceil(1 / limit))
    share = bucket.balance(now) / (bucket.burst_s * bucket.rate)
    wait_s = bucket.wait_s(now)
    reset_s = wait_s if wait_s > 0 else bucket.full_in_s(now)
    return Policy(dimension, use.owner, use.name, limit, window_s, share * limit * window_s, reset_s)
