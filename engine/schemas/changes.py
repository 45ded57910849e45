"""Changes of a topic's schema: a value that follows the schema must follow the next one, unless the change is forced.

So earlier records follow the new schema, and producers that know the earlier one go on. The comparison is by keyword
and errs on the safe side: what it cannot compare counts as a change that earlier values may not follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from engine.errors import InvalidConfig
from engine.schemas.schema_text import SETTING, Schema, escape, read_schema, resolve
from engine.schemas.value_schema import value_schema
from engine.topic_settings import topic_settings

VERSION_SETTING = "value_schema_version"
FIRST_VERSION = 1
SETTINGS: dict[str, object] = {
    SETTING: "",
    VERSION_SETTING: FIRST_VERSION,
    "value_schema_type": "none",
    "value_schema_subject": "",
}  # with what they are in a topic that has none of them
_KINDS = frozenset(("null", "boolean", "string", "integer", "number", "array", "object"))
_SAID = frozenset((
    "$comment", "$defs", "$id", "$schema", "contentEncoding", "contentMediaType", "contentSchema", "default",
    "definitions", "deprecated", "description", "examples", "format", "readOnly", "title", "writeOnly",
))  # fmt: skip
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LINKED = frozenset((  # each changes the meaning of its neighbours: with one of them, all must stay
    "additionalItems", "contains", "else", "if", "maxContains", "minContains", "patternProperties", "prefixItems",
    "then", "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_COMPARED = frozenset((
    "type", "enum", "const", "properties", "additionalProperties", "required", "items", *_LOWER, *_UPPER,
))  # fmt: skip


class Narrowing(NamedTuple):
    """Where a schema may refuse a value that an earlier one takes: a pointer into values, and why."""

    pointer: str
    text: str


def without_defaults(given: Mapping[str, object]) -> dict[str, object]:
    """Returns the settings of a new topic without those of a schema that say nothing: earlier versions know none."""
    return {name: value for name, value in given.items() if name not in SETTINGS or value != SETTINGS[name]}


def merged_settings(stored: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Returns the settings of a topic after a change, with the version of its schema.

    A change that earlier values may not follow must name the next version. Raises InvalidConfig.
    """
    merged = {**stored, **(given if stored.keys() & SETTINGS.keys() else without_defaults(given))}
    before, after = stored.get(SETTING, ""), merged.get(SETTING, "")
    version = stored.get(VERSION_SETTING, FIRST_VERSION)
    assert isinstance(version, int)
    is_first = not before and VERSION_SETTING not in stored
    following = version if before == after or is_first else version + 1
    named = given.get(VERSION_SETTING, following)
    if named != following:
        text = f"{VERSION_SETTING} is {named!r}, and the schema would be version {following}"
        hint = "leave it out, or describe the topic and look at its schema again"
        raise InvalidConfig(text, hint=hint, setting=VERSION_SETTING)
    if before != after:
        check_schema(after)
        if before and after and VERSION_SETTING not in given:
            _check_compatible(str(before), str(after), following)
        merged[VERSION_SETTING] = following
        topic_settings(merged)  # the last version has none after it
    return merged


def check_schema(text: object) -> None:
    """Raises InvalidConfig if the text is not empty and no usable schema."""
    if isinstance(text, str) and text:  # the rules of settings refuse other types
        value_schema(text)


def find_narrowing(old: Schema, new: Schema) -> Narrowing | None:
    """Returns the first place where a value of the old schema may not follow the new one."""
    return _compare(_inline(old, old), _inline(new, new), "")


def _check_compatible(before: str, after: str, version: int) -> None:
    narrowing = find_narrowing(read_schema(before), read_schema(after))
    if narrowing is not None:
        text = f"{SETTING} may refuse values that version {version - 1} takes: at {narrowing.pointer or 'the top'}, "
        hint = f"to set it nevertheless, send {VERSION_SETTING} = {version} with it"
        raise InvalidConfig(text + narrowing.text, hint=hint, setting=SETTING)


def _inline(schema: Schema, root: Schema) -> Schema:
    """Returns a schema with its references in place, and without what no value is checked by."""
    if isinstance(schema, bool):
        return schema
    inlined: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "$ref":
            inlined["$ref"] = _inline(resolve(root, value)[1], root)
        elif keyword in ("enum", "const"):
            inlined[keyword] = value
        elif keyword not in _SAID:
            is_named = keyword in ("properties", "patternProperties", "dependentSchemas", "dependencies")
            inlined[keyword] = _inline_value(value, root, is_named=is_named)
    return inlined["$ref"] if inlined.keys() == {"$ref"} else inlined


def _inline_value(value: Any, root: Schema, *, is_named: bool) -> Any:
    if is_named and isinstance(value, dict):
        return {name: _inline_value(item, root, is_named=False) for name, item in value.items()}
    if isinstance(value, list):
        return [_inline_value(item, root, is_named=False) for item in value]
    return _inline(value, root) if isinstance(value, dict) else value


