"""Debits topics that the body of a request names: by the records that it sends, or by those that its answer has."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf

from gateway.quotas.charges import NOTHING, Verdict
from gateway.quotas.quota import Dimension
from gateway.quotas.quotas import Quotas


class TopicMeter:
    """The quotas of topics. `refuse` makes the error of a refusal, `throttled` counts waits by the field of a limit."""

    def __init__(
        self, quotas: Quotas, refuse: Callable[[Verdict], Exception], throttled: Counter[str], delay_s_max: float
    ) -> None:
        self._quotas = quotas
        self._refuse = refuse
        self._throttled = throttled
        self._delay_s_max = delay_s_max

    def __repr__(self) -> str:
        return f"TopicMeter({self._quotas})"

    def take(self, size_bytes: Mapping[str, int]) -> None:
        """Debits the topics of a body of records, or none of them. Raises Problem quota_exceeded."""
        now = time.perf_counter()
        topics = [(self._quotas.charges_of_topic(topic, now), size) for topic, size in size_bytes.items()]
        for charges, _ in topics:
            if (wait_s := charges.wait_s(now)) > self._delay_s_max:
                violated = charges.violated(now)
                raise self._refuse(Verdict(wait_s, True, violated, violated))
        for charges, size in topics:
            charges.enter(now, size, inf)

    def debt_s(self, topics: Iterable[str]) -> float:
        """Returns the time until no topic has a debt. Counts a wait, if there is one."""
        now = time.perf_counter()
        wait_s = max((self._quotas.charges_of_topic(topic, now).wait_s(now) for topic in topics), default=0.0)
        self._throttled[Dimension.BYTES_OUT.field] += wait_s > 0
        return wait_s

    async def wait_readable(self, topics: Iterable[str]) -> None:
        """Waits until no topic has a debt. Raises Problem quota_exceeded if that takes too long."""
        now = time.perf_counter()
        every = [self._quotas.charges_of_topic(topic, now) for topic in topics]
        charges = max(every, key=lambda one: one.wait_s(now), default=NOTHING)
        wait_s = charges.wait_s(now)
        if wait_s > self._delay_s_max:
            violated = charges.violated(now)
            raise self._refuse(Verdict(wait_s, True, violated, violated))
        if wait_s > 0:
            self._throttled[Dimension.BYTES_OUT.field] += 1
            await asyncio.sleep(wait_s)

    def take_read(self, topic: str, size_bytes: int) -> None:
        """Debits records that an answer has of a topic."""
        now = time.perf_counter()
        self._quotas.charges_of_topic(topic, now).take_out(now, size_bytes)
