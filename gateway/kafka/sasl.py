"""Authentication over SASL: a token is the password of PLAIN, or the bearer token of OAUTHBEARER.

The identity and its decisions are those of HTTP (gateway/access/access.py). A node without tokens offers no mechanism,
and its clients need none. SCRAM is not offered: it needs a salted password, and a node keeps only a hash of a token.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine
from typing import Any

from gateway.access.access import Access
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.codec.messages import Malformed, Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.requests import Client, KafkaRequest

log = logging.getLogger("penstock.kafka")

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, OAUTHBEARER)
REFUSAL_PAUSE_S = 0.3  # before an answer that refuses a token, so that guessing takes time
_BEARER = re.compile(rb"n,[^,]*,\x01(?:[^\x01]*\x01)*?auth=Bearer +([\x21-\x7e]+)\x01", re.IGNORECASE)

Handshake = types_of("SaslHandshake")[""]
Authenticate = types_of("SaslAuthenticate")[""]
Users, User = (types_of("DescribeUserScramCredentials")[path] for path in ("", "results"))


def handshake(request: KafkaRequest, context: KafkaContext) -> Message:
    """Chooses a mechanism."""
    client, chosen = request.client, request.message.mechanism
    if context.access.tokens is None:
        return Handshake(request.note(Error.ILLEGAL_SASL_STATE), [])
    if chosen not in MECHANISMS:
        return Handshake(request.note(Error.UNSUPPORTED_SASL_MECHANISM), list(MECHANISMS))
    client.mechanism = chosen
    client.sends_raw_tokens = request.version == 0
    return Handshake(Error.NONE, list(MECHANISMS))


def authenticate(request: KafkaRequest, context: KafkaContext) -> Message | Coroutine[Any, Any, Message]:
    """Checks the token of a client."""
    client = request.client
    if client.mechanism is None:
        return Authenticate(request.note(Error.ILLEGAL_SASL_STATE), "send SaslHandshake first", b"")
    reason = check(client, request.message.auth_bytes, context)
    if reason is None:
        return Authenticate(Error.NONE, None, b"", _lifetime_ms(client, context))
    return _refuse(request, reason)


async def _refuse(request: KafkaRequest, reason: str) -> Message:
    await asyncio.sleep(REFUSAL_PAUSE_S)
    return Authenticate(request.note(Error.SASL_AUTHENTICATION_FAILED), reason, b"")


def check(client: Client, given: bytes, context: KafkaContext) -> str | None:
    """Identifies a client by what it has sent. Returns why it is refused, without any part of that."""
    token = _token_in(client.mechanism or PLAIN, given)
    if token is None:
        return f"the bytes are not those of {client.mechanism}"
    client.token = token
    client.caller = None
    reason = identify(client, context.access)
    if reason is not None:
        log.warning("a client of Kafka's protocol was refused", extra={"client": client.address, "reason": reason})
    return reason


def identify(client: Client, access: Access, *, was_good: bool = False) -> str | None:
    """Gives a client the identity of its token by the present rules. Returns why it has none."""
    try:
        identity = access.identify_token(client.token, client.address, was_good=was_good)
    except Problem as problem:
        return problem.detail
    client.caller, client.snapshot, client.expires_ms = identity, access.snapshot, identity.expires_ms
    return None


def check_still_known(client: Client, access: Access, now_ms: int) -> None:
    """Checks a client for one more request. Raises Malformed once its token is revoked or has expired."""
    if access.tokens is not None and client.caller is None:  # it has sent a wrong one since
        raise Malformed("the client has no identity any more")
    if access.tokens is None or (client.snapshot is access.snapshot and not 0 < client.expires_ms <= now_ms):
        return
    reason = identify(client, access, was_good=True)
    if reason is not None:
        raise Malformed(reason)


def describe_scram_users(request: KafkaRequest, context: KafkaContext) -> Message:
    """Finds none: a node keeps only a hash of each token."""
    if not request.caller.allows(Operation.DESCRIBE, "", Resource.CLUSTER):
        return Users(error_code=request.note(Error.CLUSTER_AUTHORIZATION_FAILED))
    text = "tokens are for PLAIN and OAUTHBEARER"
    return Users(
        results=[User(one.name, request.note(Error.RESOURCE_NOT_FOUND), text) for one in request.message.users or ()]
    )


def _token_in(mechanism: str, given: bytes) -> str | None:
    if mechanism == PLAIN:
        parts = given.split(b"\0")
        text = parts[2] if len(parts) == 3 else None
    else:
        found = _BEARER.match(given)
        text = None if found is None else found[1]
    return None if text is None or not text.isascii() else text.decode("ascii")


def _lifetime_ms(client: Client, context: KafkaContext) -> int:
    """Returns for how long the identity holds; 0: without an end. Clients authenticate again before it (KIP-368)."""
    return max(1, client.expires_ms - context.clock.now_ms()) if client.expires_ms else 0
