"""Reads small JSON bodies of a known shape: settings and options, not records. Strict: rejects unknown fields."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.http.json_limits import check_utf8, malformed_json
from gateway.http.problems import Problem
from gateway.http.request import Request

MEDIA_TYPES = ("application/json", "application/octet-stream", "application/x-www-form-urlencoded")
# The second is aiohttp's default for a missing type, the third is sent by plain `curl -d`.


async def read_json(request: Request, shape: type[Any], default: Any = None, *, bytes_max: int = 2**63) -> Any:
    """Returns the body as `shape`; an empty one as `default`.

    Raises Problem malformed_json, unknown_field, invalid_body, …
    """
    http = request.http
    body = await http.bodies.read(request, min(http.request_body_bytes_max, bytes_max))
    return parse_json(request, body, shape, default)


def parse_json(request: Request, body: bytes, shape: type[Any], default: Any = None) -> Any:
    """Returns a body as `read_json` does. Raises Problem."""
    if not body.strip():
        if default is None:
            raise Problem("invalid_body", "a JSON body is required")
        return default
    if request.content_type not in MEDIA_TYPES:
        raise Problem("unsupported_media_type", f"Content-Type is {request.content_type}; give application/json")
    check_utf8(body)
    try:
        decoded = msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise invalid(error, shape) from None
    except (msgspec.DecodeError, RecursionError):
        raise malformed_json(body) from None
    return decoded if request.space is None else request.space.stored_in(decoded)


def invalid(error: msgspec.ValidationError, shape: type[Any], *, within: str = "") -> Problem:
    """Returns the problem of a body, or of the object at its field `within`, that is not of the shape."""
    code = "unknown_field" if "unknown field" in str(error) else "invalid_body"
    text = str(error).replace("Object contains", "there is an")
    if within:
        text = text.replace("`$.", f"`$.{within}.")
    return Problem(code, text + _field_hint(shape, within or "the body"))


def _field_hint(shape: type[Any], name: str) -> str:
    """Returns the field names of an object, for the message about a misspelt one."""
    fields = getattr(shape, "__struct_fields__", ())
    return f"; {name} has {', '.join(fields)}" if fields else ""
