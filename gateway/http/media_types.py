"""What a record's `content-type` header says of its value. One answer for showing a value and for taking it back.

A value that fetch shows as a JSON string because it is text is stored as its text again when such a record object is
produced: one topic's NDJSON can be piped into another topic and the bytes stay.
"""

from __future__ import annotations

from collections.abc import Sequence

HEADER = "content-type"
_TEXTUAL = (b"application/x-www-form-urlencoded", b"application/xml")  # the first is what plain `curl -d` says


def media_type_of(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The media type alone, in small letters; empty when no header tells it."""
    given = next((value for name, value in headers if name.lower() == HEADER and value), b"")
    return given.split(b";")[0].strip().lower()


def is_json(media_type: bytes) -> bool:
    """So is what has no media type: it may be JSON."""
    return not media_type or media_type == b"application/json" or media_type.endswith(b"+json")


def is_text(media_type: bytes) -> bool:
    return media_type.startswith(b"text/") or media_type in _TEXTUAL
