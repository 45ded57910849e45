"""Which form of an answer a client wants: the Accept headers, and what follows from them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.problems import Problem

SSE = "text/event-stream"
WILDCARDS = ("*/*", "application/*", "")
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")


def choose_media_type(accept: str, offered: Sequence[str]) -> str:
    """The form of the answer: the first accepted type that can be given. Raises Problem not_acceptable."""
    for media_type in by_preference(accept) if accept else ["*/*"]:
        if media_type in offered:
            return media_type
        if media_type in WILDCARDS:
            return offered[0]
    raise Problem("not_acceptable", f"Accept is {accept!r}; this can be given: {', '.join(offered)}")


def by_preference(accept: str) -> list[str]:
    """What an Accept header names, the best first. What has quality 0 is not accepted at all."""
    weighed: list[tuple[float, str]] = []
    for part in accept.split(","):
        media_type, *parameters = part.lower().replace(" ", "").replace("\t", "").split(";")
        given = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        quality = float(given) if _QUALITY.fullmatch(given) else 1.0
        if quality > 0:
            weighed.append((quality, media_type))
    return [media_type for _, media_type in sorted(weighed, key=lambda pair: -pair[0])]


def prefers_events(accept: str, others: Sequence[str]) -> bool:
    """Whether an event stream is what the client likes best of it and the others. It never follows from a wildcard."""
    if SSE not in accept.lower():
        return False
    known = (*others, *WILDCARDS)
    return next((one for one in by_preference(accept) if one == SSE or one in known), None) == SSE
