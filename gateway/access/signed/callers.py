"""The caller that a signed URL acts for: its subject, with the rights that it has now.

A subject is a token or the subject of an issuer. A token that was revoked or has ended, and an issuer that is not taken
any more, have no signed URLs. Groups of an issuer are those that were signed: nothing else knows them. Not here: the
signature itself (urls.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from multidict import CIMultiDict, CIMultiDictProxy

from gateway.access.oidc.keys import OidcState
from gateway.access.rules import InvalidRule, check_principal
from gateway.access.signed.urls import (
    PRIVATE,
    READS,
    WRITES,
    Grant,
    InvalidUrl,
    Signature,
    SignedHead,
    has_signature,
    signature_of,
)
from gateway.access.state import UrlKey
from gateway.access.tokens import Token
from gateway.http.problems import Problem
from gateway.http.request import Request

KINDS = ("token", "oidc")  # a certificate may be revoked by a list, which a URL does not meet


def signer_of(
    signature: Signature, keys: Sequence[UrlKey], tokens: Sequence[Token], issuers: OidcState | None, now_ms: int
) -> Token | None:
    """Returns the token that has signed, of those that have the name of the subject; None: it is one of an issuer.

    Raises InvalidUrl.
    """
    grant = signature.grant
    if signature.expires_ms <= now_ms:
        raise InvalidUrl("the signed URL has expired: ask for another one")
    secret = next((key.secret for key in keys if key.id == grant.key), None)
    if secret is None:
        raise InvalidUrl("the key of the signed URL is not one of this cluster any more: ask for another URL")
    master = bytes.fromhex(secret)
    kind, _, name = grant.subject.partition(":")
    if kind == "token":
        for token in tokens:
            if signature.matches(master, token.own_rules):
                return token
        raise InvalidUrl("the signature of the URL is wrong, or its subject is revoked: ask for another URL")
    if not signature.matches(master, ""):
        raise InvalidUrl("the signature of the URL is wrong: the URL was changed, or it was signed elsewhere")
    alias = name.partition(":")[0]
    if kind != "oidc" or issuers is None or all(issuer.alias != alias for issuer in issuers.issuers):
        raise InvalidUrl("the subject of the signed URL is not one that this node takes")
    return None


def take_signature(request: Request) -> None:
    """Takes a signature out of the query of a request, into its head; limits its body. Raises InvalidUrl, Problem."""
    if not has_signature(request.head):
        return
    request.extra_headers = {**(request.extra_headers or {}), **PRIVATE}
    if "Authorization" in request.headers:
        raise Problem("invalid_header", "the request has a signed URL and Authorization: send one of them")
    signature = signature_of(request.head)
    request.head = SignedHead(request.head, signature)
    # A connection compares the callers that it knows with this header, which must never be equal to theirs.
    headers = CIMultiDict(request.headers)
    headers["Authorization"] = "Signature"
    request.headers = CIMultiDictProxy(headers)
    if signature.grant.max_bytes < request.http.request_body_bytes_max:
        request.http = replace(request.http, request_body_bytes_max=signature.grant.max_bytes)


def check_subject(principal: str) -> None:
    """Checks that a caller may sign. Raises Problem."""
    try:
        check_principal(principal)
    except InvalidRule:
        raise Problem("forbidden", "this caller cannot sign URLs: no rule can name it") from None
    if principal.partition(":")[0] not in KINDS:
        raise Problem("forbidden", f"{principal} cannot sign URLs: a caller with a token or an access token can")


def check_use(request: Request, grant: Grant) -> None:
    """Checks that a signature may be used for the route. Raises InvalidUrl."""
    operation = request.route.operation
    if operation not in READS and not (operation in WRITES and grant.max_bytes):
        raise InvalidUrl("no signed URL gives this: one reads or writes the records of one topic")
