"""Which fetches a cache may keep, and how one asks whether what it has is still right. Pure.

Committed records never change, so an answer that lies wholly in sealed segments is the same for ever, until its records
are deleted: a cache may give it for `cache_max_age_ms` after that, and no longer. A tag names what is in an answer, not
its bytes: the positions beside the records move on. Only record batches are bytes as they are stored, so only their
tags are strong; keyed ones are encoded again and have weak ones.
"""

from __future__ import annotations

import hashlib

NO_STORE = {"Cache-Control": "no-store"}
STATUS = ":status"  # among the headers of a read, for what is not 200; no header can have this name


def kept_headers(tag: str, max_age_ms: int) -> dict[str, str]:
    """For an answer that may be kept."""
    seconds = max_age_ms // 1000
    freshness = f"max-age={seconds}" if seconds else "no-cache"
    return {"ETag": tag, "Cache-Control": freshness, "Vary": "Accept, Accept-Encoding"}


def tag_of(*what: object, is_exact: bool) -> str:
    """Names an answer by all that it follows from."""
    digest = hashlib.blake2b(repr(what).encode(), digest_size=12).hexdigest()
    return f'"{digest}"' if is_exact else f'W/"{digest}"'


def is_known(if_none_match: str | None, tag: str | None) -> bool:
    """Whether the client has this answer already."""
    if if_none_match is None or tag is None:
        return False
    known = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in known or tag.removeprefix("W/") in known
