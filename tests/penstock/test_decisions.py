"""Decisions as values: which requests are retried, which batches are split, and which options are valid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ClientError, ConnectionFailed, ProblemError
from penstock.options import ClientOptions
from penstock.producer.dispatch import Split, split_for
from penstock.transport.retry import RetryRules, may_retry, retry_delay_ms

RULES = RetryRules.of(ClientOptions(backoff_ms=50, backoff_ms_max=2_000))
LOST = ConnectionFailed("reset", no_side_effects=False)
REFUSED = ConnectionFailed("refused", no_side_effects=True)


def problem(*, retryable: bool, no_side_effects: bool, retry_after_ms: int | None = None) -> ProblemError:
    return ProblemError(
        "x", status=503, code="x", retryable=retryable, no_side_effects=no_side_effects, retry_after_ms=retry_after_ms
    )


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_the_backoff_doubles_within_its_bounds(attempt: int, jitter: float) -> None:
    delay = retry_delay_ms(REFUSED, attempt, RULES, jitter)
    full = min(50 * 2 ** (attempt - 1), 2_000)
    assert full // 2 <= delay <= full


@given(st.integers(1, 20), st.floats(0, 1, exclude_max=True), st.integers(0, 100_000))
def test_retry_after_is_a_lower_bound(attempt: int, jitter: float, retry_after_ms: int) -> None:
    assert (
        retry_delay_ms(
            problem(retryable=True, no_side_effects=True, retry_after_ms=retry_after_ms), attempt, RULES, jitter
        )
        >= retry_after_ms
    )


@pytest.mark.parametrize(
    ("error", "allowed", "allowed_if_careful"),
    [
        (REFUSED, True, True),
        (LOST, True, False),
        (problem(retryable=True, no_side_effects=True), True, True),
        (problem(retryable=True, no_side_effects=False), True, False),
        (problem(retryable=False, no_side_effects=True), False, False),
        (ClientError("x"), False, False),
    ],
)
def test_what_may_be_repeated(error: ClientError, allowed: bool, allowed_if_careful: bool) -> None:
    assert may_retry(error, RULES) is allowed
    assert may_retry(error, RULES._replace(retry_ambiguous=False)) is allowed_if_careful


def refused(code: str, *, no_side_effects: bool = True, **members: object) -> ProblemError:
    return ProblemError("x", status=400, code=code, retryable=False, no_side_effects=no_side_effects, members=members)


@pytest.mark.parametrize(
    ("error", "count", "cut"),
    [
        (refused("malformed_ndjson", line=1), 3, Split([0, 1], 0)),
        (refused("malformed_ndjson", line=2), 3, Split([0, 1, 2], 1)),
        (refused("malformed_ndjson", line=3), 3, Split([0, 2], 2)),
        (refused("record_too_large"), 5, Split([0, 2], None)),
        (refused("json_too_complex", record=1), 3, Split([0, 1, 2], 1)),
        (refused("malformed_ndjson", line=9), 5, Split([0, 2], None)),
        (refused("batch_too_large", line=1), 5, Split([0, 2], None)),
        (refused("record_too_large"), 1, None),
        (refused("forbidden"), 5, None),
        (refused("record_too_large", no_side_effects=False), 5, None),
    ],
)
def test_only_the_record_to_blame_fails(error: ProblemError, count: int, cut: Split | None) -> None:
    assert split_for(error, count) == cut


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"linger_ms": -1}, "linger_ms must be at least 0"),
        ({"ack_timeout_ms": 60_001}, "ack_timeout_ms must be at most 60000"),
        ({"acks": "2"}, "acks must be one of 0, 1, all"),
    ],
)
def test_options_are_checked_when_made(changed: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        replace(ClientOptions(), **changed)  # type: ignore[arg-type]
