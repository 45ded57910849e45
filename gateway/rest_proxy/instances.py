"""Consumer instances of v2 as the coordinators keep them: their settings, and the calls on them from any node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from gateway.groups.hosting.instances import COMMIT, DELETE, LOOK, PLACE, SUBSCRIBE
from gateway.groups.model.instances import (
    BeginRead,
    CommitInstance,
    CreateInstance,
    EndRead,
    InstanceCall,
    InstanceView,
    PlaceInstance,
    SubscribeInstance,
)
from gateway.groups.names import group_name, member_name
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.errors import BAD_REQUEST, ILLEGAL_STATE, INVALID_CONSUMER, RETRIABLE, Refusal
from gateway.rest_proxy.media_types import FORMATS, SCHEMA_FORMATS
from gateway.routing.router import PartitionCall

BUSY_PAUSE_S = 0.02  # before another look whether the other request of an instance has ended
BUSY_S_MAX = 30.0
REQUEST_TIMEOUT_MS = 1000  # Confluent's default
WAIT_MS_MAX = 60_000
FETCH_MIN_BYTES_MAX = 10_000_000
RESETS = ("earliest", "latest", "none")
A = TypeVar("A", SubscribeInstance, PlaceInstance, CommitInstance, InstanceCall, BeginRead, EndRead, CreateInstance)

__all__ = ["COMMIT", "DELETE", "LOOK", "PLACE", "SUBSCRIBE"]


class InstanceSettings(Struct, frozen=True):
    """The settings of an instance, which its coordinator keeps as text.

    A read waits `timeout_ms` by default, for `min_bytes`.
    """

    format: str
    reset: str
    min_bytes: int
    timeout_ms: int


class CreateBody(Struct, forbid_unknown_fields=True):
    """The body of a creation. Numbers and booleans may come as text, as clients of the different proxies send them."""

    name: Annotated[str, Meta(max_length=200)] | None = None
    id: str | None = None
    format: str = "binary"
    reset: str = field(default="latest", name="auto.offset.reset")
    commits: bool | str | None = field(default=None, name="auto.commit.enable")
    commits_too: bool | str | None = field(default=None, name="enable.auto.commit")  # of Strimzi's bridge
    min_bytes: int | str | None = field(default=None, name="fetch.min.bytes")
    timeout_ms: int | str | None = field(default=None, name="consumer.request.timeout.ms")

    def settings(self, *, has_registry: bool) -> InstanceSettings:
        """Returns the settings. Raises Refusal."""
        if self.format in SCHEMA_FORMATS and not has_registry:
            text = f"format {self.format} needs a schema registry, and this node has none configured"
            raise Refusal(INVALID_CONSUMER, f"Invalid consumer configuration: {text}")
        if self.format not in (*FORMATS, *SCHEMA_FORMATS):
            raise _invalid("format", self.format, " or ".join(FORMATS))
        if self.reset.lower() not in RESETS:
            raise _invalid("auto.offset.reset", self.reset, ", ".join(RESETS))
        least = _number("fetch.min.bytes", self.min_bytes, -1, FETCH_MIN_BYTES_MAX, 1)
        timeout_ms = _number("consumer.request.timeout.ms", self.timeout_ms, 0, 2**31 - 1, REQUEST_TIMEOUT_MS)
        return InstanceSettings(self.format, self.reset.lower(), max(1, least), min(timeout_ms, WAIT_MS_MAX))

    def is_committing(self) -> bool:
        """Returns whether reads commit what was read before. Raises Refusal."""
        given = self.commits_too if self.commits is None else self.commits
        if given is None or isinstance(given, bool):
            return bool(given)
        if given.lower() not in ("true", "false"):
            raise _invalid("auto.commit.enable", given, "true or false")
        return given.lower() == "true"


def _invalid(name: str, given: object, allowed: str) -> Refusal:
    text = f"Invalid consumer configuration: {name} is {str(given)[:100]!r}; give {allowed}"
    return Refusal(INVALID_CONSUMER, text)


def _number(name: str, given: int | str | None, least: int, most: int, default: int) -> int:
    if given is None or given == "":
        return default
    try:
        number = int(given) if len(str(given)) < 20 else most + 1
    except ValueError:
        raise _invalid(name, given, "a whole number") from None
    if not least <= number <= most:
        raise _invalid(name, given, f"{least} to {most}")
    return number


def encode_settings(settings: InstanceSettings) -> str:
    return msgspec.json.encode(settings).decode()


def decode_settings(text: str) -> InstanceSettings:
    return msgspec.json.decode(text, type=InstanceSettings)


def names_of(request: Request) -> tuple[str, str]:
    """Returns the group and the instance in the path. Raises Problem invalid_group_name."""
    return group_name(request), member_name(request.names["instance"])


async def call_instance(context: RestProxyContext, call: PartitionCall[A, InstanceView], arguments: A) -> InstanceView:
    """Makes a call on an instance, once no other request of it reads. Raises Refusal, Problem, EngineError."""
    coordinators, loop = context.groups.coordinators, asyncio.get_running_loop()
    until = loop.time() + BUSY_S_MAX
    while True:
        view = await coordinators.call(call, InstanceView, arguments.group, arguments)
        if view.refusal:
            raise Refusal(ILLEGAL_STATE, f"Illegal state: {view.refusal}")
        if not view.busy_ms:
            return view
        if loop.time() >= until:
            raise Refusal(RETRIABLE, "another request of the consumer instance reads records")
        await asyncio.sleep(min(BUSY_PAUSE_S, view.busy_ms / 1000))


def query_number(request: Request, name: str) -> int | None:
    """Returns a number of the query; None if it is not given. Other names are ignored, as by REST Proxy.

    Raises Refusal.
    """
    for part in request.query.split("&"):
        key, _, value = part.partition("=")
        if key == name:
            if not (value.isascii() and value.isdecimal() and len(value) < 19):
                raise Refusal(BAD_REQUEST, f"{name} is {value[:100]!r}; give a whole number")
            return int(value)
    return None


def check_distinct(places: Sequence[tuple[str, int]]) -> None:
    """Raises Problem invalid_body if a partition is named twice."""
    if len(set(places)) < len(places):
        raise Problem("invalid_body", "a partition is named twice")
