"""The form of quotas in answers: the RateLimit fields of the IETF draft, Retry-After, and the problem document.

The fields are those of draft-ietf-httpapi-ratelimit-headers: the names of policies are those of dimensions, and of two
quotas for one dimension the tighter one is shown. Times are durations, so that the clocks of clients do not matter. A
Retry-After is never before the time at which the request would be taken, and is spread over a fifth of it, so that
clients that were refused together do not come back together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from gateway.http.problems import Problem
from gateway.quotas.charges import PARKED_MAX, Policy, Verdict
from gateway.quotas.quota import Dimension, id_of

SPREAD = 0.2  # of the wait that Retry-After names
THROTTLE_HEADER = "Penstock-Throttle-Ms"
_UNITS = {
    Dimension.REQUESTS: "",  # the default of the draft
    Dimension.BYTES_IN: ';qu="content-bytes"',
    Dimension.BYTES_OUT: ';qu="content-bytes"',
    Dimension.LOOP_MS: ';qu="loop-ms"',
    Dimension.CONNECTIONS: ';qu="connections"',
    Dimension.LONG_POLLS: ';qu="concurrent-requests"',
}


def limit_headers(policies: Sequence[Policy]) -> dict[str, str]:
    """Returns the two fields for the limits that are low."""
    if not policies:
        return {}
    limits = [f'"{one.dimension}";r={max(math.floor(one.remaining), 0)};t={math.ceil(one.reset_s)}' for one in policies]
    rules = [f'"{one.dimension}";q={_quota_of(one)}{_window_of(one)}{_UNITS[one.dimension]}' for one in policies]
    return {"RateLimit": ", ".join(limits), "RateLimit-Policy": ", ".join(rules)}


def retry_after_s(wait_s: float, random: Random) -> int:
    return math.ceil(max(wait_s, wait_s * (1 - SPREAD + 2 * SPREAD * random.random())))


def quota_problem(verdict: Verdict, random: Random) -> Problem:
    """Returns the problem of a refused request. It names each limit that refused it, its owner and its use."""
    first = max(verdict.violated, key=lambda one: one.reset_s)
    used = max(_quota_of(first) - math.floor(first.remaining), 0)
    text = (
        f"the {first.owner} {first.name} may use {first.limit:g} {_WORDS[first.dimension]}; "
        f"this request would be taken in {verdict.wait_s:.1f} s"
    )
    if verdict.is_crowded:
        text = f"{PARKED_MAX} requests of the {first.owner} {first.name} wait for its quota already; {text}"
    return Problem(
        "quota_exceeded",
        text,
        headers={
            "Retry-After": str(max(retry_after_s(verdict.wait_s, random), 1)),
            **limit_headers(verdict.low or verdict.violated),
        },
        quota=first.dimension.field,
        owner=id_of(first.owner, first.name),
        limit=first.limit,
        used=used,
        **{"violated-policies": sorted({one.dimension.value for one in verdict.violated})},
    )


def _quota_of(policy: Policy) -> int:
    return max(math.floor(policy.limit * max(policy.window_s, 1)), 1)


def _window_of(policy: Policy) -> str:
    return f";w={policy.window_s}" if policy.window_s else ""


_WORDS = {
    Dimension.REQUESTS: "requests a second",
    Dimension.BYTES_IN: "bytes a second of request bodies",
    Dimension.BYTES_OUT: "bytes a second of answers",
    Dimension.LOOP_MS: "ms a second of the loop that serves it",
    Dimension.CONNECTIONS: "connections at a time",
    Dimension.LONG_POLLS: "long polls at a time",
}
