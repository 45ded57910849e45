"""Reads the text of a JSON Schema, and refuses one whose validation could take long or could leave this process.

Draft 2020-12, 2019-09 and 7. References stay within the document and never in a circle: a value of depth n could then
be checked 2^n times. With all references in place a schema has at most SUBSCHEMAS_MAX subschemas, so that a value is
checked in a time that grows with its size alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import orjson

from engine.errors import InvalidConfig

Schema = dict[str, Any] | bool

SETTING = "value_schema"
DEPTH_MAX = 32  # of brackets in the text
REFERENCED_DEPTH_MAX = 128  # of subschemas, with references in place
SUBSCHEMAS_MAX = 1000
DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)
_SCHEMA = ("items", "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "not",
           "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_SCHEMAS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_DEFINITIONS = ("$defs", "definitions")  # they count where a reference names them
_REFUSED = ("$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "$vocabulary")


def read_schema(text: str) -> Schema:
    """Returns a usable schema. Raises InvalidConfig."""
    try:
        schema = orjson.loads(text)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise unusable(f"it is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise unusable("it is neither an object nor true or false")
    if _is_deeper(schema, DEPTH_MAX):
        raise unusable(f"it is nested deeper than {DEPTH_MAX} levels")
    if isinstance(schema, dict):
        dialect = schema.get("$schema", DIALECTS[0])
        if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
            raise unusable(f"$schema is none of {', '.join(DIALECTS)}")
        _count(schema, "#", schema, (), {})
    return schema


def unusable(reason: str) -> InvalidConfig:
    """Returns the error of a schema that cannot be used."""
    text = f"{SETTING} cannot be used: {reason[:500]}"
    return InvalidConfig(text, hint="see docs/schemas.md for what a schema may have", setting=SETTING)


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    """Yields the subschemas of a schema with their pointers in it, without its definitions."""
    for keyword, value in schema.items():
        if keyword in _DEFINITIONS:
            continue
        if keyword in _SCHEMA and isinstance(value, dict | bool):
            yield escape(keyword), value
        elif keyword in _SCHEMAS and isinstance(value, list):
            yield from ((f"{escape(keyword)}/{at}", item) for at, item in enumerate(value))
        elif keyword in _NAMED and isinstance(value, dict):
            named = ((name, item) for name, item in value.items() if isinstance(item, dict | bool))
            yield from ((f"{escape(keyword)}/{escape(name)}", item) for name, item in named)


def resolve(root: Schema, reference: object) -> tuple[str, Schema]:
    """Returns the subschema that a reference names, and its pointer. Raises InvalidConfig."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise unusable(f"$ref {str(reference)[:100]!r} is not a JSON pointer within the document, such as #/$defs/name")
    found: Any = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            raise unusable(f"$ref {reference[:100]!r} names nothing in it")
    if not isinstance(found, dict | bool):
        raise unusable(f"$ref {reference[:100]!r} names no schema")
    return reference, found


def escape(name: str) -> str:
    """Returns a name as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _count(
    schema: dict[str, Any], pointer: str, root: dict[str, Any], within: tuple[str, ...], counts: dict[str, int]
) -> int:
    """Returns how many subschemas a schema has with its references in place. `counts` has those of references."""
    if pointer in within:
        raise unusable(f"$ref {pointer[:100]!r} leads to itself: recursive schemas are not taken")
    if pointer in counts:
        return counts[pointer]
    for keyword in _REFUSED:
        if keyword in schema:
            raise unusable(f"{keyword} is not taken")
    if "$id" in schema and schema is not root:
        raise unusable("$id is taken at the top of the schema only")
    within = (*within, pointer)
    if len(within) > REFERENCED_DEPTH_MAX:
        raise unusable(f"with its references in place it is nested deeper than {REFERENCED_DEPTH_MAX} levels")
    total = 1
    if "$ref" in schema:
        target, referenced = resolve(root, schema["$ref"])
        total += _count(referenced, target, root, within, counts) if isinstance(referenced, dict) else 1
    for step, subschema in subschemas(schema):
        if isinstance(subschema, dict):
            total += _count(subschema, f"{pointer}/{step}", root, within, counts)
        else:
            total += 1
    if total > SUBSCHEMAS_MAX:
        raise unusable(f"it has more than {SUBSCHEMAS_MAX} subschemas, counted where references name them")
    counts[pointer] = total
    return total


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)
