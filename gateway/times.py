"""A time as a query gives it. Pure."""

from __future__ import annotations

from gateway.json_records import rfc3339_ms
from gateway.problems import Problem


def parse_timestamp(text: str) -> int:
    """Milliseconds, or RFC 3339."""
    if text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) < 2**53:
        return int(text)
    moment = rfc3339_ms(text.replace(" ", "+"))  # a bare + in a query means a space
    if moment is None:
        raise Problem("invalid_query", f"timestamp is {text!r}; give milliseconds or RFC 3339", parameter="timestamp")
    return moment
