"""The outcomes of the check of an access token: the caller that it names, or why it is refused."""

from __future__ import annotations

from typing import NamedTuple


class Verified(NamedTuple):
    """The caller that a token names. `name` and `groups` are those of principals, with the alias of the issuer.

    `digest`: the SHA-256 of the token, as text.
    """

    name: str
    groups: tuple[str, ...]
    tenant: str | None
    expires_ms: int
    digest: str


class Refused(Exception):
    """A token is not taken. The text says why."""


class KeysMissing(Refused):
    """The issuer of a token is known, and none of its keys is: it has not answered yet."""


class UnknownKey(Refused):
    """A token names a key that its issuer did not have when it was asked last. `alias` is that of the issuer."""

    def __init__(self, text: str, alias: str) -> None:
        super().__init__(text)
        self.alias = alias
