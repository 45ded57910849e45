"""Decides whether and when to retry, from values alone: no clock and no randomness of its own.

Rules, in order: an error that cannot be temporary is not retried; a request that may have been stored is retried only
if allowed; the node's Retry-After is obeyed; nothing is retried beyond the deadline.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import ClientError, ProblemError
from penstock.options import ClientOptions


class RetryRules(NamedTuple):
    backoff_ms: int
    backoff_ms_max: int
    retry_ambiguous: bool

    @classmethod
    def of(cls, options: ClientOptions) -> RetryRules:
        return cls(options.backoff_ms, options.backoff_ms_max, options.retry_ambiguous)


def may_retry(error: ClientError, rules: RetryRules) -> bool:
    return error.retryable and (error.no_side_effects or rules.retry_ambiguous)


def retry_delay_ms(error: ClientError, attempt: int, rules: RetryRules, jitter: float) -> int:
    """Returns the pause in milliseconds after attempt number `attempt` (from 1). `jitter` is a random value in [0, 1).

    Half of the backoff is fixed and half random, so clients that failed together do not retry together. A Retry-After
    is a lower bound, so jitter is only added to it.
    """
    assert attempt >= 1
    assert 0 <= jitter < 1
    backoff = min(rules.backoff_ms << min(attempt - 1, 20), rules.backoff_ms_max)
    delay_ms = backoff // 2 + int(backoff / 2 * jitter)
    retry_after_ms = error.retry_after_ms if isinstance(error, ProblemError) else None
    return delay_ms if retry_after_ms is None else max(delay_ms, retry_after_ms + int(rules.backoff_ms * jitter))
