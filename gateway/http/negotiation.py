"""Content negotiation: chooses the form of an answer from the Accept headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.http.problems import Problem

SSE = "text/event-stream"
WILDCARDS = ("*/*", "application/*", "")
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")


def choose_media_type(accept: str, offered: Sequence[str]) -> str:
    """Returns the form of the answer: the first accepted type that is offered. Raises Problem not_acceptable."""
    if accept in offered:
        return accept
    for media_type in by_preference(accept) if accept else ["*/*"]:
        if media_type in offered:
            return media_type
        if media_type in WILDCARDS:
            return offered[0]
    raise Problem("not_acceptable", f"Accept is {accept!r}; this can be given: {', '.join(offered)}")


def by_preference(accept: str) -> list[str]:
    """Returns the names in an Accept header, the best first. Quality 0 is not accepted and is left out."""
    accepted = [pair for pair in parse_qualities(accept) if pair[0] > 0]
    return [name for _, name in sorted(accepted, key=lambda pair: -pair[0])]


def parse_qualities(accept: str) -> list[tuple[float, str]]:
    """Returns each name of the header with its quality, in their order."""
    names: list[tuple[float, str]] = []
    for part in accept.split(","):
        name, *parameters = part.lower().replace(" ", "").replace("\t", "").split(";")
        given = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        names.append((float(given) if _QUALITY.fullmatch(given) else 1.0, name))
    return names


def prefers(accept: str, media_type: str, others: Sequence[str]) -> bool:
    """Returns whether the client prefers a type to the others. A wildcard never selects it."""
    if media_type not in accept.lower():
        return False
    known = (media_type, *others, *WILDCARDS)
    return next((name for name in by_preference(accept) if name in known), None) == media_type
