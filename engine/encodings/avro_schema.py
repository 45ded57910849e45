"""An Avro schema, and the values that are written by it: the door to fastavro.

A value that may take much memory, or whose schema has a type within itself, is measured before fastavro reads it
(avro_measure.py): its reader has no limits, and may overflow the stack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from io import BytesIO
from typing import Any, NamedTuple

import msgspec
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from engine.encodings.avro_bounds import Shape
from engine.encodings.avro_measure import Measure
from engine.encodings.registry import REFERENCE_DEPTH_MAX, REFERENCES_MAX, Reference, RegisteredSchema, Registry
from engine.encodings.undecodable import Undecodable

_DECIMAL_BYTES_MAX = 1000
_ALL_DIGITS = Context(prec=3 * _DECIMAL_BYTES_MAX, traps=[InvalidOperation, Inexact])
_BAD_SCHEMA = (SchemaParseException, UnknownType, ValueError, TypeError, KeyError, AttributeError, RecursionError)
BAD_DATUM = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError)


_PARTS = {"array": "items", "map": "values"}


def _exact_decimal(data: bytes, writer_schema: Any = None, _reader_schema: Any = None) -> Decimal:
    """Returns a decimal with all its digits: fastavro's own reader rounds those beyond the precision of the schema."""
    if len(data) > _DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {len(data):,} bytes")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-writer_schema.get("scale", 0), _ALL_DIGITS)


LOGICAL_READERS["bytes-decimal"] = LOGICAL_READERS["fixed-decimal"] = _exact_decimal


class AvroSchema(NamedTuple):
    """A schema as fastavro parses it, and its bounds."""

    tree: Any
    shape: Shape
    measure: Measure


def parse_avro(text: str, named: dict[str, Any] | None = None, *, is_trusted: bool = True) -> AvroSchema:
    """Raises ValueError; also for arrays with empty items, unless the schema is trusted."""
    try:
        named = {} if named is None else named
        parsed = parse_schema(msgspec.json.decode(text), named_schemas=named)
        tree = _with_definitions(parsed, named, iter([dict(named)]))
        shape, measure = Shape(tree), Measure(tree)
    except _BAD_SCHEMA as error:
        raise ValueError(f"not an Avro schema: {error}") from error
    if shape.has_empty_items and not is_trusted:
        raise ValueError("an array has items without bytes")
    return AvroSchema(tree, shape, measure)


def registered_avro(registry: Registry, registered: RegisteredSchema, *, is_trusted: bool = True) -> AvroSchema:
    """Returns a schema of a registry with those that it refers to. Raises as `parse_avro`, and RegistryUnavailable."""
    named: dict[str, Any] = {}
    _add_references(registry, registered, named, {})
    return parse_avro(registered.schema, named, is_trusted=is_trusted)


def _add_references(
    registry: Registry,
    registered: RegisteredSchema,
    named: dict[str, Any],
    known: dict[Reference, RegisteredSchema],
    depth: int = 0,
) -> None:
    """Adds the named types of referenced schemas. `known`: those that were read; each is asked for once."""
    for reference in registered.references:
        if reference in known:
            continue
        if depth >= REFERENCE_DEPTH_MAX or len(known) >= REFERENCES_MAX:
            raise ValueError("it refers to too many others")
        other = registry.read_referenced(reference)
        if other is None:
            raise ValueError(f"{reference.subject} version {reference.version} is not in the registry")
        known[reference] = other
        _add_references(registry, other, named, known, depth + 1)
        parse_avro(other.schema, named)


def _with_definitions(tree: Any, named: Mapping[str, Any], definitions: Iterator[dict[str, Any]]) -> Any:
    """Returns a schema that is a union, an array, a map or a name with the definitions of its names.

    They may be in other schemas. Only a record carries the definitions where fastavro's reader looks for names; the
    first carries them for all, since the reader takes them from each record that has some at each value.
    """
    if isinstance(tree, list):
        return [_with_definitions(part, named, definitions) for part in tree]
    if isinstance(tree, dict) and tree.get("type") in _PARTS:
        part = _PARTS[tree["type"]]
        return {**tree, part: _with_definitions(tree[part], named, definitions)}
    if isinstance(tree, dict) and "__named_schemas" in tree:
        return {**tree, "__named_schemas": next(definitions, {})}
    if isinstance(tree, str) and tree in named:
        return {**named[tree], "__fastavro_parsed": True, "__named_schemas": next(definitions, {})}
    return tree


def write_avro(value: Any, tree: Any) -> bytes:
    """Returns the bytes of a value. Raises what fastavro raises for one that does not follow."""
    stream = BytesIO()
    schemaless_writer(stream, tree, value, strict=True)
    return stream.getvalue()


def read_avro(data: bytes, schema: AvroSchema, text_bytes_max: float = math.inf) -> Any:
    """Returns the one value of the bytes. Raises Undecodable, also for one that has about more JSON."""
    try:
        shape, size_bytes = schema.shape, len(data)
        if not shape.is_small(size_bytes) or shape.text_bytes_max(size_bytes) > text_bytes_max:
            schema.measure.end_of(data, text_bytes_max)
        stream = BytesIO(data)
        value, end = schemaless_reader(stream, schema.tree, None), stream.tell()
    except BAD_DATUM as error:
        raise Undecodable("not_avro", f"{type(error).__name__}: {error}") from error
    except RecursionError:
        raise Undecodable("nested_too_deeply", "the value is nested too deeply") from None
    if end != len(data):
        raise Undecodable("not_avro", f"{len(data) - end} bytes follow the record")
    return value
