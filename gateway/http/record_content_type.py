"""Maps a record's `content-type` header to the form of its value, for fetch and for produce.

A value that fetch shows as a JSON string because it is text is stored as its text again when such a record object is
produced: one topic's NDJSON can be piped into another topic and the bytes stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.http.problems import Problem

HEADER = "content-type"
JSON = "application/json"
NDJSON = "application/x-ndjson"
LINES = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines",
                   "application/x-jsonlines", "application/json-lines", "application/x-json-stream", "text/x-ndjson",
                   "text/ndjson", "text/jsonl", "text/x-jsonl"})  # fmt: skip
_OTHER_FORMS = re.compile(r"application/(?:vnd\.kafka(?:\..+)?\+json|json-seq)")  # of several records
FORM = b"application/x-www-form-urlencoded"  # sent by plain `curl -d`
# Beside bytes of a record under its own type, which may be HTML or SVG with a script: a browser saves them, or shows
# them in an origin of their own. Otherwise the script would run with the rights of the node's own pages.
OWN_TYPE_HEADERS = {"Content-Security-Policy": "sandbox; default-src 'none'", "Content-Disposition": "attachment"}
_TEXTUAL = (FORM, b"application/xml")


def check_one_value(content_type: str) -> None:
    """Raises Problem unsupported_media_type for a type of several records, which must not become one value."""
    if _OTHER_FORMS.fullmatch(content_type):
        form = '{"records":[{"key":…,"value":…}]}, binary data as key_base64 and value_base64'
        text = f"{content_type} is not taken: send {form}, as {JSON}, or lines as {NDJSON}"
        raise Problem("unsupported_media_type", text)


def media_type_of(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Returns the media type alone, in lower case; empty without such a header."""
    given = next((value for name, value in headers if name.lower() == HEADER and value), b"")
    return given.split(b";")[0].strip().lower()


def is_json(media_type: bytes) -> bool:
    """Returns whether the type is JSON. True without a media type: the value may be JSON."""
    return not media_type or media_type == b"application/json" or media_type.endswith(b"+json")


def is_text(media_type: bytes) -> bool:
    return media_type.startswith(b"text/") or media_type in _TEXTUAL
