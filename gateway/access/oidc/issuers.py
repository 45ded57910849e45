"""The issuers file: the issuers of access tokens that a node takes, and what it asks of their tokens.

Values and their checks, without I/O but for the read of the file. Not here: the check of a token (verifier.py) and the
keys of an issuer (keys.py). Invariant: an issuer that passes has an audience, fixed algorithms with public keys, and an
address whose answers no third party can change.
"""

from __future__ import annotations

import re
import tomllib
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gateway.access.tokens_file import InvalidTokens, read_tokens_text

ISSUERS_MAX = 32  # each has a task that fetches its keys
GROUPS_MAX = 200  # of a token: a deny of one that is left out would not hold, so a token with more is refused
ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
ACCESS_TOKEN = "at+jwt"  # noqa: S105 - RFC 9068
PLAIN = "jwt"  # what Keycloak and Azure write
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,30}")
_PATH_MAX = 8


class InvalidIssuers(Exception):
    """The issuers file cannot be used. The text is one line that names what to change."""


class Issuer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One issuer. `name`, `groups` and `tenant` are paths of claims: `realm_access.roles`, or a list of members.

    `types`: the values of `typ` that its access tokens have. `keys_url`: empty for that of its discovery document.
    `ca_file`: the PEM certificates that its HTTPS is checked with; empty for those of the system.
    """

    alias: str
    issuer: str
    audience: str = ""
    algorithms: tuple[str, ...] = ALGORITHMS
    name: str | tuple[str, ...] = "sub"
    groups: str | tuple[str, ...] = ""
    tenant: str | tuple[str, ...] = ""
    types: tuple[str, ...] = (ACCESS_TOKEN,)
    keys_url: str = ""
    ca_file: str = ""

    @property
    def discovery_url(self) -> str:
        return f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"


class _File(Struct, forbid_unknown_fields=True):
    issuers: list[Issuer] = []


def parse_issuers(text: str) -> tuple[Issuer, ...]:
    """Parses the text of an issuers file. Raises InvalidIssuers."""
    try:
        issuers = msgspec.convert(tomllib.loads(text), _File).issuers
    except tomllib.TOMLDecodeError as error:
        raise InvalidIssuers(f"not valid TOML: {error}") from None
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidIssuers(" ".join(str(error).split())) from None
    if not 0 < len(issuers) <= ISSUERS_MAX:
        raise InvalidIssuers(f"it has {len(issuers)} [[issuers]]; give 1 to {ISSUERS_MAX}")
    for issuer in issuers:
        _check(issuer)
    for field in ("alias", "issuer"):
        values = [getattr(issuer, field) for issuer in issuers]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise InvalidIssuers(f"two issuers have the {field} {twice}")
    return tuple(issuers)


def read_issuers_text(path: str) -> str:
    """Returns the text of the file. Blocks. Raises InvalidIssuers."""
    try:
        return read_tokens_text(path)
    except InvalidTokens as error:
        raise InvalidIssuers(str(error)) from None


def type_of(text: str) -> str:
    """Returns a value of `typ` as it is compared: media types have no case, and their `application/` is optional."""
    return text.lower().removeprefix("application/")


def path_of(claim: str | tuple[str, ...]) -> tuple[str, ...]:
    """Returns the members on the way to a claim; none, if there is no such claim."""
    if isinstance(claim, str):
        return tuple(claim.split(".")) if claim else ()
    return claim


def check_address(text: str) -> None:
    """Checks that an address is https, or http to this machine alone. Raises InvalidIssuers."""
    try:
        url = urlsplit(text)
        host = url.hostname or ""
        _ = url.port
    except ValueError:
        raise InvalidIssuers(f"{text[:200]!r} is not a URL") from None
    if not text.isascii() or not text.isprintable() or " " in text or url.query or url.fragment or "@" in url.netloc:
        raise InvalidIssuers(f"{text[:200]!r} is not a URL without a query, a fragment and a user")
    if not host or url.scheme not in ("https", "http"):
        raise InvalidIssuers(f"{text[:200]!r} does not begin with https:// and a host")
    if url.scheme == "http" and not _is_loopback(host):
        raise InvalidIssuers(f"{text[:200]!r} is not https: a third party between could give the node its own keys")


def _check(issuer: Issuer) -> None:
    """Checks what the types do not. Raises InvalidIssuers."""
    if not _ALIAS.fullmatch(issuer.alias):
        raise InvalidIssuers(f"alias {issuer.alias[:100]!r}: use a letter, then up to 30 of a-z 0-9 -")

    def refuse(text: str) -> InvalidIssuers:
        return InvalidIssuers(f"issuer {issuer.alias}: {text}")

    if not issuer.audience.strip():
        raise refuse("audience is missing: without it, tokens for other services would be taken")
    if not issuer.algorithms:
        raise refuse(f"algorithms is empty; it takes {', '.join(ALGORITHMS)}")
    for algorithm in issuer.algorithms:
        if algorithm not in ALGORITHMS:
            raise refuse(f"algorithms has {algorithm[:32]!r}; it takes {', '.join(ALGORITHMS)}")
    if not issuer.types or not all(issuer.types):
        raise refuse(f"types is empty; the type of access tokens is {ACCESS_TOKEN}")
    for field in ("name", "groups", "tenant"):
        path = path_of(getattr(issuer, field))
        if len(path) > _PATH_MAX or not all(path):
            raise refuse(f"{field} is not the path of a claim, as in realm_access.roles")
    if not path_of(issuer.name):
        raise refuse("name is empty; the subject is the claim sub")
    for field in ("issuer", "keys_url"):
        value = getattr(issuer, field)
        if value or field == "issuer":
            try:
                check_address(value)
            except InvalidIssuers as error:
                raise refuse(f"{field} {error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
