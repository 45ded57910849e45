"""The tokens file of a node: tokens, and rights to read, write or administer topics by prefixes of their names.

Not here: the form of tokens (gateway/access/tokens.py), the check of a request (gateway/access/access.py), and the
reloading of the file (node/setup/watched_files.py). The rights of a token become rules, which are decided as all are.
The file is the operator's own way in: it is read without the coordination store. It keeps hashes alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.tokens import Token, Tokens, digest_of, make_text
from gateway.http.rights import Operation, Resource

FILE_BYTES_MAX = 1024 * 1024  # some 3,000 tokens; the file is sent in one message to every shard
_ENTRY = re.compile(r"^(?=\[\[tokens\]\])", re.MULTILINE)
_HEAD = "# Who may use this node. Made by `penstock token create`; `penstock token revoke` removes one.\n"

# \Z, because $ accepts a line end.
Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
TopicPrefix = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,249}\Z")]  # no wildcards: it is a prefix, "" matches all


class Right(StrEnum):
    """A right of the file to topics or groups. None has another: a client that may delete a topic need not read it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    GROUP = "group"  # to consumer groups, by prefixes of their names


# The operations that each right of the file allows.
OPERATIONS_OF = {
    Right.READ: (Resource.TOPIC, (Operation.READ,)),
    Right.WRITE: (Resource.TOPIC, (Operation.WRITE, Operation.AUTO_CREATE)),
    Right.ADMIN: (Resource.TOPIC, (Operation.CREATE, Operation.ALTER, Operation.DELETE)),
    Right.GROUP: (Resource.GROUP, (Operation.DESCRIBE, Operation.READ, Operation.ALTER, Operation.DELETE)),
}
_OF_EVERY_TOKEN = {
    Resource.CLUSTER: (Operation.DESCRIBE,),
    # The handlers ask for the right to read all topics of a subscription.
    Resource.SUBSCRIPTION: (Operation.DESCRIBE, Operation.CREATE, Operation.ALTER, Operation.DELETE),
}


class InvalidTokens(Exception):
    """The tokens file cannot be used. The text is one line and contains no part of a secret."""


class _Entry(Struct, forbid_unknown_fields=True):
    id: Id
    name: Name
    sha256: Digest
    created: datetime | None = None
    read: list[TopicPrefix] = []
    write: list[TopicPrefix] = []
    admin: list[TopicPrefix] = []
    group: list[TopicPrefix] = []
    metrics: bool = False


class _File(Struct, forbid_unknown_fields=True):
    tokens: list[_Entry] = []


class FileToken(Token):
    """A token of the file: its name and its rights."""

    __slots__ = ("_prefixes", "has_metrics")

    def __init__(self, entry: _Entry) -> None:
        # As a principal and as the id of its rules: the store has no such names.
        super().__init__(entry.id, entry.name, entry.sha256, own_rules=f"file:{entry.id}")
        self.has_metrics = entry.metrics  # a right of its own: metrics name every topic
        self._prefixes: dict[Right, tuple[str, ...]] = {right: tuple(getattr(entry, right)) for right in Right}

    def __repr__(self) -> str:
        return f"FileToken({self.id}, {self.name}, {self._prefixes})"

    def rules(self) -> list[Rule]:
        """Returns the rights as rules."""
        rules = [
            self._rule(resource, operations, prefix)
            for right, (resource, operations) in OPERATIONS_OF.items()
            for prefix in self._prefixes[right]
        ]
        rules += [self._rule(resource, operations) for resource, operations in _OF_EVERY_TOKEN.items()]
        if "" in self._prefixes[Right.ADMIN]:  # placement concerns all topics
            rules.append(self._rule(Resource.CLUSTER, (Operation.OPERATE,)))
        if self.has_metrics:
            rules.append(self._rule(Resource.CLUSTER, (Operation.METRICS,)))
        return rules

    def _rule(self, resource: Resource, operations: tuple[Operation, ...], prefix: str = "") -> Rule:
        return Rule(
            id=self.own_rules,
            effect=Effect.ALLOW,
            principals=(self.own_rules,),
            operations=operations,
            resource=resource,
            pattern=Pattern.PREFIX if prefix else Pattern.ALL,
            name=prefix,
        )

    def rights(self) -> dict[str, list[str] | bool]:
        return {
            **{right.value: list(prefixes) for right, prefixes in self._prefixes.items()},
            "metrics": self.has_metrics,
        }


class NewToken(NamedTuple):
    """A new token. `text` is shown to its owner once; `entry` is appended to the file."""

    id: str
    text: str
    entry: str


