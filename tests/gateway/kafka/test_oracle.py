"""Every version of every message, in both directions, beside kio: a codec that is generated from Kafka's schemas."""

from __future__ import annotations

import dataclasses
import importlib
import io
import os
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings

from gateway.kafka.codec.messages import Message, Output, direction, read_message, write_message
from gateway.kafka.codec.schema import GROUP, TOPIC, Field
from gateway.kafka.codec.tables import TABLES
from tests.cells import each_cell
from tests.gateway.kafka.make_tables import snake
from tests.gateway.kafka.random_messages import messages

pytest.importorskip("kio")

from kio.serial import entity_reader, entity_writer

EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "60")) // 15
WAYS = [
    (api, version, is_request)
    for api, table in TABLES.items()
    for version in range(table.first, table.last + 1)
    for is_request in (True, False)
]


def entity(api: str, version: int, is_request: bool) -> type[Any]:
    part = "request" if is_request else "response"
    module = importlib.import_module(f"kio.schema.{snake(api)}.v{version}.{part}")
    found: type[Any] = getattr(module, f"{api}{part.title()}")
    return found


def plain(value: Any) -> Any:
    """Returns a value of kio or of ours in the same plain form."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value.value if hasattr(value, "value") else value


def same(fields: tuple[Field, ...], ours: Any, theirs: dict[str, Any], version: int) -> None:
    """Checks that all fields of a struct have the values of the other codec's."""
    for field in fields:
        if version not in field.versions:
            continue
        mine = getattr(ours, field.name)
        other = theirs[field.name.removesuffix("_ms") if field.name not in theirs else field.name]
        if field.type != "struct":
            assert plain(mine) == other, field.name
        elif mine is None or other is None:
            assert mine is other, field.name
        elif field.is_array:
            assert len(mine) == len(other), field.name
            for one, its in zip(mine, other, strict=True):
                same(field.fields, one, its, version)
        else:
            same(field.fields, mine, other, version)


def own_names(fields: tuple[Field, ...], version: int, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the fields that name something, with what they name."""
    for field in fields:
        if version in field.versions:
            if field.entity:
                yield path + field.name, field.entity
            yield from own_names(field.fields, version, f"{path}{field.name}.")


def types_in(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in get_args(hint):
        yield from types_in(inner)


def their_names(kind: type[Any], path: str = "") -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(kind):
        hint = get_type_hints(kind)[field.name]
        for one in types_in(hint):
            name = getattr(one, "__name__", "")
            if name in ("TopicName", "GroupId"):
                yield path + field.name, TOPIC if name == "TopicName" else GROUP
            elif dataclasses.is_dataclass(one) and isinstance(one, type):
                yield from their_names(one, f"{path}{field.name}.")


def written(api: str, version: int, message: Message, is_request: bool) -> bytes:
    out = Output()
    write_message(api, version, message, out, is_request=is_request)
    return b"".join(out.finished())


@each_cell(("api", "version", "is_request"), WAYS)
def test_messages_mean_the_same_to_another_codec(api: str, version: int, is_request: bool) -> None:
    way, theirs = direction(api, is_request=is_request), entity(api, version, is_request)
    read, write = entity_reader(theirs), entity_writer(theirs)

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(messages(way.fields, version, way.types))
    def check(message: Message) -> None:
        data = written(api, version, message, is_request)
        their_message = read(data, 0)[0]
        same(way.fields, message, plain(their_message), version)
        buffer = io.BytesIO()
        write(buffer, their_message)
        again = read_message(api, version, memoryview(buffer.getvalue()), is_request=is_request)
        same(way.fields, again, plain(their_message), version)

    check()


@each_cell(("api", "version", "is_request"), WAYS)
def test_every_name_of_a_topic_and_a_group_is_marked(api: str, version: int, is_request: bool) -> None:
    """Tenants rest on these marks: a name without one would be that of another tenant."""
    fields, theirs = direction(api, is_request=is_request).fields, entity(api, version, is_request)
    assert dict(own_names(fields, version)) == dict(their_names(theirs))
