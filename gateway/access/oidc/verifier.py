"""Checks access tokens with the keys that are known. A core: the time is given, and nothing is fetched.

The cheap checks come first: length, form, type, algorithm, issuer, key, audience, times. Then the signature, with the
one key that the token names and the algorithm that this key is for. Then the claims that make a caller. Nothing that a
token brings along (jku, jwk, x5u, x5c) is looked at. Invariant: what is returned was signed by a key of its issuer; a
reason names what a person may know, and no part of the token beyond its issuer and times.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from gateway.access.oidc import jws
from gateway.access.oidc.issuers import GROUPS_MAX, PLAIN, Issuer, path_of, type_of
from gateway.access.oidc.keys import Key, OidcState
from gateway.access.oidc.outcome import KeysMissing, Refused, UnknownKey, Verified

TOKEN_CHARS_MAX = 8192
LIFE_S_MAX = 24 * 3600
ASKED_MS = 30_000  # between two calls for keys of one issuer
VERIFIED_MAX = 10_000  # some 5 MB
SKEW_S = 30  # of the issuer's clock, for `iat` and `nbf`. A token ends at `exp`, not later.
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_WORD = re.compile(r"[!-~]{1,200}")  # as in the principals of rules
_TENANT = re.compile(r"[!-~]{1,100}")
_NO_ACCESS_TOKENS = ("nonce", "at_hash", "c_hash")  # ID tokens have them


class Verifier:
    """The check of tokens with one state. Keys are made at their first use, and a token that is good is kept.

    `ask` is called with the alias of an issuer that may have new keys, seldom enough for any number of forged tokens.
    """

    def __init__(self, state: OidcState, ask: Callable[[str], None]) -> None:
        self.state = state
        self._ask = ask
        self._issuers = {issuer.issuer: issuer for issuer in state.issuers}
        self._keys = {alias: {key.id: key for key in known.keys} for alias, known in state.keys.items()}
        self._made: dict[tuple[str, str], Any] = {}
        # By SHA-256. A token that was refused is not kept: it takes no room.
        self._verified: dict[bytes, tuple[Verified, Issuer, Key]] = {}
        self._asked_ms: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"Verifier({', '.join(issuer.alias for issuer in self._issuers.values())})"

    def successor(self, state: OidcState) -> Verifier:
        """Returns a verifier for another state, which knows the tokens whose issuers and keys are still the same.

        With the same issuers and keys, takes over the times of the state, and returns itself.
        """
        if state.issuers == self.state.issuers and _keys_of(state) == _keys_of(self.state):
            self.state = state
            return self
        after = Verifier(state, self._ask)
        after._verified = {
            digest: (found, issuer, key)
            for digest, (found, issuer, key) in self._verified.items()
            if issuer == after._issuers.get(issuer.issuer) and key == after._keys.get(issuer.alias, {}).get(key.id)
        }
        return after

    def find(self, text: str, now_ms: int) -> Verified:
        """Returns the caller that a token names, and verifies it only once. Raises Refused."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
        known = self._verified.get(digest)
        if known is not None and now_ms < known[0].expires_ms:
            return known[0]
        found, issuer, key = self._verify_or_ask(text, now_ms)
        found = found._replace(digest=digest.hex())
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]  # the oldest
        self._verified[digest] = found, issuer, key
        return found

    def _verify_or_ask(self, text: str, now_ms: int) -> tuple[Verified, Issuer, Key]:
        try:
            return self._verify(text, now_ms)
        except UnknownKey as refusal:
            if now_ms - self._asked_ms.get(refusal.alias, -ASKED_MS) >= ASKED_MS:
                self._asked_ms[refusal.alias] = now_ms
                self._ask(refusal.alias)
            raise

    def _verify(self, text: str, now_ms: int) -> tuple[Verified, Issuer, Key]:
        if len(text) > TOKEN_CHARS_MAX:
            raise Refused(f"the access token has {len(text)} characters; {TOKEN_CHARS_MAX} are the most")
        parts = _COMPACT.fullmatch(text)
        if parts is None:
            raise Refused("the access token is not three parts of base64url with dots between them (compact JWS)")
        header = _object(parts[1], "header")
        claims = _object(parts[2], "payload")
        issuer = self._issuer_of(claims)
        algorithm = _check_header(header, issuer)
        key = self._key_of(header, issuer, algorithm)
        _check_audience(claims, issuer)
        expires_ms = _check_times(claims, now_ms)
        if not jws.is_signed(text, self._made_key(issuer, key), algorithm):
            raise Refused(f"the signature of the access token is not one of issuer {issuer.alias}")
        if type_of(header["typ"]) == PLAIN:
            _check_is_no_id_token(claims)
        return _caller(claims, issuer, expires_ms), issuer, key

    def _issuer_of(self, claims: dict[str, Any]) -> Issuer:
        named = claims.get("iss")
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            shown = repr(named[:200]) if isinstance(named, str) else "no text"
            raise Refused(f"the issuer of the access token, {shown}, is not one that this node takes")
        return issuer

    def _key_of(self, header: dict[str, Any], issuer: Issuer, algorithm: str) -> Key:
        keys = self._keys.get(issuer.alias)
        if keys is None:
            raise KeysMissing(f"this node has no keys of issuer {issuer.alias}, which does not answer: try again later")
        key_id = header.get("kid")
        key = keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            text = f"the access token names no key that issuer {issuer.alias} had when it was asked last"
            if not isinstance(key_id, str) or not _WORD.fullmatch(key_id):
                raise Refused(text)
            raise UnknownKey(f"{text}: after a change of keys try again in a minute", issuer.alias)
        if algorithm not in key.algorithms:
            raise Refused(f"the algorithm of the access token is not that of the key of issuer {issuer.alias}")
        return key

    def _made_key(self, issuer: Issuer, key: Key) -> Any:
        made = self._made.get((issuer.alias, key.id))
        if made is None:
            try:
                made = jws.public_key(key.jwk)
            except jws.UnusableKey:
                raise Refused(f"the key of issuer {issuer.alias} that the access token names is not usable") from None
            self._made[issuer.alias, key.id] = made
        return made


