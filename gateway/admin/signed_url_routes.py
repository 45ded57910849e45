"""Answers the requests about signed URLs: one is signed for its caller, and the keys that sign are added and removed.

Not here: what a signature covers (gateway/access/signed_urls.py). The secret of a key is in no answer.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from gateway.access.access import forbidden
from gateway.access.identity import Identity
from gateway.access.signed.callers import check_subject
from gateway.access.signed.urls import (
    LIFE_MS,
    MAX_BYTES,
    SECRET_BYTES,
    URL_CHARS_MAX,
    Grant,
    InvalidUrl,
    sign,
    target_of,
)
from gateway.access.state import AddKey, RemoveKey, UrlKey
from gateway.admin.access_routes import AccessContext, change_access
from gateway.http.json_body import read_json
from gateway.http.page import PageQuery, page_of
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import Operation

MAX_BYTES_MAX = 1024 * 1024 * 1024


class _SignUrl(Struct, forbid_unknown_fields=True):
    url: Annotated[str, Meta(max_length=URL_CHARS_MAX)]
    method: Annotated[str, Meta(pattern=r"^(GET|POST)\Z")] = "GET"
    life_ms: Annotated[int, Meta(ge=1000)] | None = None
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BYTES_MAX)] | None = None


async def sign_url(request: Request, context: AccessContext) -> Response:
    """POST /v1/access/signed-urls. Raises Problem."""
    read_query(request, NoQuery)
    body = await read_json(request, _SignUrl)
    caller = request.caller
    if not isinstance(caller, Identity):
        text = "this node has no tokens file, and answers every URL without a signature"
        raise Problem("forbidden", text)
    check_subject(caller.principal)
    if caller.space is not None and caller.tenant is None:  # the URL would name another topic, outside of the tenant
        raise Problem("forbidden", "an operator cannot sign URLs inside a tenant: let one of its own callers sign")
    try:
        target = target_of(body.method, body.url)
    except InvalidUrl as error:
        raise Problem("invalid_body", str(error)) from None
    topic = target.topic if caller.space is None else caller.space.stored(target.topic)
    if not caller.allows(target.operation, topic):
        raise forbidden(caller, target.operation, topic)
    is_write = target.operation is Operation.WRITE
    if body.max_bytes is not None and not is_write:
        raise Problem("invalid_body", "max_bytes is for POST: a read takes max_bytes in its query")
    life_ms = min(LIFE_MS, context.signed_life_max_ms) if body.life_ms is None else body.life_ms
    if life_ms > context.signed_life_max_ms:
        text = f"life_ms is {life_ms}; this node signs for {context.signed_life_max_ms} ms at most"
        raise Problem("invalid_body", text, limit=context.signed_life_max_ms)
    key = max(context.access.snapshot.state.keys, key=lambda one: (one.created_ms, one.id), default=None)
    if key is None:
        raise Problem("unknown_access", "there is no key that signs URLs: POST /v1/access/keys adds one")
    ends_ms = [context.clock.now_ms() + life_ms, *([caller.expires_ms] if caller.expires_ms else [])]
    expires_s = min(ends_ms) // 1000
    max_bytes = (body.max_bytes or MAX_BYTES) if is_write else 0
    grant = Grant(key.id, caller.principal, caller.groups, caller.tenant, expires_s, max_bytes)
    try:
        url = sign(target, grant, bytes.fromhex(key.secret), caller.own_rules)
    except InvalidUrl as error:
        raise Problem("invalid_body", str(error)) from None
    document = {"url": url, "method": body.method, "subject": caller.principal, "expires_ms": 1000 * expires_s}
    if is_write:
        document["max_bytes"] = max_bytes
    response = json_response(document, 201)
    response.headers["Cache-Control"] = "no-store"
    return response


async def list_url_keys(request: Request, context: AccessContext) -> Response:
    """GET /v1/access/keys"""
    query, state = read_query(request, PageQuery), context.access.snapshot.state
    page, members = page_of(query, state.keys, attrgetter("id"))
    return json_response({"generation": state.generation, "keys": [_shown(key) for key in page]} | members)


async def add_url_key(request: Request, context: AccessContext) -> Response:
    """POST /v1/access/keys. Raises Problem, EngineError."""
    read_query(request, NoQuery)
    key = UrlKey(
        id=context.random_bytes(4).hex(),
        secret=context.random_bytes(SECRET_BYTES).hex(),
        created_ms=context.clock.now_ms(),
        author=request.caller.principal,
    )
    made = await change_access(request, context, AddKey(key))
    return json_response(made | _shown(key), 201)


async def remove_url_key(request: Request, context: AccessContext) -> Response:
    """DELETE /v1/access/keys/{key}. Raises Problem, EngineError."""
    read_query(request, NoQuery)
    return json_response(await change_access(request, context, RemoveKey(request.names["key"])))


def _shown(key: UrlKey) -> dict[str, object]:
    shown: dict[str, object] = to_builtins(key)
    del shown["secret"]
    return shown
