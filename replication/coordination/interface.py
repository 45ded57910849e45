"""The interface of a coordination store: versioned keys, changed by compare-and-set in atomic commits.

For a few kilobytes per key that all nodes must agree on, not for records or frequent changes. Async; an implementation
hides its threads. tests/replication/coordination/test_coordination.py is the contract of every implementation.

Keys look like paths, `/producer-ids`. Invariants: (1) a commit is atomic, and durable when it returns; (2) all sessions
see commits in one order; (3) a key has a value or keys below it, never both; (4) ephemeral keys end with their session,
and never before the session is LOST.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple, Protocol

from engine.errors import EngineError, Invalid

VALUE_BYTES_MAX = 512 * 1024  # ZooKeeper's limit is 1 MiB for the whole request
_KEY = re.compile(r"(?:/[A-Za-z0-9._-]{1,250})+")


class Versioned(NamedTuple):
    """The value and version of a key.

    `version` counts changes of the value from 0, and restarts at 0 if the key is created again. `created` grows with
    every creation of any key, also across restarts (ZooKeeper's czxid).
    """

    value: bytes
    version: int
    created: int


class Create(NamedTuple):
    """Create a key that does not exist. An ephemeral key ends with its session."""

    key: str
    value: bytes
    is_ephemeral: bool = False


class Put(NamedTuple):
    """Replace the value of a key that has this version."""

    key: str
    value: bytes
    version: int


class Delete(NamedTuple):
    """Delete a key that has this version."""

    key: str
    version: int


class Check(NamedTuple):
    """Require that a key has this version, without a change."""

    key: str
    version: int


Operation = Create | Put | Delete | Check


class State(Enum):
    """The state of a session. SUSPENDED: the store does not answer. LOST is final: open another session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Conflict(EngineError):
    """A key does not have the required version or existence. Nothing was committed; read again and decide again."""

    code = "overloaded"
    retryable = True


class StoreDenied(EngineError):
    """The store denies this session the keys. Retrying does not help; an operator has to mend login or keys."""


class SessionLost(EngineError):
    """The session is over and its ephemeral keys are gone. Open another session."""

    code = "overloaded"
    retryable = True


class CommitUnknown(EngineError):
    """The connection was lost during a commit, whose outcome is unknown. Read the keys to find out."""

    code = "ack_timeout"
    retryable = True
    no_side_effects = False


class Session(Protocol):
    """One session with the store. Every call raises SessionLost once it is over."""

    @property
    def state(self) -> State: ...

    async def get(self, key: str) -> Versioned | None:
        """Return a key; may be stale, since a ZooKeeper server may lag behind."""

    async def get_latest(self, key: str) -> Versioned | None:
        """Return a key, at least as new as every commit that returned before this call."""

    async def children(self, key: str) -> list[str]:
        """Return the sorted names directly below a key. A parent may remain after its last child is deleted."""

    async def commit(self, *operations: Operation) -> None:
        """Apply all operations in order, or none. Raises Conflict, Invalid, CommitUnknown, and errors of the disk.

        A cancelled caller stops waiting; the commit may still happen.
        """

    async def wait_for_change(self, key: str, seen: Versioned | None) -> Versioned | None:
        """Wait until a key differs from `seen`, and return it. Changes in between may be skipped."""

    async def wait_for_children(self, key: str, seen: list[str]) -> list[str]:
        """Wait until the names below a key differ from `seen`, and return them."""

    async def wait_for_state(self, seen: State) -> State:
        """Wait until the session's state differs from `seen`, and return it."""

    async def close(self) -> None:
        """End the session and delete its ephemeral keys."""


def check_operations(operations: tuple[Operation, ...]) -> None:
    """Check what every store rejects. Raises Invalid."""
    if not operations:
        raise Invalid("the commit has no operations")
    for operation in operations:
        check_key(operation.key)
        if isinstance(operation, Create | Put) and len(operation.value) > VALUE_BYTES_MAX:
            raise Invalid(f"{operation.key}: {len(operation.value)} bytes exceed the limit, {VALUE_BYTES_MAX}")


def check_key(key: str) -> None:
    """Check the form of a key; ZooKeeper rejects the names `.` and `..`. Raises Invalid."""
    if not _KEY.fullmatch(key) or any(name in (".", "..") for name in key.split("/")):
        raise Invalid(f"{key!r} is not a key: use names of A-Z a-z 0-9 . _ - with a slash before each")


def parents_of(key: str) -> list[str]:
    """Return the keys above a key: `/a` and `/a/b` for `/a/b/c`."""
    names = key.split("/")[1:-1]
    return ["/" + "/".join(names[: end + 1]) for end in range(len(names))]
