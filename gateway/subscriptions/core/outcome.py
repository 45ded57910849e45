"""The outcome of a delivery, and the pause before a failed one is repeated."""

from __future__ import annotations

from typing import NamedTuple

from gateway.subscriptions.core.definition import Delivery

RETRY_AFTER_S_MAX = 3600  # a receiver cannot stop a subscription for longer by a header


class Outcome(NamedTuple):
    """The end of one attempt. `status` is None without an answer; `error` says why."""

    status: int | None
    error: str
    retry_after_s: int | None
    latency_ms: int

    @property
    def is_delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def retry_after_s(status: int, header: str | None) -> int | None:
    """Returns the pause that a receiver asks for with 429 or 503. The date form of the header is not honoured."""
    if status not in (429, 503) or header is None or not header.isascii() or not header.isdigit() or len(header) > 9:
        return None
    return min(int(header), RETRY_AFTER_S_MAX)


def pause_ms(delivery: Delivery, attempts: int, outcome: Outcome, random: float) -> int:
    """Returns the pause after this number of failed attempts: it doubles, with jitter.

    It is not shorter than the receiver asks for. `random` is from 0 to 1.
    """
    longest = min(delivery.backoff_ms_max, delivery.backoff_ms_min << min(attempts - 1, 30))
    pause = round(longest * (0.5 + random / 2))
    return max(pause, 1000 * (outcome.retry_after_s or 0))


def is_last(delivery: Delivery, attempts: int) -> bool:
    """Returns whether the records go to the dead-letter topic after this number of failed attempts."""
    is_limited = delivery.deliveries_max is not None and delivery.dead_letter_topic is not None
    return is_limited and attempts >= (delivery.deliveries_max or 0)
