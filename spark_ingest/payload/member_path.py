"""Names of members at any depth: a JSON pointer (`/meta/ts`) or a dotted name (`meta.ts`)."""

from __future__ import annotations


def path_of(field: str) -> tuple[str, ...]:
    """Returns the member names of a pointer or a dotted name."""
    if field.startswith("/"):
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in field[1:].split("/"))
    return tuple(field.split("."))