def _keys_of(state: OidcState) -> dict[str, tuple[Key, ...]]:
    return {alias: known.keys for alias, known in state.keys.items()}


def _check_header(header: dict[str, Any], issuer: Issuer) -> str:
    """Returns the algorithm. Raises Refused."""
    if "crit" in header or "b64" in header:
        raise Refused("the access token has extensions (crit, b64), which this node does not take")
    named = header.get("typ")
    if not isinstance(named, str) or type_of(named) not in map(type_of, issuer.types):
        taken = " or ".join(issuer.types)
        raise Refused(f"the token's typ is not that of an access token of issuer {issuer.alias}, {taken}")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        taken = ", ".join(issuer.algorithms)
        raise Refused(f"the algorithm of the access token is not one of issuer {issuer.alias}: {taken}")
    return algorithm


def _check_audience(claims: dict[str, Any], issuer: Issuer) -> None:
    if issuer.audience not in _texts(claims.get("aud")):
        raise Refused(f"the access token is for another audience than {issuer.audience!r}")


def _check_times(claims: dict[str, Any], now_ms: int) -> int:
    """Returns when the token ends. Raises Refused."""
    expires, issued = _second(claims, "exp"), _second(claims, "iat")
    now_s = now_ms / 1000
    if expires <= now_s:
        raise Refused("the access token has expired: ask the issuer for another one")
    if issued > now_s + SKEW_S or ("nbf" in claims and _second(claims, "nbf") > now_s + SKEW_S):
        raise Refused("the access token is not valid yet: the clocks of issuer and node differ, or it came early")
    if expires - issued > LIFE_S_MAX:
        raise Refused(f"the access token lives longer than {LIFE_S_MAX // 3600} hours (exp minus iat)")
    return expires * 1000


def _second(claims: dict[str, Any], name: str) -> int:
    value = claims.get(name)
    if type(value) is not int or not 0 <= value < 1 << 40:  # a bool is an int elsewhere
        raise Refused(f"{name} of the access token is not a whole number of seconds since 1970")
    return value


def _check_is_no_id_token(claims: dict[str, Any]) -> None:
    """Refuses tokens for another purpose where `typ` does not distinguish them. Raises Refused."""
    client = claims.get("azp", claims.get("client_id"))
    purpose = claims.get("typ", "Bearer")  # Keycloak says it there
    is_for_client = client is not None and client in _texts(claims.get("aud"))
    if any(name in claims for name in _NO_ACCESS_TOKENS) or is_for_client or purpose != "Bearer":
        raise Refused("what was sent is an ID token or a refresh token: send the access token")


def _caller(claims: dict[str, Any], issuer: Issuer, expires_ms: int) -> Verified:
    name = _claim(claims, path_of(issuer.name))
    if not isinstance(name, str) or not _WORD.fullmatch(name):
        shown = ".".join(path_of(issuer.name))
        raise Refused(f"{shown} of the access token, its caller's name, is not 1 to 200 visible ASCII characters")
    path = path_of(issuer.groups)
    groups: Sequence[str] = _texts(_claim(claims, path)) if path else ()
    elsewhere = claims.get("_claim_names")
    if path and isinstance(elsewhere, dict) and path[0] in elsewhere:  # Azure, for a caller with many groups
        raise Refused("the access token does not have its caller's groups: let the issuer send fewer, not an address")
    if len(groups) > GROUPS_MAX:
        raise Refused(f"the access token has {len(groups)} groups; {GROUPS_MAX} are the most")
    tenant = _claim(claims, path_of(issuer.tenant)) if issuer.tenant else None
    if tenant is not None and not (isinstance(tenant, str) and _TENANT.fullmatch(tenant)):
        raise Refused(f"{'.'.join(path_of(issuer.tenant))} of the access token is not the name of a tenant")
    # No rule can name a group with other characters.
    named = tuple(f"group:{issuer.alias}:{group}" for group in dict.fromkeys(groups) if _WORD.fullmatch(group))
    return Verified(f"{issuer.alias}:{name}", named, tenant, expires_ms, "")


def _claim(claims: Any, path: Sequence[str]) -> Any:
    for member in path:
        if not isinstance(claims, dict):
            return None
        claims = claims.get(member)
    return claims


def _texts(value: Any) -> list[str]:
    """Returns a claim that is a text, a list of texts, or absent. Raises Refused."""
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Refused("a claim of the access token is neither a text nor a list of texts")
    return texts


def _object(part: str, name: str) -> dict[str, Any]:
    """Returns the JSON object of a part of a token. Raises Refused."""
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        value = json.loads(data.decode(), object_pairs_hook=_members, parse_constant=_no_constant)  # UTF-8 alone
    except (ValueError, RecursionError):
        raise Refused(f"the {name} of the access token is not JSON with each member once") from None
    if not isinstance(value, dict):
        raise Refused(f"the {name} of the access token is not a JSON object")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is doubled")
    return members


def _no_constant(text: str) -> Any:
    raise ValueError(text)
