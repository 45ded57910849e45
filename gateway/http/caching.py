"""Cache headers and conditional requests of fetches. Pure.

Committed records never change, so an answer from sealed segments alone stays the same until its records are deleted: a
cache may serve it for at most `cache_max_age_ms` after that. A tag identifies the records of an answer, not its bytes:
the positions beside the records move on. Only record batches are the stored bytes, so only their tags are strong; keyed
answers are encoded again and have weak tags.
"""

from __future__ import annotations

import hashlib

NO_STORE = {"Cache-Control": "no-store"}
STATUS = ":status"  # among the headers of a read, for a status other than 200; no real header can have this name


def cacheable_headers(tag: str, max_age_ms: int, *, is_private: bool) -> dict[str, str]:
    """Returns the headers of an answer that caches may keep; with `is_private` only those of one client.

    Where callers are known, one URL is another topic for each tenant.
    """
    seconds = max_age_ms // 1000
    freshness = f"max-age={seconds}" if seconds else "no-cache"
    if is_private:
        return {"ETag": tag, "Cache-Control": f"private, {freshness}", "Vary": "Accept, Accept-Encoding, Authorization"}
    return {"ETag": tag, "Cache-Control": freshness, "Vary": "Accept, Accept-Encoding"}


def revalidated(*, is_private: bool) -> dict[str, str]:
    """Returns the headers of an answer that caches may keep and ask about each time."""
    return (
        {"Cache-Control": "private, no-cache", "Vary": "Authorization"} if is_private else {"Cache-Control": "no-cache"}
    )


def tag_of(*what: object, is_exact: bool) -> str:
    """Names an answer by all of its inputs."""
    digest = hashlib.blake2b(repr(what).encode(), digest_size=12).hexdigest()
    return f'"{digest}"' if is_exact else f'W/"{digest}"'


def is_not_modified(if_none_match: str | None, tag: str | None) -> bool:
    """Returns whether the client has this answer already."""
    if if_none_match is None or tag is None:
        return False
    tags = [value.strip().removeprefix("W/") for value in if_none_match.split(",")]
    return "*" in tags or tag.removeprefix("W/") in tags