def _compare(old: Schema, new: Schema, pointer: str) -> Narrowing | None:
    if _is_same(old, new) or old is False or new is True or new == {}:
        return None
    if new is False:
        return Narrowing(pointer, "no value is taken any more")
    old = {} if old is True else old
    assert isinstance(old, dict)
    assert isinstance(new, dict)
    if new.keys() == {"anyOf"}:
        branches = old["anyOf"] if old.keys() == {"anyOf"} else [old]
        if all(any(_compare(branch, other, pointer) is None for other in new["anyOf"]) for branch in branches):
            return None
        return Narrowing(pointer, "no alternative of anyOf takes all that was taken")
    for check in _CHECKS:
        found = check(old, new, pointer)
        if found is not None:
            return found
    return None


def _compare_words(old: dict[str, Any], new: dict[str, Any], pointer: str) -> Narrowing | None:
    """Compares the keywords that have no comparison of their own: each may go, and none may come or change."""
    if linked := _LINKED & (old.keys() | new.keys()):
        words: frozenset[str] = _LINKED | {"items", "properties", "additionalProperties"}
    else:
        words = frozenset(new.keys() - _COMPARED)
    for word in sorted(words & (old.keys() | new.keys())):
        if (word in old) != (word in new) or not _is_same(old[word], new[word]):
            reason = f", which cannot change beside {min(linked)}" if linked else ""
            return Narrowing(pointer, f"{word} is new or has changed{reason}")
    return None


def _compare_types(old: dict[str, Any], new: dict[str, Any], pointer: str) -> Narrowing | None:
    allowed = old.get("enum", [old["const"]] if "const" in old else None)
    if "enum" in new or "const" in new:
        taken = new.get("enum", [new.get("const")])
        if "enum" in new and "const" in new:
            taken = [value for value in taken if _is_same(value, new["const"])]
        if allowed is None or not set(map(_identity, allowed)) <= set(map(_identity, taken)):
            return Narrowing(pointer, "enum or const takes fewer values")
    before, after = _kinds_of(old), _kinds_of(new)
    if gone := sorted(before - after):
        return Narrowing(pointer, f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} not taken any more")
    return None


def _kinds_of(schema: dict[str, Any]) -> frozenset[str]:
    kinds = schema.get("type", _KINDS)
    kinds = frozenset((kinds,)) if isinstance(kinds, str) else frozenset(kinds)
    return kinds | {"integer"} if "number" in kinds else kinds


def _compare_bounds(old: dict[str, Any], new: dict[str, Any], pointer: str) -> Narrowing | None:
    for word in (*_LOWER, *_UPPER):
        if word not in new:
            continue
        is_upper = word in _UPPER
        if word not in old or (new[word] < old[word] if is_upper else new[word] > old[word]):
            return Narrowing(pointer, f"{word} is tighter")
    return None


def _compare_members(old: dict[str, Any], new: dict[str, Any], pointer: str) -> Narrowing | None:
    if required := sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        return Narrowing(f"{pointer}/{escape(required[0])}", "it is required now")
    before, after = old.get("properties", {}), new.get("properties", {})
    others_before, others_after = old.get("additionalProperties", True), new.get("additionalProperties", True)
    for name in sorted(before.keys() | after.keys()):
        at = f"{pointer}/{escape(name)}"
        found = _compare(before.get(name, others_before), after.get(name, others_after), at)
        if found is not None and name not in before:
            text = f"it was taken as any value before, for the object has no additionalProperties: false ({found.text})"
            return Narrowing(found.pointer, text) if others_before in (True, {}) else found
        if found is not None:
            return found
    found = _compare(others_before, others_after, f"{pointer}/*")
    return None if found is None else Narrowing(pointer, "other members are not taken as before (additionalProperties)")


def _compare_items(old: dict[str, Any], new: dict[str, Any], pointer: str) -> Narrowing | None:
    before, after = old.get("items", True), new.get("items", True)
    if isinstance(before, list) or isinstance(after, list):  # of draft 7
        return None if _is_same(before, after) else Narrowing(pointer, "items has changed")
    return _compare(before, after, f"{pointer}/*")


def _is_same(one: Any, other: Any) -> bool:
    """Returns whether two JSON values are the same: for Python, true is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def _identity(value: Any) -> Any:
    """Returns what only the same JSON value is equal to, for sets: an enum may have thousands of values."""
    if isinstance(value, dict):
        return frozenset((name, _identity(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(map(_identity, value))
    return (bool, value) if isinstance(value, bool) else value


_CHECKS: tuple[Callable[[dict[str, Any], dict[str, Any], str], Narrowing | None], ...] = (
    _compare_types, _compare_bounds, _compare_members, _compare_items, _compare_words
)  # fmt: skip
