"""The names of one tenant: the visible ones, which its clients say, and the stored ones, which begin with its prefix.

Tenant `acme` owns every topic, group and subscription whose stored name begins with `acme.`; its client says `orders`
for `acme.orders`. This is the one place that makes one of the other. Names come in from paths (`enter`), and from
bodies and queries (`stored_in`), whose types mark them by NAME and NamesIn. They go out in documents, which are walked
whole (`shown`), so that a field that is new shows no stored name. Records are not walked: they are the client's own.
Invariants: every name that comes in gets the prefix, so that a client cannot name what is outside; no name leaves with
the prefix, but in what clients wrote themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import orjson
from msgspec import Struct, structs

from engine.format.paths import TOPIC_CHARS_MAX, is_topic_name
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Resource

TENANT_ID = "[a-z][a-z0-9-]{0,30}"  # no dot, which ends it: so no prefix begins another one
NAME_CHARS_MAX = 200  # of the stored name of a group or a subscription
KEPT_MAX = 4096  # names that were checked before; beyond it all are forgotten
_NAMED = (Resource.TOPIC, Resource.GROUP, Resource.SUBSCRIPTION)
# Fields with a client's own text, or with a name of another kind.
_OWN_TEXT = frozenset(
    {"author", "base_uri", "client_address", "client_id", "consumer_id", "filter", "instance_id", "leader_url",
     "member_id", "metadata", "note", "owner", "principal", "rack", "request_id", "secret", "source", "token",
     "topic_id", "url"}
)  # fmt: skip
_JSON_TYPES = ("application/json", "application/problem+json")
_HEADERS = ("penstock-", "location", "link")
# The operations whose answers have records, or what is visible from its birth.
SHOWN = frozenset(
    {"acquire_records", "fetch", "fetch_many", "group_events", "group_poll", "read_table", "read_table_key",
     "tail_topic", "list_groups", "rest_produce_batch", "rest_produce_record", "rest_read_records",
     "describe_overview", "list_topics", "read_history", "describe_me", "describe_settings", "read_audit",
     "list_jobs",
     "add_rule", "create_token", "describe_tenant", "list_rules", "list_tenants", "list_tokens",
     "rotate_token"}
)  # fmt: skip

# Problems whose texts count what all tenants have.
WITHOUT_COUNTS = {"too_many_topics": "there is no room for more topics or partitions: ask the operator"}

Rename = Callable[[str], str]
_Plan = Callable[[Rename, Any], Any]


class Name:
    """Marks a text in the type of a body as the name of a topic."""


class NamesIn(NamedTuple):
    """Marks a dictionary in the type of a body: some of its values are names of topics, or several joined by commas."""

    keys: tuple[str, ...]


NAME = Name()


class TenantNames:
    """The names of one tenant."""

    __slots__ = ("_bytes", "_kept", "_of_name", "_wrap", "prefix", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.prefix = f"{tenant}."
        self._bytes = tenant.encode()
        self._wrap = f"{tenant}\\.(?:"  # around an expression
        # At the beginning of a name; behind // is the host of a URL.
        self._of_name = re.compile(rf"(?<![A-Za-z0-9._@-])(?<!//){tenant}(?:\.|\\\.\(\?:)")
        self._kept: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"TenantNames({self.tenant})"

    def stored(self, name: str, resource: Resource = Resource.TOPIC) -> str:
        """Returns the stored name of a visible one. Raises Problem invalid_topic_name, invalid_group_name."""
        found = self._kept.get(name)
        if found is not None:
            return found
        stored = self.prefix + name
        if resource is not Resource.TOPIC:
            if not name or len(stored) > NAME_CHARS_MAX:
                raise Problem(
                    "invalid_group_name", f"{name[:64]!r} cannot name a {resource} here: {self._room(NAME_CHARS_MAX)}"
                )
            return stored
        if not is_topic_name(name) or len(stored) > TOPIC_CHARS_MAX:
            raise Problem(
                "invalid_topic_name", f"{name[:64]!r} cannot name a topic here: {self._room(TOPIC_CHARS_MAX)}"
            )
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[name] = stored
        return stored

    def _room(self, chars_max: int) -> str:
        return f"use 1 to {chars_max - len(self.prefix)} of A-Z a-z 0-9 . _ -"

    def visible(self, name: str) -> str:
        """Returns the visible name of a stored one."""
        return name.removeprefix(self.prefix)

    def owns(self, name: str) -> bool:
        return name.startswith(self.prefix)

    def enter(self, request: Request) -> None:
        """Gives a request the stored names of what its path names. The names of its head are shared: they stay."""
        request.space = self
        names = request.names
        for resource in _NAMED:
            if resource in names:
                names = {**names, resource.value: self.stored(names[resource], resource)}
        request.names = names

    def stored_in(self, value: Any) -> Any:
        """Returns a body or a query with stored names where its type marks names. Raises Problem."""
        return _rename(self.stored, value)

    def visible_in(self, value: Any) -> Any:
        """Returns a value with visible names where its type marks names."""
        return _rename(self.visible, value)

    def expression(self, text: str) -> str:
        """Returns the expression over stored names of a valid one over visible names."""
        return f"{self._wrap}{text})"

    def shown(self, value: Any) -> Any:
        """Returns a part of a document as the tenant may see it: without its prefix."""
        if isinstance(value, str):
            if value.startswith(self._wrap) and value.endswith(")"):
                return value[len(self._wrap) : -1]
            return self._of_name.sub("", value) if self.tenant in value else value
        if isinstance(value, Mapping):
            return {self.shown(key): one if key in _OWN_TEXT else self.shown(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.shown(one) for one in value]
        return value

    def shown_records(self, document: bytes | bytearray) -> bytes | bytearray:
        """Returns a document of records, whose first member names their topic, with the visible name."""
        head = b'{"topic":"' + self.prefix.encode()
        return _TOPIC + document[len(head) :] if document.startswith(head) else document

    def leave(self, request: Request, response: Response) -> Response:
        """Returns an answer as the tenant may see it. The handlers of records and rules have shown theirs."""
        is_shown = request.route.operation in SHOWN and response.status < 300
        if response.form is not None:  # of frequent answers, whose headers name nothing
            response.body = response.body if is_shown else self.shown_records(response.body)
            return response
        headers = response.headers
        response.headers = {
            name: self.shown(text) if name.lower().startswith(_HEADERS) else text for name, text in headers.items()
        }
        if response.problem in WITHOUT_COUNTS:
            problem = {"detail": WITHOUT_COUNTS[response.problem]}
            document = orjson.loads(response.join()) | problem
            document.pop("limit", None)
            response.body = orjson.dumps(document)
        if response.problem == "quota_exceeded":  # elsewhere an owner is not a name of ours
            document = orjson.loads(response.join())
            response.body = orjson.dumps(document | {"owner": self.shown(document["owner"])})
        if not is_shown and headers.get("Content-Type") in _JSON_TYPES and self._bytes in response.join():
            response.body = orjson.dumps(self.shown(orjson.loads(response.body)))
        return response


def _rename(rename: Rename, value: Any) -> Any:
    shape: Any = type(value)
    plan = _plan_of(shape)
    return value if plan is None else plan(rename, value)


@cache
def _plan_of(shape: Any) -> _Plan | None:
    """Returns what renames the marked names of a value of this type; None: it has none."""
    origin, given = get_origin(shape), get_args(shape)
    if origin is Annotated:
        if NAME in given[1:]:
            return _rename_text
        marks = [mark for mark in given[1:] if isinstance(mark, NamesIn)]
        return _rename_keys(marks[0]) if marks else _plan_of(given[0])
    if origin in (Union, UnionType):
        plans = [plan for plan in map(_plan_of, given) if plan is not None]
        assert len(plans) <= 1, shape
        return plans[0] if plans else None
    if origin in (list, tuple):
        item = _plan_of(given[0])
        return None if item is None else _rename_items(item)
    if isinstance(shape, type) and issubclass(shape, Struct):
        hints = get_type_hints(shape, include_extras=True)
        plans_of = {name: plan for name in shape.__struct_fields__ if (plan := _plan_of(hints[name])) is not None}
        return _rename_fields(shape, plans_of) if plans_of else None
    return None


def names_in(shape: Any) -> bool:
    """Returns whether a type has a marked name."""
    return _plan_of(shape) is not None


def _rename_text(rename: Rename, value: Any) -> Any:
    return rename(value) if isinstance(value, str) else value


def _rename_items(item: _Plan) -> _Plan:
    def plan(rename: Rename, value: Any) -> Any:
        return type(value)(item(rename, one) for one in value) if isinstance(value, list | tuple) else value

    return plan


def _rename_keys(mark: NamesIn) -> _Plan:
    def plan(rename: Rename, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: ",".join(map(rename, text.split(","))) if key in mark.keys and isinstance(text, str) and text else text
            for key, text in value.items()
        }

    return plan


def _rename_fields(shape: type[Struct], plans: dict[str, _Plan]) -> _Plan:
    def plan(rename: Rename, value: Any) -> Any:
        if not isinstance(value, shape):
            return value
        return structs.replace(value, **{name: of(rename, getattr(value, name)) for name, of in plans.items()})

    return plan


_TOPIC = b'{"topic":"'
