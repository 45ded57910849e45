"""The most topics and partitions that the names with one beginning may have. Values and their check, without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.errors import QuotaExhausted


class Count(NamedTuple):
    """How many topics and partitions there are, or come."""

    topics: int
    partitions: int


class Ceiling(NamedTuple):
    """The ceiling of the topics whose names begin with `owner` and a dot. None: there is none."""

    owner: str
    topics: int | None = None
    partitions: int | None = None

    def check(self, used: Count, added: Count) -> None:
        """Raises QuotaExhausted."""
        for quota in Count._fields:
            limit, before, more = getattr(self, quota), getattr(used, quota), getattr(added, quota)
            if limit is not None and more > 0:
                check_quota(quota, limit, before, more)


def check_quota(quota: str, limit: int, used: int, more: int = 1) -> None:
    """Raises QuotaExhausted unless `more` is left below the limit."""
    if used + more > limit:
        what = quota.replace("_", " ")
        text = f"there are {used} {what} of {limit}, and this needs {more} more"
        raise QuotaExhausted(text, hint="delete some, or ask the operator", quota=quota, limit=limit, used=used)


def owner_of(name: str) -> str | None:
    """Returns the owner that a name begins with; None: it has no dot."""
    owner, dot, _ = name.partition(".")
    return owner if dot else None


def count_of(owner: str, topics: Iterable[tuple[str, int]]) -> Count:
    """Counts those of an owner among topics, given by name and partitions."""
    sizes = [partitions for name, partitions in topics if name.startswith(f"{owner}.")]
    return Count(len(sizes), sum(sizes))
