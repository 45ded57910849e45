"""The names of a tenant in messages: visible ones on the wire, stored ones for the handlers.

The tables mark which fields name topics and groups (gateway/kafka/codec/schema.py); a few fields name something by the
number beside them. Texts for people are shown without the prefix. Bytes that clients write for each other, such as the
metadata of members, stay as they are. Invariants: a name that comes in is outside of every other tenant; a response is
copied and never changed, since its parts may be shared by callers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from engine.errors import EngineError
from engine.format.paths import TOPIC_CHARS_MAX, is_topic_name
from gateway.groups.core.expressions import compile_expression
from gateway.http.rights import Names
from gateway.kafka.codec.fetch import FetchAnswer, FetchRequest, Key
from gateway.kafka.codec.messages import Message, direction
from gateway.kafka.codec.produce import ProduceAnswer, ProduceRequest, ProduceRow
from gateway.kafka.codec.schema import GROUP, TOPIC, Field

T = TypeVar("T")

TEXT, EXPRESSION = "text", "expression"
_NO_NAME = "/"  # behind the prefix: no topic has it, so a name that is not allowed stays one, and comes back as it was
_KEYS = frozenset({("FindCoordinator", "key"), ("FindCoordinator", "coordinator_keys")})
_RESOURCES = {2: TOPIC, 32: GROUP}  # types of resources that have settings
_OF_RESOURCES = frozenset({"DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "ListConfigResources"})

Rename = Callable[[str, str], str]  # takes what is named, and a name


class Step(NamedTuple):
    """A field with names. `inner` are those of its struct; `by_type`: what it names is in the field `resource_type`."""

    name: str
    entity: str
    inner: tuple[Step, ...]
    by_type: bool = False


def stored_request(space: Names, api: str, message: Message) -> Message:
    """Returns a request with stored names."""

    def rename(entity: str, name: str) -> str:
        if entity == EXPRESSION:
            return _stored_expression(space, name)
        if entity == TOPIC and not (is_topic_name(name) and len(space.prefix) + len(name) <= TOPIC_CHARS_MAX):
            return f"{space.prefix}{_NO_NAME}{name}"
        return space.prefix + name if name else name  # an empty group has its own error

    if isinstance(message, FetchRequest):
        forgotten = _rename_keys(rename, message.forgotten)
        return message._replace(topics=_rename_keys(rename, message.topics), forgotten=forgotten)
    if isinstance(message, ProduceRequest):
        return message._replace(topics=_rename_keys(rename, message.topics))
    return _rename(_steps(api, is_request=True), rename, message)


def visible_response(space: Names, api: str, message: Message) -> Message:
    """Returns a response with visible names."""

    def rename(entity: str, name: str) -> str:
        if entity in (TEXT, EXPRESSION):
            return str(space.shown(name))
        visible = space.visible(name)
        return visible.removeprefix(_NO_NAME) if entity == TOPIC and visible is not name else visible

    if isinstance(message, FetchAnswer):
        fetched = copy(message)
        fetched.topics = _rename_keys(rename, message.topics)
        return fetched
    if isinstance(message, ProduceAnswer):
        produced, topics = copy(message), _rename_keys(rename, message.topics)
        produced.topics = [(key, [_with_shown_texts(space, row) for row in rows]) for key, rows in topics]
        return produced
    return _rename(_steps(api, is_request=False), rename, message)


def _rename_keys(rename: Rename, topics: Sequence[tuple[Key, T]]) -> list[tuple[Key, T]]:
    """Returns topics of a message that is read by hand. Ids stay as they are."""
    return [(rename(TOPIC, key) if isinstance(key, str) else key, rows) for key, rows in topics]


def _with_shown_texts(space: Names, row: ProduceRow) -> ProduceRow:
    if row.text is None:
        return row
    errors = [(number, None if text is None else str(space.shown(text))) for number, text in row.record_errors]
    return row._replace(text=str(space.shown(row.text)), record_errors=errors)


def _stored_expression(space: Names, text: str) -> str:
    """Returns an expression over stored names; one that is not valid alone as it is, so that it stays invalid."""
    try:
        compile_expression(text, "subscribed_topic_regex")
    except EngineError:
        return text
    return space.expression(text)


@cache
def _steps(api: str, *, is_request: bool) -> tuple[Step, ...]:
    return _steps_of(api, direction(api, is_request=is_request).fields)


def _steps_of(api: str, fields: tuple[Field, ...]) -> tuple[Step, ...]:
    return tuple(step for field in fields if (step := _step(api, field)) is not None)


def _step(api: str, field: Field) -> Step | None:
    name = field.name
    if inner := _steps_of(api, field.fields):
        return Step(name, "", inner)
    if name == "resource_name" and api in _OF_RESOURCES:
        return Step(name, "", (), by_type=True)
    entity = field.entity
    if (api, name) in _KEYS:
        entity = GROUP
    elif name.endswith("error_message"):
        entity = TEXT
    elif name == "subscribed_topic_regex":
        entity = EXPRESSION
    return Step(name, entity, ()) if entity else None


def _rename(steps: tuple[Step, ...], rename: Rename, message: Message) -> Message:
    changes: dict[str, Any] = {}
    for name, entity, inner, by_type in steps:
        value = getattr(message, name)
        if not value:  # absent, null or empty
            continue
        if by_type:
            entity = _RESOURCES.get(message.resource_type, "")
            if not entity:
                continue
        if isinstance(value, list | tuple):
            changes[name] = [_rename(inner, rename, one) if inner else rename(entity, one) for one in value]
        else:
            changes[name] = _rename(inner, rename, value) if inner else rename(entity, value)
    return structs.replace(message, **changes) if changes else message
