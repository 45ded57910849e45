"""Signed URLs: what a signature covers, how it is made and how it is read. A core, without I/O, clock and chance.

Everything of a request but its headers and its body is signed: the method, the path as it was sent, and every parameter
of the query as it was sent, with the key, the subject, the end and the limits among them. GET covers HEAD. The order of
parameters means nothing, but for those of one name. Each subject has a key of its own, which is derived from a master
key of the coordination store. Not here: who the subject is now, and what it may do (callers.py).

Invariants: a parameter that was not signed makes a signature wrong; each signature has one form,
and no other text counts as it.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from gateway.http.rights import Operation
from gateway.wire.messages import RequestHead

LIFE_MS = 15 * 60_000
MAX_BYTES = 64 * 1024  # of a produce, unless its signer names another number
URL_CHARS_MAX = 8192  # of a whole URL; a caller with many groups may need more, and cannot sign
KEPT_MAX = 256  # signatures that were read and made, at most 16 KiB each: clients use one URL many times
SECRET_BYTES = 32  # of a master key
SIGNATURE = "sig"
_KEY, _SUBJECT, _GROUP, _TENANT, _END, _BYTES = (
    f"sig_{name}" for name in ("key", "sub", "group", "tenant", "exp", "max_bytes")
)
_VERSION = "penstock-url-1"
_SALT = b"penstock signed urls"
_TOPIC = r"/v1/topics/([A-Za-z0-9_-][A-Za-z0-9._-]*)"
_TARGETS = (
    ("GET", Operation.READ, re.compile(rf"{_TOPIC}(?:/partitions/[0-9]{{1,10}})?/records")),
    ("GET", Operation.READ, re.compile(rf"{_TOPIC}/table(?:/[!-.0-~]{{1,2048}})?")),
    ("POST", Operation.WRITE, re.compile(rf"{_TOPIC}(?:/partitions/[0-9]{{1,10}})?/records")),
)
# The operations of routes that a signature may be used for.
READS = frozenset({"fetch", "tail_topic", "read_table", "read_table_key"})
WRITES = frozenset({"produce", "produce_to_partition"})
_SECONDS = re.compile(r"[1-9][0-9]{0,11}")
_BYTE_COUNT = re.compile(r"[1-9][0-9]{0,9}")
_URL = re.compile(r"/[!\"$-~]*")  # visible ASCII without a fragment
_VISIBLE = re.compile(r"[!-~]*")
# No cache may keep what a signature gave, and no other site may learn the URL.
PRIVATE: Mapping[str, str] = {"Referrer-Policy": "no-referrer", "Cache-Control": "private, no-store"}


class InvalidUrl(Exception):
    """A URL cannot be signed. The text says why."""


class Target(NamedTuple):
    """A URL that may be signed: its parts as they are sent, and the right that it needs."""

    method: str
    path: str
    query: str
    operation: Operation
    topic: str


class Grant(NamedTuple):
    """The values that are signed beside a target. `max_bytes`: of a body; 0 for a read."""

    key: str
    subject: str
    groups: tuple[str, ...]
    tenant: str | None
    expires_s: int
    max_bytes: int = 0


class Signature(NamedTuple):
    """A signature as a request brings it. `signed` is the text that it covers, `text` itself, `query` the rest."""

    grant: Grant
    signed: bytes
    text: str
    query: str

    @property
    def expires_ms(self) -> int:
        return self.grant.expires_s * 1000

    def matches(self, master: bytes, own_rules: str) -> bool:
        """Returns whether the signature is that of its subject. Takes constant time."""
        return hmac.compare_digest(_mac(master, self.grant.subject, own_rules, self.signed), self.text)  # both ASCII

    def __repr__(self) -> str:
        return f"Signature({self.grant.key}, {self.grant.subject})"


class SignedHead(RequestHead):
    """The head of a request that came with a signature, which is not in its query any more."""

    __slots__ = ("signature",)

    def __init__(self, head: RequestHead, signature: Signature) -> None:
        super().__init__(
            head.version, head.method, head.path, signature.query, head.authority, head.headers, head.size_bytes
        )
        self.signature = signature


def target_of(method: str, url: str) -> Target:
    """Returns a URL that may be signed, given from its path on. Raises InvalidUrl."""
    if not _URL.fullmatch(url) or len(url) > URL_CHARS_MAX:
        raise InvalidUrl("url is the path and the query of one request, from its first slash on, in visible ASCII")
    path, _, query = url.partition("?")
    for name, _ in _pairs(query):
        if name.startswith(SIGNATURE):
            raise InvalidUrl("url has a parameter whose name begins with sig: these are the signature's own")
    for of, operation, pattern in _TARGETS:
        found = pattern.fullmatch(path)
        if of == method and found is not None:
            return Target(method, path, query, operation, found[1])
    text = "signed are GET of the records or the table of one topic, or of a partition, and POST of its records"
    raise InvalidUrl(f"{method} {path[:200]} cannot be signed: {text}")


def sign(target: Target, grant: Grant, master: bytes, own_rules: str) -> str:
    """Returns the signed URL. `own_rules`: those that come with the credential of the subject. Raises InvalidUrl."""
    values = [(_KEY, grant.key), (_SUBJECT, grant.subject), *((_GROUP, group) for group in grant.groups)]
    if grant.tenant is not None:
        values.append((_TENANT, grant.tenant))
    if grant.max_bytes:
        values.append((_BYTES, str(grant.max_bytes)))
    values.append((_END, str(grant.expires_s)))
    query = "&".join([*filter(None, [target.query]), *(f"{name}={quote(value, safe='')}" for name, value in values)])
    mac = _mac(master, grant.subject, own_rules, _signed(target.method, target.path, _pairs(query)))
    url = f"{target.path}?{query}&{SIGNATURE}={mac}"
    if len(url) > URL_CHARS_MAX:
        raise InvalidUrl(f"the signed URL would have {len(url)} characters; {URL_CHARS_MAX} are the most")
    return url


def has_signature(head: RequestHead) -> bool:
    """Returns whether the query of a request has a signature, or what should be one."""
    return f"&{SIGNATURE}=" in f"&{head.query}" or f"&{SIGNATURE}&" in f"&{head.query}&"


def signature_of(head: RequestHead) -> Signature:
    """Returns the signature in the query of a request. Raises InvalidUrl if it is malformed."""
    if len(head.path) + len(head.query) >= URL_CHARS_MAX:
        raise InvalidUrl(f"the signed URL has more than {URL_CHARS_MAX} characters")
    return _signature_of("GET" if head.method == "HEAD" else head.method, head.path, head.query)


@lru_cache(maxsize=KEPT_MAX)
def _signature_of(method: str, path: str, query: str) -> Signature:
    pairs = _pairs(query)
    if not _VISIBLE.fullmatch(path + query):
        raise InvalidUrl("the signed URL has other than visible ASCII characters")
    own: dict[str, list[str]] = {}
    others = []
    for name, piece in pairs:
        if name in _ALL:
            own.setdefault(name, []).append(piece.partition("=")[2])
        else:
            others.append(piece)
    groups = tuple(map(unquote, own.pop(_GROUP, ())))
    if any(len(values) > 1 for values in own.values()):
        raise InvalidUrl("the signed URL has a parameter of its signature twice")
    values = {name: value for name, (value,) in own.items()}
    end, max_bytes = values.get(_END, ""), values.get(_BYTES)
    if not {_KEY, _SUBJECT, _END} <= values.keys() or not _SECONDS.fullmatch(end):
        raise InvalidUrl("the signed URL is not whole: it has been cut off or changed")
    if max_bytes is not None and not _BYTE_COUNT.fullmatch(max_bytes):
        raise InvalidUrl("the signed URL is not whole: it has been cut off or changed")
    tenant = unquote(values[_TENANT]) if _TENANT in values else None
    key, subject = unquote(values[_KEY]), unquote(values[_SUBJECT])
    grant = Grant(key, subject, groups, tenant, int(end), int(max_bytes or 0))
    signed = _signed(method, path, [pair for pair in pairs if pair[0] != SIGNATURE])
    return Signature(grant, signed, values[SIGNATURE], "&".join(others))


_ALL = frozenset({_KEY, _SUBJECT, _GROUP, _TENANT, _END, _BYTES, SIGNATURE})


def _pairs(query: str) -> list[tuple[str, str]]:
    """Returns name and whole text of each parameter, as they were sent."""
    return [(piece.partition("=")[0], piece) for piece in query.split("&")] if query else []


def _signed(method: str, path: str, pairs: Sequence[tuple[str, str]]) -> bytes:
    """Returns the text that a signature covers. No part of it can have a line end: a request line has none."""
    return "\n".join([_VERSION, method, path, *_in_order(pairs)]).encode()


def _in_order(pairs: Sequence[tuple[str, str]]) -> Iterable[str]:
    return (piece for _, piece in sorted(pairs, key=lambda pair: pair[0]))  # equal names keep their order


@lru_cache(maxsize=KEPT_MAX)
def _mac(master: bytes, subject: str, own_rules: str, signed: bytes) -> str:
    """Returns the signature by the key of a subject, which HKDF (RFC 5869, SHA-256) derives from the master key."""
    extracted = hmac.digest(_SALT, master, "sha256")
    key = hmac.digest(extracted, f"{subject}\0{own_rules}\1".encode(), "sha256")
    return base64.urlsafe_b64encode(hmac.digest(key, signed, "sha256")).rstrip(b"=").decode()
