"""The media types of the dialect: `application/vnd.kafka[.FORMAT].v2+json` for v2, JSON for v3.

FORMAT is that of the keys and values in a body. Request bodies of v2 without a format take `application/json` too.
"""

from __future__ import annotations

from functools import lru_cache

from gateway.http.negotiation import by_preference
from gateway.http.problems import Problem
from gateway.http.request import Request

V2 = "application/vnd.kafka.v2+json"
JSON = "application/json"
FORMATS = ("json", "binary")
SCHEMA_FORMATS = ("avro", "jsonschema", "protobuf")
V3_PREFIX = "/v3/"
_EMBEDDED = {f"application/vnd.kafka.{name}.v2+json": name for name in (*FORMATS, *SCHEMA_FORMATS)}
_PLAIN = (V2, "application/vnd.kafka+json", JSON)
_ANY = {"*/*": V2, "application/*": V2, "*/json": JSON, "": V2}


def is_v3(request: Request) -> bool:
    return request.path.startswith(V3_PREFIX) or request.path == V3_PREFIX[:-1]


def body_format(request: Request) -> str:
    """Returns the format of the records of a produce. Raises Problem unsupported_media_type."""
    name = _EMBEDDED.get(request.content_type)
    if name is None:
        given = "there is no Content-Type" if "Content-Type" not in request.headers else f"it is {request.content_type}"
        text = f"records come as {', '.join(_EMBEDDED)}; {given}"
        raise Problem("unsupported_media_type", text)
    return name


def check_body_type(request: Request) -> None:
    """Checks the type of a body that has no records. Raises Problem unsupported_media_type."""
    given = request.content_type
    if given in _PLAIN or given in _EMBEDDED or "Content-Type" not in request.headers:
        return
    raise Problem("unsupported_media_type", f"Content-Type is {given}; give {V2}")


@lru_cache(maxsize=256)
def answer_type(accept: str) -> str:
    """Returns the type of an answer of v2 without records. Raises Problem not_acceptable."""
    for name in by_preference(accept) if accept else [""]:
        if name in _PLAIN or name in _EMBEDDED:
            return name
        if name in _ANY:
            return _ANY[name]
    raise Problem("not_acceptable", f"Accept is {accept[:200]!r}; this can be given: {V2}, {JSON}")


@lru_cache(maxsize=256)
def records_format(accept: str, own: str) -> str | None:
    """Returns the type of an answer with records of an instance of the format `own`; None: another one is accepted.

    Raises Problem not_acceptable.
    """
    own_type = next(name for name, word in _EMBEDDED.items() if word == own)
    is_other = False
    for name in by_preference(accept) if accept else [""]:
        if name == own_type or name in _ANY or name in _PLAIN:
            return JSON if name == JSON else own_type
        is_other = is_other or name in _EMBEDDED
    if is_other:
        return None
    raise Problem("not_acceptable", f"Accept is {accept[:200]!r}; this can be given: {own_type}")
