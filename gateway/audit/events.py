"""Makes the lines of the audit trail: CloudEvents 1.0 in JSON, of a type `penstock.audit.v1.…`.

Pure: times and ids are given. docs/audit.md describes the fields, and maps them to OCSF. Invariants: no line has a
payload, or the text, hash or signature of a credential; a text that has the form of a token or of a JWT is replaced,
wherever a client has put it; a line is at most LINE_BYTES_MAX long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import orjson

from gateway.access.tokens import PREFIX

TEXT_CHARS_MAX = 256  # longer than any name that a node accepts
LINE_BYTES_MAX = 64 * 1024  # a spare file has room for one
_STATE_BYTES_MAX = 24 * 1024  # of `before` and of `after`
_ITEMS_MAX = 1000
_DEPTH_MAX = 6
_CREDENTIAL = re.compile(rf"{PREFIX}[A-Za-z0-9_-]+|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]*|whsec_[A-Za-z0-9+/=]+")
HIDDEN = "(hidden)"


class Kind(StrEnum):
    """The last part of the type of an event."""

    STARTED = "started"  # the node, with a trail that goes on or begins
    INTENDED = "change.intended"  # durable before the change is made
    ENDED = "change.ended"  # with what became of it
    SUPERUSER = "superuser"  # a superuser used its right to something that changes nothing
    DENIED = "denied"  # 403
    REFUSED = "refused"  # a credential, with 401
    LIMITED = "limited"  # 429, for an address with too many refused credentials


class Subject(NamedTuple):
    """The caller, the operation and the resource of a request, as far as they are known."""

    principal: str | None
    credential: str | None  # the id of a token, which may be known
    tenant: str | None
    address: str | None
    operation: str  # of the route
    right: str
    resource: str
    name: str | None


def line(kind: Kind, subject: Subject | None, *, source: str, event_id: str, now_ms: int, **more: object) -> bytes:
    """Returns one event as a line. `more` are further members of its data."""
    data: dict[str, object] = {} if subject is None else _of(subject)
    event = {
        "specversion": "1.0",
        "id": event_id,
        "source": source,
        "type": f"penstock.audit.v1.{kind}",
        "time": time_text(now_ms),
        "datacontenttype": "application/json",
        "data": data | {name: shown(value) for name, value in more.items()},
    }
    if subject is not None:
        event["subject"] = clean(subject.resource if subject.name is None else f"{subject.resource}/{subject.name}")
    text = orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
    assert len(text) <= LINE_BYTES_MAX, kind
    return text


def source_of(cluster_id: str, node_id: int) -> str:
    """Returns the `source` of the events of a node."""
    return f"/clusters/{cluster_id}/nodes/{node_id}"


def time_text(now_ms: int) -> str:
    """Returns a time in RFC 3339, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"


def clean(text: str) -> str:
    """Returns a text of a client as a line may have it."""
    hidden = _CREDENTIAL.sub(HIDDEN, text.encode("utf-8", "replace").decode())
    return hidden if len(hidden) <= TEXT_CHARS_MAX else hidden[:TEXT_CHARS_MAX] + "…"


def shown(value: object) -> object:
    """Returns a value that was made for the trail, with bounded size and clean texts."""
    made = _shown(value, 0)
    if isinstance(made, dict | list) and len(orjson.dumps(made)) > _STATE_BYTES_MAX:
        return {"cut": True}
    return made


def _shown(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)[:TEXT_CHARS_MAX]
    if isinstance(value, str):
        return clean(value)
    if depth < _DEPTH_MAX and isinstance(value, Mapping):
        items = list(value.items())[:_ITEMS_MAX]
        return {clean(str(name)): _shown(one, depth + 1) for name, one in items}
    if depth < _DEPTH_MAX and isinstance(value, list | tuple | set | frozenset):
        return [_shown(one, depth + 1) for one in list(value)[:_ITEMS_MAX]]
    return clean(str(value))


def _of(subject: Subject) -> dict[str, object]:
    resource = {"kind": subject.resource, "name": None if subject.name is None else clean(subject.name)}
    return {
        "principal": None if subject.principal is None else clean(subject.principal),
        "credential": subject.credential,
        "tenant": subject.tenant,
        "address": subject.address,
        "listener": None,  # a node has one
        "operation": subject.operation,
        "right": subject.right,
        "resource": resource,
    }
