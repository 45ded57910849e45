"""Compares an answer with the expected one of a contract example. Compares values; sends nothing.

An expected object may be a subset of the actual one; arrays must have the same length. At the pointers in `varies` (`*`
means any index) only the JSON type is compared, and null matches any type: ids, times, sizes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from openapi import Expected


def differences(expected: Expected, status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
    """Return the differences, one a line; empty if the answer matches. Header names are case-insensitive."""
    wrong = []
    if status != expected.status:
        wrong.append(f"status is {status}, not {expected.status}: {body[:500]!r}")
    actual_headers = {name.lower(): value for name, value in headers.items()}
    for name, value in expected.headers.items():
        actual = actual_headers.get(name.lower())
        # A media type may carry parameters such as charset.
        if actual is None or (actual != value and not actual.startswith(value + ";")):
            wrong.append(f"header {name} is {actual!r}, not {value!r}")
    if expected.text is not None and body != expected.text.encode():
        wrong.append(f"body is {body!r}, not {expected.text!r}")
    wrong += [f"body lacks {part!r}" for part in expected.text_contains if part.encode() not in body]
    if expected.json_subset is not None:
        varies = [tuple(pointer.split("/")[1:]) for pointer in expected.varies]
        wrong += _json_differences(expected.json_subset, orjson.loads(body), varies, ())
    return wrong


def _json_differences(expected: Any, actual: Any, varies: list[tuple[str, ...]], at: tuple[str, ...]) -> Iterator[str]:
    where = "/" + "/".join(at)
    if any(_covers(pointer, at) for pointer in varies):
        if None not in (expected, actual) and type(expected) is not type(actual):
            yield f"{where} is a {type(actual).__name__}, not a {type(expected).__name__}"
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for name, value in expected.items():
            if name in actual:
                yield from _json_differences(value, actual[name], varies, (*at, name))
            else:
                yield f"{where} has no {name!r}"
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (value, actual_value) in enumerate(zip(expected, actual, strict=True)):
            yield from _json_differences(value, actual_value, varies, (*at, str(index)))
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{where} is {actual!r}, not {expected!r}"


def _covers(pointer: tuple[str, ...], at: tuple[str, ...]) -> bool:
    return len(pointer) == len(at) and all(part in ("*", step) for part, step in zip(pointer, at, strict=True))
