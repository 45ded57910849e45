"""Reads our JSON objects strictly: errors name the object and the member. Pure."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from engine.errors import Corrupt, EngineError

Members = dict[str, Any]
Text = Annotated[str, msgspec.Meta(min_length=1)]
T = TypeVar("T")


class UnsupportedFormat(EngineError):
    """Written by a newer version of Penstock. Neither read nor extend it: run that version or a newer one."""

    code = "start_refused"


def read_object(data: bytes, key: str, format_max: int) -> Members:
    """Decodes a JSON object whose member `format` is a known one. Raises Corrupt or UnsupportedFormat."""
    try:
        members = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"{key} is not JSON: {error}") from error
    if not isinstance(members, dict):
        raise Corrupt(f"{key} is not a JSON object")
    version = members.get("format")
    if type(version) is not int:
        raise Corrupt(f"{key}: format is not an integer")
    if version > format_max:
        raise UnsupportedFormat(
            f"{key} has format {version}, this version knows up to {format_max}", hint="run a newer Penstock"
        )
    return members


def convert(members: Members, kind: type[T], key: str) -> T:
    """Returns the members of an object as a value of this type; others are ignored. Raises Corrupt."""
    try:
        return msgspec.convert(members, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise Corrupt(f"{key}: {error}") from error
