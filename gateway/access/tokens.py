"""Bearer tokens: their form, their hashes, and the token that a text belongs to.

A token is `penstock_<id>_<secret>`. The id is public: it finds the entry and may appear in a log. The secret is 256
random bits, which cannot be guessed at any rate; so a plain SHA-256 of the token is kept, cheap enough for every
connection, where a password would need a slow hash. Invariant: nothing here can show a secret after its creation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from gateway.access.rules import Rule

ID_BYTES, SECRET_BYTES = 4, 32
PREFIX = "penstock_"
_ID = slice(len(PREFIX), len(PREFIX) + 2 * ID_BYTES)
_TOKEN_LENGTH = len(PREFIX) + 2 * ID_BYTES + 1 + 43  # base64 of 32 bytes without its padding


class Token:
    """A known token. `expires_ms`: when it ends; 0: it does not. `own_rules`, `tenant`: see Identity."""

    __slots__ = ("_digest", "expires_ms", "id", "name", "own_rules", "tenant")

    def __init__(
        self,
        token_id: str,
        name: str,
        sha256: str,
        expires_ms: int = 0,
        own_rules: str = "",
        tenant: str | None = None,
    ) -> None:
        self.id = token_id
        self.name = name
        self.expires_ms = expires_ms
        self.own_rules = own_rules
        self.tenant = tenant
        self._digest = bytes.fromhex(sha256)

    def __repr__(self) -> str:
        return f"Token({self.id}, {self.name})"

    def rules(self) -> list[Rule]:
        """Returns the rules that come with the token."""
        return []

    def matches(self, digest: bytes) -> bool:
        """Returns whether the digest is that of the token. Takes constant time, so that the delay reveals nothing."""
        return hmac.compare_digest(self._digest, digest)


_Token = TypeVar("_Token", bound=Token, covariant=True)


class Tokens(Generic[_Token]):
    """Tokens by their ids; immutable."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.all = tokens
        self._by_id = {token.id: token for token in tokens}

    def __repr__(self) -> str:
        return f"Tokens({len(self.all)})"

    def find(self, text: str) -> _Token | None:
        """Returns the token with this text; None if there is none."""
        if len(text) != _TOKEN_LENGTH or not text.isascii():
            return None
        token = self._by_id.get(text[_ID])
        if token is None or not token.matches(digest_of(text)):
            return None
        return token


def make_text(random_bytes: Callable[[int], bytes]) -> tuple[str, str]:
    """Returns the id and the text of a new token."""
    token_id = random_bytes(ID_BYTES).hex()
    secret = base64.urlsafe_b64encode(random_bytes(SECRET_BYTES)).rstrip(b"=").decode()
    return token_id, f"{PREFIX}{token_id}_{secret}"


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def unknown_because(text: str) -> str:
    """Returns why no token has this text, as far as its form says, without any part of it."""
    if not text.startswith(PREFIX):
        return f"what was sent is not a token: it begins with {PREFIX}, and `penstock token create` prints it"
    if len(text) != _TOKEN_LENGTH:
        return f"the token has {len(text)} characters instead of {_TOKEN_LENGTH}: it is cut off or has more behind it"
    return "the token is unknown to this node: it was revoked, or belongs to another tokens file"
