"""What every coordination store can do: versioned keys, changed by compare-and-set, several at once or none.

Not a place for records or for what changes often: values are a few kilobytes that all nodes must agree upon. Async at
its surface; what an implementation does with threads stays inside it.
tests/replication/coordination/test_coordination.py is the contract that each of them is held to.

Keys look like paths, `/producer-ids`. What must hold: (1) a commit happens as a whole or not at all, and is durable
when it returns; (2) everybody sees commits in one order; (3) a key has a value or keys below it, never both; (4) what a
session registered ends with it, and never before it is told that it is lost.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple, Protocol

from engine.errors import EngineError, Invalid

VALUE_BYTES_MAX = 512 * 1024  # ZooKeeper takes 1 MiB in one request, with everything else that is in it
_KEY = re.compile(r"(?:/[A-Za-z0-9._-]{1,250})+")


class Versioned(NamedTuple):
    """A key as it is. `version` counts the changes of its value, from 0; a key made again begins at 0 again, but
    `created` is greater in each life of any key, also after restarts.
    """

    value: bytes
    version: int
    created: int


class Create(NamedTuple):
    """The key must not be there. A registration (`is_ephemeral`) goes when its session does."""

    key: str
    value: bytes
    is_ephemeral: bool = False


class Put(NamedTuple):
    """The key must be there with this version."""

    key: str
    value: bytes
    version: int


class Delete(NamedTuple):
    """The key must be there with this version."""

    key: str
    version: int


class Check(NamedTuple):
    """The key must be there with this version, and stays so."""

    key: str
    version: int


Operation = Create | Put | Delete | Check


class State(Enum):
    """Of a session. SUSPENDED: nobody answers; it may go on or be lost. LOST is for ever: open another one."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Conflict(EngineError):
    """A key is not as the commit demands, and nothing of it was done. Read again, and decide again."""

    code = "overloaded"
    retryable = True


class SessionLost(EngineError):
    """The session is over and its registrations are gone. Open another one and begin afresh."""

    code = "overloaded"
    retryable = True


class Unsure(EngineError):
    """The store went away during a commit: whether it happened is not known. Read, and see."""

    code = "ack_timeout"
    retryable = True
    no_side_effects = False


class Session(Protocol):
    """One node's conversation with the store. Every call raises SessionLost once it is over."""

    @property
    def state(self) -> State: ...

    async def get(self, key: str) -> Versioned | None:
        """A key as it was a moment ago: ZooKeeper may answer from a server that is behind."""

    async def get_latest(self, key: str) -> Versioned | None:
        """A key as every commit has left it that was answered before this call."""

    async def children(self, key: str) -> list[str]:
        """Sorted names of what lies directly below a key. One below which everything has gone may still be there."""

    async def commit(self, *operations: Operation) -> None:
        """All of it in this order, or nothing. Raises Conflict, Invalid, Unsure, and what the disk fails with.

        A cancel gives up the wait, not the work.
        """

    async def wait_for_change(self, key: str, seen: Versioned | None) -> Versioned | None:
        """The key, as soon as it is not as it was seen. Changes that lie between may not be told."""

    async def wait_for_children(self, key: str, seen: list[str]) -> list[str]:
        """The names below a key, as soon as they are not those that were seen."""

    async def wait_for_state(self, seen: State) -> State:
        """The session's state, as soon as it is not the one that was seen."""

    async def close(self) -> None:
        """End the session, and with it what it registered."""


def check_operations(operations: tuple[Operation, ...]) -> None:
    """What no store could do. Raises Invalid."""
    if not operations:
        raise Invalid("a commit without operations")
    for operation in operations:
        check_key(operation.key)
        if isinstance(operation, Create | Put) and len(operation.value) > VALUE_BYTES_MAX:
            raise Invalid(f"{operation.key}: {len(operation.value)} bytes are more than a value may have")


def check_key(key: str) -> None:
    """Raises Invalid. `.` and `..` are no names: ZooKeeper does not take them."""
    if not _KEY.fullmatch(key) or any(name in (".", "..") for name in key.split("/")):
        raise Invalid(f"{key!r} is no key: names of A-Z a-z 0-9 . _ - with a slash before each")


def parents_of(key: str) -> list[str]:
    """`/a/b/c` lies below `/a` and `/a/b`."""
    names = key.split("/")[1:-1]
    return ["/" + "/".join(names[: end + 1]) for end in range(len(names))]
