"""The tokens file, and how a token is made: who may read, write or administer topics, by the beginnings of their names.

Not here: which route needs which right (gateway/access/access.py), and when the file is read again
(node/setup/watched_files.py). A token is `penstock_<id>_<secret>`. The id is public: it finds the entry and may stand
in a log. The secret is 256 random bits, which nobody can guess however fast a guess is; so the file keeps a plain
SHA-256 of the token, which every request can afford, where a password would need a slow hash. What must hold: nothing
here can show a secret again.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

FILE_BYTES_MAX = 1024 * 1024  # some 3,000 tokens; it also travels in one piece to every shard
ID_BYTES, SECRET_BYTES = 4, 32
_PREFIX = "penstock_"
_ID = slice(len(_PREFIX), len(_PREFIX) + 2 * ID_BYTES)
_TOKEN_LENGTH = len(_PREFIX) + 2 * ID_BYTES + 1 + 43  # base64 of 32 bytes without its padding
_NOBODY = bytes(32)
_HEAD = "# Who may use this node. Made by `penstock token create`; to take a token back, remove its entry.\n"

# \Z and not $, which would let a line end through.
Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
TopicPrefix = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,200}\Z")]  # no stars: it is a beginning, "" is all


class Right(StrEnum):
    """None of them holds another one: who may delete a topic need not see what is in it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class InvalidTokens(Exception):
    """The file cannot be used. The text is one line, and holds nothing of what could be a secret."""


class _Entry(Struct, forbid_unknown_fields=True):
    id: Id
    name: Name
    sha256: Digest
    created: datetime | None = None
    read: list[TopicPrefix] = []
    write: list[TopicPrefix] = []
    admin: list[TopicPrefix] = []
    metrics: bool = False


class _File(Struct, forbid_unknown_fields=True):
    tokens: list[_Entry] = []


class Token:
    """A known token: its name, and what it may do."""

    __slots__ = ("_digest", "_prefixes", "has_metrics", "id", "name")

    def __init__(self, entry: _Entry) -> None:
        self.id = entry.id
        self.name = entry.name
        self.has_metrics = entry.metrics  # they name every topic, so that no right to some of them is enough
        self._digest = bytes.fromhex(entry.sha256)
        self._prefixes: dict[Right, tuple[str, ...]] = {right: tuple(getattr(entry, right)) for right in Right}

    def __repr__(self) -> str:
        return f"Token({self.id}, {self.name}, {self._prefixes})"

    def allows(self, right: Right, topic: str) -> bool:
        return topic.startswith(self._prefixes[right])

    def sees(self, topic: str) -> bool:
        """Whether it has any right to the topic: a producer must learn of its partitions."""
        return any(topic.startswith(prefixes) for prefixes in self._prefixes.values())

    def has_any(self, right: Right) -> bool:
        """Whether it has the right to whatever topics."""
        return bool(self._prefixes[right])

    def rights(self) -> dict[str, list[str] | bool]:
        return {
            **{right.value: list(prefixes) for right, prefixes in self._prefixes.items()},
            "metrics": self.has_metrics,
        }

    def is_proven_by(self, digest: bytes) -> bool:
        """In constant time, so that no answer's delay tells how much of a guess was right."""
        return hmac.compare_digest(self._digest, digest)


class Tokens:
    """All tokens of one reading of the file; never changes."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.all = tokens
        self._by_id = {token.id: token for token in tokens}

    def __repr__(self) -> str:
        return f"Tokens({len(self.all)})"

    def find(self, text: str) -> Token | None:
        """The token that this is, if it is one."""
        if len(text) != _TOKEN_LENGTH or not text.isascii():
            return None
        token = self._by_id.get(text[_ID])
        if token is None or not token.is_proven_by(_digest_of(text)):
            return None
        return token


class NewToken(NamedTuple):
    """`text` is what the owner is told, once; `entry` is what the file is told."""

    id: str
    text: str
    entry: str


def parse_tokens(text: str) -> Tokens:
    """Raises InvalidTokens."""
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
    return Tokens([Token(entry) for entry in file.tokens])


def read_tokens_text(path: str) -> str:
    """What stands in the file. Blocks. Raises InvalidTokens."""
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
    """Raises InvalidTokens when the name or a prefix cannot be."""
    token_id = random_bytes(ID_BYTES).hex()
    secret = base64.urlsafe_b64encode(random_bytes(SECRET_BYTES)).rstrip(b"=").decode()
    text = f"{_PREFIX}{token_id}_{secret}"
    lines = [
        "\n[[tokens]]",
        f'id = "{token_id}"',
        f'name = "{name}"',
        f'sha256 = "{_digest_of(text).hex()}"',
        f"created = {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        *(f"{right.value} = {list(prefixes)}".replace("'", '"') for right, prefixes in rights.items()),
        *(["metrics = true"] if metrics else []),
    ]
    entry = "\n".join(lines) + "\n"
    _check_entry(name, rights)
    parse_tokens(entry)
    return NewToken(token_id, text, entry)


def append_token(path: str, new: NewToken) -> None:
    """Add the entry to the file, which is made, for its owner's eyes only, if there is none. Blocks.

    In place and in one write, so that owner and mode stay as they are, and two that append at once do so in turn. A
    node that reads half of it keeps the tokens it had and looks again. Raises InvalidTokens, OSError.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read().decode()
        line_end = "" if before.endswith("\n") or not before else "\n"
        added = (line_end if before else _HEAD) + new.entry
        parse_tokens(before + added)  # neither broken before, nor by this: the name may be taken
        data = added.encode()
        if file.write(data) != len(data):
            file.truncate(len(before.encode()))
            raise InvalidTokens("no space is left for another token")
        os.fsync(file.fileno())


def _check_entry(name: str, rights: Mapping[Right, Sequence[str]]) -> None:
    """Before they stand in TOML, where a quote would end them."""
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise InvalidTokens(f"the name {name!r} is not 1 to 100 of A-Z a-z 0-9 . _ -") from None
    for prefix in (prefix for prefixes in rights.values() for prefix in prefixes):
        try:
            msgspec.convert(prefix, TopicPrefix)
        except msgspec.ValidationError:
            text = f"no topic's name begins with {prefix!r}; give a plain beginning, or nothing for all topics"
            raise InvalidTokens(text) from None


def _digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _place_in(message: str) -> str:
    """Where it is, without what stands there."""
    _, found, place = message.rpartition("(at ")
    return f"at {place.rstrip(')')}" if found else "it cannot be parsed"
