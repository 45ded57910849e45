"""Reads the members of our JSON objects strictly: errors name the object and the member. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from engine.errors import Corrupt, EngineError

Members = dict[str, Any]


class UnsupportedFormat(EngineError):
    """Written by a newer version of Penstock. Neither read nor extend it: run that version or a newer one."""

    code = "start_refused"


def read_object(data: bytes, key: str, format_max: int) -> Members:
    """Decode a JSON object whose member `format` is a known one. Raises Corrupt or UnsupportedFormat."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"{key} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Corrupt(f"{key} is not a JSON object")
    version = integer(found, "format", key)
    if version > format_max:
        raise UnsupportedFormat(
            f"{key} has format {version}, this version knows up to {format_max}", hint="run a newer Penstock"
        )
    return found


def integer(found: Members, name: str, key: str) -> int:
    """Return a member that is an integer. Raises Corrupt."""
    value = found.get(name)
    if type(value) is not int:
        raise Corrupt(f"{key}: {name} is not an integer")
    return value


def text(found: Members, name: str, key: str) -> str:
    """Return a member that is a string and not empty. Raises Corrupt."""
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise Corrupt(f"{key}: {name} is not a text")
    return value


def array(found: Members, name: str, key: str) -> list[Any]:
    """Return a member that is an array. Raises Corrupt."""
    value = found.get(name)
    if not isinstance(value, list):
        raise Corrupt(f"{key}: {name} is not an array")
    return value


def objects(found: Members, name: str, key: str) -> list[Members]:
    """Return a member that is an array of objects. Raises Corrupt."""
    values = array(found, name, key)
    if not all(isinstance(value, dict) for value in values):
        raise Corrupt(f"{key}: {name} has an element that is not an object")
    return values


def array_of_integers(found: Members, name: str, key: str) -> tuple[int, ...]:
    """Return a member that is an array of integers. Raises Corrupt."""
    values = array(found, name, key)
    if {*map(type, values)} - {int}:
        raise Corrupt(f"{key}: {name} has an element that is not an integer")
    return tuple(values)


def pairs(found: Members, name: str, key: str) -> tuple[tuple[int, int], ...]:
    """Return a member that is an array of pairs of integers. Raises Corrupt."""
    values = array(found, name, key)
    if not all(isinstance(value, list) and [*map(type, value)] == [int, int] for value in values):
        raise Corrupt(f"{key}: {name} has an element that is not a pair of integers")
    return tuple((first, second) for first, second in values)
