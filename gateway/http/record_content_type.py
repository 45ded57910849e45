"""Maps a record's `content-type` header to the form of its value, for fetch and for produce.

A value that fetch shows as a JSON string because it is text is stored as its text again when such a record object is
produced: one topic's NDJSON can be piped into another topic and the bytes stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence

HEADER = "content-type"
FORM = b"application/x-www-form-urlencoded"  # sent by plain `curl -d`
_TEXTUAL = (FORM, b"application/xml")


def media_type_of(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return the media type alone, in lower case; empty without such a header."""
    given = next((value for name, value in headers if name.lower() == HEADER and value), b"")
    return given.split(b";")[0].strip().lower()


def is_json(media_type: bytes) -> bool:
    """Return whether the type is JSON. True without a media type: the value may be JSON."""
    return not media_type or media_type == b"application/json" or media_type.endswith(b"+json")


def is_text(media_type: bytes) -> bool:
    return media_type.startswith(b"text/") or media_type in _TEXTUAL
