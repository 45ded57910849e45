"""Replaces what differs from run to run by placeholders; everything else of an answer stays exact."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

NEAR_S = 2 * 86_400  # a time within two days of now is the node's, another one was in a request
Replacement = str | Callable[[re.Match[str]], str]


def replace_varying(text: str, now: float) -> str:
    """Returns a header line, a body or a log line with placeholders for times, ids, tokens and ports."""

    def recent_ms(match: re.Match[str]) -> str:
        return "{ms}" if abs(int(match[0]) / 1000 - now) < NEAR_S else match[0]

    def recent_time(match: re.Match[str]) -> str:
        time = datetime.fromisoformat(match[0]).timestamp()
        return "{time}" if abs(time - now) < NEAR_S else match[0]

    rules: list[tuple[str, Replacement]] = [
        (r"(?m)^date: .*", "date: {date}"),
        (r"(?m)^etag: (W/)?\".*\"", r'etag: \1"{etag}"'),
        (r"(?m)^penstock-idempotency-window: (8\d\d|900)$", "penstock-idempotency-window: {seconds}"),
        (r"\b\d+\.\d+-[0-9a-f]{11}-[0-9a-f]+\b", "{request_id}"),
        (r"\b[0-9a-f]{32}\b", "{id}"),
        (r'(?m)^(id: |.*"positions":")[\w-]{1,8}\.', r"\1{id}."),
        (r"(?m)^id: [\w-]{20,}", "id: {token}"),
        (r"whsec_[\w/+=-]+", "{secret}"),
        (r"file:///[^\"]*/store", "file:///{directory}/store"),
        (r"\b\d{13}\b", recent_ms),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", recent_time),
        (r'"(duration_ms|lag_ms|session_left_ms)":\d+(\.\d+)?', r'"\1":{ms}'),
        (r'"token":"[\w-]+"', '"token":"{token}"'),
        (r"\b127\.0\.0\.1:\d+", "127.0.0.1:{port}"),
    ]
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text