def parse_tokens(text: str) -> Tokens[FileToken]:
    """Parses the text of a tokens file. Raises InvalidTokens."""
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except tomllib.TOMLDecodeError as error:
        raise InvalidTokens(f"not valid TOML: {_place_in(str(error))}") from None
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidTokens(" ".join(str(error).split())) from None
    for field in ("id", "name"):
        values = [getattr(entry, field) for entry in file.tokens]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise InvalidTokens(f"two tokens have the {field} {twice}")
    return Tokens([FileToken(entry) for entry in file.tokens])


def read_tokens_text(path: str) -> str:
    """Returns the text of the file. Blocks. Raises InvalidTokens."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise InvalidTokens(f"larger than {FILE_BYTES_MAX} bytes")
        return data.decode()
    except OSError as error:
        raise InvalidTokens(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidTokens("not UTF-8") from None


def make_token(
    name: str,
    rights: Mapping[Right, Sequence[str]],
    now: datetime,
    random_bytes: Callable[[int], bytes],
    *,
    metrics: bool = False,
) -> NewToken:
    """Makes a token. Raises InvalidTokens for an invalid name or prefix."""
    token_id, text = make_text(random_bytes)
    lines = [
        "\n[[tokens]]",
        f'id = "{token_id}"',
        f'name = "{name}"',
        f'sha256 = "{digest_of(text).hex()}"',
        f"created = {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        *(
            f"{right.value} = {list(prefixes)}".replace("'", '"')
            for right, prefixes in rights.items()
            if prefixes or right is not Right.GROUP  # nodes of an older version reject the field
        ),
        *(["metrics = true"] if metrics else []),
    ]
    entry = "\n".join(lines) + "\n"
    _check_entry(name, rights)
    parse_tokens(entry)
    return NewToken(token_id, text, entry)


def remove_token(path: str, name: str) -> str:
    """Removes the entry with this id or name from the file, with the comments in it, and returns its id. Blocks.

    Rewrites the file in place, so that owner and mode stay. Nothing else in the file changes. Raises InvalidTokens,
    OSError.
    """
    with open(path, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read().decode()
        removed = next((token for token in parse_tokens(before).all if name in (token.id, token.name)), None)
        if removed is None:
            raise InvalidTokens(f"no token has the id or name {name}")
        head, *entries = _ENTRY.split(before)
        kept = [entry for entry in entries if tomllib.loads(entry)["tokens"][0]["id"] != removed.id]
        after = "".join([head, *kept])
        remaining = {token.id for token in parse_tokens(after).all}
        if remaining != {token.id for token in parse_tokens(before).all} - {removed.id}:
            raise InvalidTokens(f"the entry of {name} is not a [[tokens]] section of its own; remove it by hand")
        data = after.encode()
        file.seek(0)
        file.write(data)
        file.truncate(len(data))
        os.fsync(file.fileno())
    return removed.id


def append_token(path: str, new: NewToken) -> None:
    """Appends the entry to the file. Creates a missing file, readable by its owner only. Blocks.

    Appends in place and in one write: owner and mode stay as they are, and concurrent appends are serialized. A node
    that reads an incomplete file keeps its previous tokens and reads again. Raises InvalidTokens, OSError.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read().decode()
        line_end = "" if before.endswith("\n") or not before else "\n"
        added = (line_end if before else _HEAD) + new.entry
        parse_tokens(before + added)  # valid before and after: the name may be taken
        data = added.encode()
        if file.write(data) != len(data):
            file.truncate(len(before.encode()))
            raise InvalidTokens("no space is left for another token")
        os.fsync(file.fileno())


def _check_entry(name: str, rights: Mapping[Right, Sequence[str]]) -> None:
    """Checks values before they are written to TOML, where a quote would end them. Raises InvalidTokens."""
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise InvalidTokens(f"the name {name!r} is not 1 to 100 of A-Z a-z 0-9 . _ -") from None
    for prefix in (prefix for prefixes in rights.values() for prefix in prefixes):
        try:
            msgspec.convert(prefix, TopicPrefix)
        except msgspec.ValidationError:
            text = f"no topic name can begin with {prefix!r}; use a prefix of a name, or an empty one for all topics"
            raise InvalidTokens(text) from None


def _place_in(message: str) -> str:
    """Returns the position in an error message, without the text at that position."""
    _, found, place = message.rpartition("(at ")
    return f"at {place.rstrip(')')}" if found else "it cannot be parsed"
