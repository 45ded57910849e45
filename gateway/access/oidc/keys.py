"""The keys of issuers: a key set as it was fetched, and what all processes of a node know of their issuers. A core.

A key set has keys for other purposes and of other kinds; they are left out. The public members of a key are kept,
and the algorithms that it may verify with, so that the header of a token never chooses what a key is used for.
Invariant: each key id names one key.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from gateway.access.oidc.issuers import InvalidIssuers, Issuer, check_address

KEYS_MAX = 64
KEY_ID_CHARS_MAX = 256
# By kind and curve: the public members, and the algorithms.
_KINDS: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("RSA", ""): (("n", "e"), ("RS256", "PS256")),
    ("EC", "P-256"): (("crv", "x", "y"), ("ES256",)),
    ("OKP", "Ed25519"): (("crv", "x"), ("EdDSA",)),
}
_SAME = {"Ed25519": "EdDSA"}  # RFC 9864 names the curve


class InvalidKeys(Exception):
    """The answer of an issuer cannot be used. The text is one line."""


class FetchFailed(Exception):
    """The keys of an issuer could not be fetched. The text is one line."""


class Key(Struct, frozen=True, order=True):
    """A public key: its id, the algorithms that it may verify with, and its members."""

    id: str
    algorithms: tuple[str, ...]
    jwk: dict[str, str]


class KeySet(Struct, frozen=True):
    """The last good keys of an issuer, and when they were fetched."""

    keys: tuple[Key, ...]
    fetched_ms: int


class OidcState(Struct, frozen=True):
    """The issuers whose tokens a process takes, and the keys of those that have answered, by alias."""

    issuers: tuple[Issuer, ...]
    keys: dict[str, KeySet] = {}


def gauges(state: OidcState | None, now_ms: int) -> Iterator[tuple[str, str, float]]:
    """Yields name, text and value of each gauge. None: there are no issuers."""
    fetched = [] if state is None else [known.fetched_ms for known in state.keys.values()]
    text = "Time since the keys of an issuer were fetched, of the issuer that has not answered for the longest"
    yield "penstock_oidc_keys_age_seconds", text, (now_ms - min(fetched, default=now_ms)) / 1000
    text = "Issuers none of whose keys this process has, so that their tokens get 503"
    yield "penstock_oidc_issuers_without_keys", text, 0 if state is None else len(state.issuers) - len(fetched)


def parse_discovery(data: bytes, issuer: Issuer) -> str:
    """Returns the address of the keys of a discovery document. Raises InvalidKeys."""
    document = _object(data)
    if document.get("issuer") != issuer.issuer:
        shown = str(document.get("issuer"))[:200]
        raise InvalidKeys(f"the discovery document is that of issuer {shown!r}, not of {issuer.issuer!r}")
    keys_url = document.get("jwks_uri")
    if not isinstance(keys_url, str):
        raise InvalidKeys("the discovery document has no jwks_uri")
    try:
        check_address(keys_url)
    except InvalidIssuers as error:
        raise InvalidKeys(f"jwks_uri {error}") from None
    return keys_url


def parse_keys(data: bytes) -> tuple[Key, ...]:
    """Returns the keys of a key set that verify signatures, sorted by id. Raises InvalidKeys.

    Keys that share an id are left out, since it would not say which is meant.
    """
    listed = _object(data).get("keys")
    if not isinstance(listed, list):
        raise InvalidKeys("the key set has no list of keys")
    if len(listed) > KEYS_MAX:
        raise InvalidKeys(f"the key set has {len(listed)} keys; {KEYS_MAX} are the most")
    keys = [key for one in listed if isinstance(one, dict) and (key := _key(one)) is not None]
    count = Counter(key.id for key in keys)
    kept = tuple(sorted(key for key in keys if count[key.id] == 1))
    if not kept:
        raise InvalidKeys("the key set has no key with an id for RS256, PS256, ES256 or EdDSA")
    return kept


def state_from(text: str) -> OidcState:
    """Returns a state that `state_to` has encoded."""
    return msgspec.json.decode(text, type=OidcState)


def state_to(state: OidcState) -> str:
    return msgspec.json.encode(state).decode()


def _key(jwk: dict[str, Any]) -> Key | None:
    """Returns a key of a set; None: it is for another purpose, or of a kind that no token may use."""
    key_id, kind, curve = jwk.get("kid"), jwk.get("kty"), jwk.get("crv", "")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_CHARS_MAX:
        return None
    if not isinstance(kind, str) or not isinstance(curve, str):
        return None
    members, algorithms = _KINDS.get((kind, curve), ((), ()))
    named = jwk.get("alg")
    if named is not None:
        algorithms = tuple(one for one in algorithms if one == _SAME.get(str(named), named))
    uses = jwk.get("key_ops", ["verify"])
    if not algorithms or jwk.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        return None
    public = {name: jwk.get(name) for name in members}
    if not all(isinstance(value, str) for value in public.values()):
        return None
    return Key(key_id, algorithms, {"kty": kind, **{name: str(value) for name, value in public.items()}})


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidKeys("the answer is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidKeys("the answer is not a JSON object")
    return document
