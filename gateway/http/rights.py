"""Values of access rules: the need of a route, and its caller."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Protocol


class Right(StrEnum):
    """A right to topics or groups. No right contains another one: a client that may delete a topic need not read it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    GROUP = "group"  # to consumer groups, by prefixes of their names


class Requirement(Enum):
    """The need of a route that does not concern one topic's records."""

    NONE = "no token"
    AUTHENTICATED = "any token; the handler checks the rights to each topic"
    SEES = "a token with any right to the topic"
    WRITES = "a token with the right to write to any topic"
    OPERATES = "a token with the right admin to all topics, because placement concerns all of them"
    METRICS = "a token with the right metrics"


class Caller(Protocol):
    """The sender of a request."""

    @property
    def name(self) -> str: ...
    def allows(self, right: Right, topic: str) -> bool: ...
    def prefixes(self, right: Right) -> tuple[str, ...] | None: ...


class _Anonymous:
    """The caller of a node without tokens."""

    name = "anybody"

    def allows(self, right: Right, topic: str) -> bool:
        return True

    def prefixes(self, right: Right) -> tuple[str, ...] | None:
        return None


ANONYMOUS: Caller = _Anonymous()
