"""Random messages of the tables, for tests that compare codecs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gateway.kafka.codec.messages import Message
from gateway.kafka.codec.schema import Field

ERRORS = st.sampled_from([-1, 0, 1, 3, 25, 79])
NUMBERS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}


def values(field: Field, version: int, types: dict[str, type[Any]], path: str) -> st.SearchStrategy[Any]:
    """Returns values of one field that a version can carry."""
    where = f"{path}.{field.name}" if path else field.name
    if field.type == "struct":
        one = messages(field.fields, version, types, where)
    elif field.name.endswith("error_code"):
        one = ERRORS
    elif field.name.endswith("_ms") or "timestamp" in field.name:
        one = st.integers(0, 2**31 - 1)  # a duration or a time of kio has bounds of its own
    elif field.type in NUMBERS:
        bits = NUMBERS[field.type]
        one = st.integers(-(2**bits), 2**bits - 1)
    else:
        one = {
            "bool": st.booleans(),
            "f64": st.floats(allow_nan=False),
            "uuid": st.binary(min_size=16, max_size=16).filter(any),
            "string": st.text(max_size=12),
            "bytes": st.binary(max_size=12),
            "records": st.binary(max_size=6000),
        }[field.type]
    if field.is_array:
        one = st.lists(one, max_size=3)
    return one | st.none() if version in field.nullable and field.type != "uuid" else one


def messages(
    fields: tuple[Field, ...], version: int, types: dict[str, type[Any]], path: str = ""
) -> st.SearchStrategy[Message]:
    made = {field.name: values(field, version, types, path) for field in fields if version in field.versions}
    return st.builds(types[path], **made)
