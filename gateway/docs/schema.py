"""Shows parameters, headers and schemas of the contract as lists of names, types and explanations.

It knows the kinds of schema that the contract uses, not all of JSON Schema; unknown kinds are left out. Invariant:
nested members are shown flat, each with the path that leads to it, such as `records[].key`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.docs.guide import Contract, Guide
from gateway.docs.markup import Html, element, inline

_NARROW_SPACE = "\u202f"
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Member:
    holder: str  # the path of the object that contains it; "" or ends in "."
    name: str
    schema: Contract
    is_required: bool


def parameter_rows(guide: Guide, parameters: list[Contract]) -> Html:
    return _rows(_parameter_row(guide, one) for one in parameters)


def header_rows(guide: Guide, headers: Contract) -> Html:
    return _rows(
        _row(guide, element("code", name), [], guide.resolve(header)["description"]) for name, header in headers.items()
    )


def member_rows(guide: Guide, schema: Contract, *, is_request: bool) -> Html:
    return _rows(_member_row(guide, member, is_request=is_request) for member in members_of(guide, schema))


def members_of(guide: Guide, schema: Contract, holder: str = "") -> Iterator[Member]:
    """Yield all named members within a schema, depth first."""
    schema = guide.resolve(schema)
    if "items" in schema:
        yield from members_of(guide, schema["items"], holder.removesuffix(".") + "[].")
    for part in schema.get("allOf", []):
        yield from members_of(guide, part, holder)
    for name, member in schema.get("properties", {}).items():
        yield Member(holder, name, guide.resolve(member), name in schema.get("required", []))
        # Problems have a section of their own.
        if not member.get("$ref", "").endswith(("/Problem", "/PartProblem")):
            yield from members_of(guide, member, f"{holder}{name}.")


def type_of(guide: Guide, schema: Contract) -> str:
    """Return the type in a few words: `integer`, `string or null`, `array of object`, `earliest | latest`."""
    schema = guide.resolve(schema)
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    named = "object" if "allOf" in schema else schema.get("type")
    if named is None:
        alternatives = schema.get("anyOf") or schema.get("oneOf") or []
        return " or ".join(dict.fromkeys(type_of(guide, one) for one in alternatives)) or "any JSON"
    if named == "array":
        return f"array of {type_of(guide, schema['items'])}" if "items" in schema else "array"
    if named == "string":
        return "base64" if "contentEncoding" in schema else "RFC 3339" if "format" in schema else "string"
    return " or ".join(named) if isinstance(named, list) else str(named)


def _parameter_row(guide: Guide, parameter: Contract) -> Html:
    notes = [*_bounds(guide, parameter["schema"])]
    if parameter["in"] != "query":
        notes.append(f"in the {parameter['in']}")
    return _row(guide, element("code", parameter["name"]), notes, parameter["description"])


def _member_row(guide: Guide, member: Member, *, is_request: bool) -> Html:
    holder = element("span", member.holder, class_="holder") if member.holder else None
    notes = [*_bounds(guide, member.schema), *(["required"] if is_request and member.is_required else [])]
    name = element("code", holder, member.name)
    return _row(guide, name, notes, member.schema.get("description", ""))


def _bounds(guide: Guide, schema: Contract) -> Iterator[str]:
    schema = guide.resolve(schema)
    yield type_of(guide, schema)
    if "minimum" in schema and "maximum" in schema:
        yield f"{_shown(schema['minimum'])} to {_shown(schema['maximum'])}"
    elif "minimum" in schema:
        yield f"at least {_shown(schema['minimum'])}"
    if "maxLength" in schema:
        yield f"at most {schema['maxLength']} characters"
    if "default" in schema:
        yield f"default {_shown(schema['default'])}"


def _shown(value: object) -> str:
    """Return the value as text: large numbers in groups of three digits, huge ones as a power of two."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, int) or abs(value) < 10_000:
        return str(value)
    for exponent in (31, 60, 63):
        if value in (2**exponent, 2**exponent - 1):
            return "2" + str(exponent).translate(_SUPERSCRIPT) + (" − 1" if value % 2 else "")
    return f"{value:,}".replace(",", _NARROW_SPACE)


def _row(guide: Guide, name: Html, notes: list[str], description: str) -> Html:
    said = element("span", *[element("span", note) for note in notes], class_="notes") if notes else None
    return element(
        "div",
        element("dt", name, said),
        element("dd", inline(" ".join(description.split()), guide.links)) if description else None,
        class_="row",
    )


def _rows(rows: Iterable[Html]) -> Html:
    return element("dl", *rows, class_="rows")
