"""The check of a request: who its caller is, and whether it may do what the route does.

The process that accepted the request checks it once, before a handler or a body is read. Links between the shards of a
node carry no identity: they are sockets in a private directory, and their calls have been checked. Without a tokens
file there is no check and no cost.

A connection keeps the identity of its last credential, and an identity keeps its decisions; both end with the rules
that they were made from. The node compares a client's text with that client's own former text, so that
the time it takes reveals nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from multidict import istr

from engine.directory.ceilings import Ceiling, owner_of
from engine.format.paths import INTERNAL_TOPICS
from engine.runtime.clock import Clock
from gateway.access.attempts import Attempts
from gateway.access.evaluator import DENIED
from gateway.access.expiries import Expiries
from gateway.access.identity import Identity
from gateway.access.known_caller import KnownCaller
from gateway.access.listeners.admission import admit, check_kind, not_taken
from gateway.access.listeners.listener import CERT, SIGNED, Certified, PublicListener
from gateway.access.oidc.keys import gauges as oidc_gauges
from gateway.access.oidc.outcome import KeysMissing, Refused
from gateway.access.proxies import Proxies
from gateway.access.rules import ANONYMOUS, address_of
from gateway.access.signed.callers import check_use, signer_of, take_signature
from gateway.access.signed.urls import InvalidUrl, Signature, SignedHead
from gateway.access.snapshot import Snapshot
from gateway.access.state import AccessState, Author
from gateway.access.tokens import Tokens, unknown_because
from gateway.access.tokens_file import OPERATIONS_OF, FileToken, Right
from gateway.access.waits import Waits
from gateway.http.problems import Problem
from gateway.http.request import Handled, Request, give_up, response_of
from gateway.http.response import Response
from gateway.http.rights import OPEN, READ_TOPIC, Caller, Decision, Need, Operation, Resource, Where
from gateway.quotas.quotas import Quotas

if TYPE_CHECKING:  # it imports PyJWT, which few nodes need
    from gateway.access.oidc.verifier import Verifier

_SCHEME = "bearer "
_HOW = (
    "Authorization: Bearer penstock_…, the whole line that `penstock token create` has printed; "
    "the command takes it as --token or PENSTOCK_TOKEN"
)
_PATH = Where.PATH  # the look-up in an enumeration takes three times as long
# A task runs them, and they change nothing before their answer. Event streams end by an event of their own.
LONG_POLLS = frozenset({"fetch", "fetch_many", "group_poll", "acquire_records", "read_table", "read_table_key"})
TENANT = "Penstock-Tenant"  # the one header that names a tenant, of an operator
# The operations on rules and tokens that a tenant's own administrators have.
IN_TENANTS = frozenset(
    {"list_rules", "add_rule", "remove_rule", "list_tokens", "create_token", "revoke_token", "rotate_token",
     "check_access", "rest_list_acls"}
)  # fmt: skip
_AUTHORIZATION = istr("Authorization")  # the look-up of an istr takes half the time of a plain text
# The words of the tokens file for what a caller lacks.
_RIGHTS: dict[tuple[Resource, Operation], Right] = {
    **{
        (resource, operation): right
        for right, (resource, operations) in OPERATIONS_OF.items()
        for operation in operations
    },
    (Resource.TOPIC, Operation.DESCRIBE): Right.READ,
    (Resource.CLUSTER, Operation.OPERATE): Right.ADMIN,
}


def unreadable(topic: str) -> Problem:
    """Returns the problem of a read of an internal topic, which has the secrets of subscriptions."""
    return Problem("invalid_topic_name", f"{topic!r} is an internal topic: clients do not read it")


class Access:
    """The access of one process. `tokens` are those of the file; None: every client may do everything.

    `attempts` bound wrong credentials; None: nothing does.
    """

    def __init__(
        self,
        clock: Clock,
        tokens: Tokens[FileToken] | None = None,
        superusers: frozenset[str] = frozenset(),
        proxies: Proxies | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self._clock = clock
        self._proxies = proxies or Proxies()
        self._attempts = attempts
        self._superusers = superusers
        self._state: AccessState | None = AccessState()
        self.verifier: Verifier | None = None
        self.waits = Waits()
        self._compiled = asyncio.Event()
        self.quotas = Quotas()
        self._expiries = Expiries(clock, self.waits.recheck_soon)
        self.use_tokens(tokens)

    def __repr__(self) -> str:
        return f"Access({self.snapshot})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        text = "Generation of the rules and tokens that this process decides by; equal on all nodes within two seconds"
        yield "penstock_access_generation", text, self.snapshot.state.generation
        if (attempts := self._attempts) is not None:
            yield "penstock_refused_credentials_total", "Wrong or expired credentials", attempts.refused
            text = "Credentials that were not looked at: too many wrong ones came from their address"
            yield "penstock_limited_credentials_total", text, attempts.limited
            text = "Addresses whose wrong credentials are counted now"
            yield "penstock_refused_credential_addresses", text, attempts.addresses
        yield from self.quotas.gauges()
        yield from oidc_gauges(None if self.verifier is None else self.verifier.state, self._clock.now_ms())

    @property
    def has_state(self) -> bool:
        """Whether the rules and tokens of the store are read."""
        return self._state is not None

    def shown_to(self, owner: str, name: str) -> str:
        """Returns the name of a topic as the owner of a group or a subscription with the name `owner` says it."""
        tenant, dot, _ = owner.partition(".")
        space = self.snapshot.spaces.get(tenant) if dot and self.tokens is not None else None
        return name if space is None else space.visible(name)

    def ceiling_of(self, name: str) -> Ceiling | None:
        """Returns the ceiling of the tenant that a topic with this name is of; None: it is of no tenant."""
        tenant = self.snapshot.tenants.get(owner_of(name) or "")
        return None if tenant is None else Ceiling(tenant.id, tenant.limits.topics, tenant.limits.partitions)

    def use_tokens(self, tokens: Tokens[FileToken] | None) -> None:
        """Checks every request against these tokens of the file from now on."""
        self.tokens = tokens
        self._compile()

    def use_state(self, state: AccessState | None) -> None:
        """Checks every request against these rules and tokens of the store from now on; None: they are not read yet."""
        self._state = state
        self._compile()
        for token in self.snapshot.state.tokens:
            self._expiries.add(token.expires_ms)

    def use_verifier(self, verifier: Verifier) -> None:
        """Takes the access tokens of issuers that this one verifies, and checks those of open waits with it."""
        self.verifier = verifier
        self._compile()

    def guard(self, request: Request, handled: Handled) -> Coroutine[Any, Any, Response]:
        """Returns what a handler returned; a long poll ends with a Problem once its caller has lost the right to it."""
        if self.tokens is None or request.route.operation not in LONG_POLLS:
            return response_of(handled)
        return self._wait_guarded(request, handled)

    async def _wait_guarded(self, request: Request, handled: Handled) -> Response:
        try:
            async with self.waits.ending(request, partial(self.recheck, request)):
                return await response_of(handled)
        finally:
            give_up(handled)  # No-op unless the wait has not begun

    def recheck(self, request: Request) -> None:
        """Checks a request that waits for records. Raises Problem once its caller has lost a right to them."""
        self.check(request)
        for topic in request.topics_read:
            if not request.caller.allows(Operation.READ, topic):
                raise forbidden(request.caller, Operation.READ, topic)

    def _compile(self) -> None:
        self.snapshot = Snapshot(self.tokens or Tokens(()), self._state or AccessState(), self._superusers)
        self.quotas.use(self.snapshot.state.quotas)
        self.waits.recheck_soon()
        self._compiled.set()
        self._compiled = asyncio.Event()

    async def wait_generation(self, generation: int, wait_s: float) -> int:
        """Waits until this process decides by a generation, or a later one. Returns the one that it decides by."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.snapshot.state.generation < generation:
                    await self._compiled.wait()
        return self.snapshot.state.generation

    def author_of(self, caller: Caller, client: str) -> Author | None:
        """Returns the author of a change; None: the node has no tokens file."""
        if not isinstance(caller, Identity):
            return None
        own = next((token for token in self.snapshot.tokens.all if token.id == caller.token_id), None)
        return Author(
            principal=caller.principal,
            principals=caller.principals,
            own_rules=() if own is None else tuple(own.rules()),
            is_superuser=caller.is_superuser,
            token_id=caller.token_id,
            expires_ms=caller.expires_ms,
            client=client,
            tenant=caller.tenant,
        )

    def check(self, request: Request, tenant: str | None = None) -> None:
        """Checks the caller of a request, and that no internal topic is read. Notes the caller in the request.

        `tenant`: the one that an operator asks to act in. Raises Problem unauthorized, forbidden, invalid_header,
        invalid_topic_name, invalid_group_name.
        """
        need = request.route.need
        if self.tokens is not None and need is not OPEN:
            known: KnownCaller | None = request.connection.known_caller
            if (
                known is not None
                and known.headers is request.headers
                and known.names is request.names
                and known.route is request.route
                and known.snapshot is self.snapshot
                and tenant is None
                and (not known.expires_ms or self._clock.now_ms() < known.expires_ms)
            ):  # what is below allowed a request with an equal head
                request.caller = known.identity
                return
            if (
                known is not None
                and known.authorization == request.headers.getall(_AUTHORIZATION, None)
                and known.snapshot is self.snapshot
                and (not known.expires_ms or self._clock.now_ms() < known.expires_ms)
                and (known.authorization is not None or type(request.head) is not SignedHead)
            ):
                identity = known.identity
            else:
                identity = self._identify(request) if self._attempts is None else self._attempt(request, self._attempts)
            if tenant is not None or identity.space is not request.space:
                request.caller = identity  # a refusal names it in the audit trail
                identity = self._enter(request, identity, tenant)
            request.caller = identity
            operation, resource, where = need
            if where is _PATH:
                name = request.names[resource]
                decision = identity.decisions[resource][operation].get(name)  # without a call: this is the hot path
                if decision is None:
                    decision = identity.decide(operation, name, resource)
                if not decision.is_allowed:
                    raise forbidden(identity, operation, name, resource, decision)
            else:
                _check_unnamed(request, identity, need)
        elif tenant is not None and self.tokens is None:
            raise Problem("invalid_header", f"{TENANT} needs a node that knows its callers: give it a tokens file")
        if need is READ_TOPIC and request.names["topic"] in INTERNAL_TOPICS:
            raise unreadable(request.names["topic"])
        if (known := request.connection.known_caller) is not None and known.identity is request.caller:
            known.note(request)

    def _attempt(self, request: Request, attempts: Attempts) -> Identity:
        """Identifies the caller unless too many wrong credentials came from its address. Raises Problem."""
        known, given = request.connection.known_caller, request.headers.getall(_AUTHORIZATION, None)
        if given is None or isinstance(request.caller, Identity):  # nothing to guess; a wait that is checked again
            return self._identify(request)
        if known is not None and known.authorization == given:  # it was good, under rules that have changed
            request.connection.known_caller = None
            return self._identify(request)
        address, now = self._proxies.address_of(request), self._clock.monotonic()
        attempts.check(address, now)
        try:
            return self._identify(request)
        except Problem as problem:
            if problem.code == "unauthorized":
                attempts.fail(address, now)
            raise

    def identify_token(self, text: str, client: str, *, was_good: bool = False) -> Identity:
        """Returns the caller of a token that came by another protocol, from `host:port`.

        `was_good`: before rules have changed; it does not count as an attempt. Raises Problem overloaded, unauthorized,
        forbidden, TooManyAttempts.
        """
        if self._state is None:
            raise Problem("overloaded", "this node has not read the rules of the coordination store yet")
        attempts = self._attempts
        if attempts is None or was_good:
            return self._by_token(text, client)
        address, now = address_of(client), self._clock.monotonic()
        attempts.check(address, now)
        try:
            return self._by_token(text, client)
        except Problem as problem:
            if problem.code == "unauthorized":
                attempts.fail(address, now)
            raise

    def client_of(self, request: Request) -> str:
        """Returns the client's address, as `host:port`, also behind a trusted proxy. Raises Problem invalid_header."""
        return self._proxies.client_of(request)

    def _enter(self, request: Request, identity: Identity, tenant: str | None) -> Identity:
        """Brings a request into the tenant of its caller, or into that which an operator names. Returns its caller."""
        known = request.space
        if known is not None:  # it was checked before
            tenant = request.headers.get(TENANT)
        if tenant is not None:
            if type(request.head) is SignedHead:
                raise Problem("invalid_header", f"the URL is signed, and {TENANT} would change the topic that it names")
            may = identity.tenant is None and any(
                identity.allows(operation, "", Resource.CLUSTER) for operation in (Operation.OPERATE, Operation.ACCESS)
            )
            if not may:
                lacks = f"{identity.principal} lacks the right operate or access to the cluster"
                raise Problem("forbidden", f"{TENANT} is for operators: {lacks}")
            space = self.snapshot.spaces.get(tenant)
            if space is None:
                raise Problem("invalid_header", f"{TENANT} is {tenant[:64]!r}, and there is no such tenant")
            identity = self.snapshot.inside(identity, space)
        if known is None and identity.space is not None:
            identity.space.enter(request)
        elif known is not None and (identity.space is None or identity.space.tenant != known.tenant):
            raise Problem("forbidden", "the credential is not of this tenant any more")
        return identity

    def _identify(self, request: Request) -> Identity:
        """Returns the caller by its credential. Raises Problem overloaded, unauthorized."""
        if self._state is None:
            raise Problem("overloaded", "this node has not read the rules of the coordination store yet")
        if request.connection.listener is not None:
            return self._at_listener(request, request.connection.listener)
        if type(request.head) is SignedHead:
            return self._by_signature(request, request.head.signature)
        given = request.headers.getall(_AUTHORIZATION, [])
        return self._by_bearer(request, given) if given else self._without_credential(request)

    def _at_listener(self, request: Request, listener: PublicListener) -> Identity:
        """Returns the caller at a listener that has a say in it. Raises Problem unauthorized."""
        certified = admit(listener, request.connection.tls, self._clock.now_ms())
        end_ms = 0 if certified is None else certified.expires_ms
        self._expiries.add(end_ms)
        if type(request.head) is SignedHead:
            check_kind(listener, SIGNED)
            return self._by_signature(request, request.head.signature)
        if given := request.headers.getall(_AUTHORIZATION, []):
            return self._by_bearer(request, given, listener, end_ms)
        if certified is not None and CERT in listener.credentials:
            return self._by_certificate(request, listener, certified)
        check_kind(listener, ANONYMOUS)
        return self._without_credential(request)

    def _by_certificate(self, request: Request, listener: PublicListener, certified: Certified) -> Identity:
        """Returns the caller that a client certificate names. Raises Problem unauthorized."""
        if certified.name is None:
            raise not_taken(listener, "no rule gives the client certificate a name")
        identity = self.snapshot.identity(
            certified.key,
            CERT,
            certified.name,
            self.client_of(request),
            groups=certified.groups,
            tenant=certified.tenant,
            expires_ms=certified.expires_ms,
        )
        self._note(request, None, identity, certified.expires_ms)
        return identity

    def _note(self, request: Request, given: list[str] | None, identity: Identity, end_ms: int) -> None:
        """Notes the caller in the connection, unless its address may be another one in the next request."""
        if not (self.snapshot.evaluator.has_sources and self._proxies.forwards(request)):
            ends = [end for end in (identity.expires_ms, end_ms) if end]
            request.connection.known_caller = KnownCaller(given, identity, self.snapshot, min(ends, default=0))
            request.connection.use_owner(identity.tenant or identity.principal)

    def _without_credential(self, request: Request) -> Identity:
        anonymous = self.snapshot.anonymous(self.client_of(request))
        if anonymous is None:
            raise unauthorized(f"this node requires a token: send {_HOW}", "Bearer")
        return anonymous

    def _by_bearer(
        self, request: Request, given: list[str], listener: PublicListener | None = None, end_ms: int = 0
    ) -> Identity:
        """Returns the caller that the Authorization headers name. `end_ms`: of its connection's certificate.

        Raises Problem unauthorized.
        """
        text = given[0]
        if len(given) > 1 or text[: len(_SCHEME)].lower() != _SCHEME:
            raise unauthorized(f"the Authorization header is not one with the scheme Bearer: send {_HOW}", "Bearer")
        identity = self._by_token(text[len(_SCHEME) :].strip(" "), self.client_of(request))
        if listener is not None:
            check_kind(listener, identity.kind)
        self._note(request, given, identity, end_ms)
        return identity

    def _by_token(self, text: str, client: str | None) -> Identity:
        if self.verifier is not None and "." in text:  # a token of ours has none
            return self._by_access_token(self.verifier, text, client)
        token = self.snapshot.tokens.find(text)
        if token is None:
            raise unauthorized(unknown_because(text), 'Bearer error="invalid_token"')
        if token.expires_ms and token.expires_ms <= self._clock.now_ms():
            raise unauthorized(
                f"the token {token.name!r} has expired: ask for another one", 'Bearer error="invalid_token"'
            )
        return self.snapshot.identity_of(token, client)

    def take_signature(self, request: Request) -> None:
        """Takes a signature out of the query of a request, for `check`. Raises Problem."""
        if self.tokens is not None and request.route.need is not OPEN:
            try:
                take_signature(request)
            except InvalidUrl as error:
                raise unauthorized(str(error), 'Bearer error="invalid_token"') from None

    def _by_signature(self, request: Request, signature: Signature) -> Identity:
        """Returns the caller that a signed URL acts for. Raises Problem unauthorized."""
        grant, snapshot, now_ms = signature.grant, self.snapshot, self._clock.now_ms()
        kind, _, name = grant.subject.partition(":")
        client = self.client_of(request)
        try:
            check_use(request, grant)
            issuers = None if self.verifier is None else self.verifier.state
            tokens = snapshot.live_tokens(name, grant.tenant, now_ms)
            token = signer_of(signature, snapshot.state.keys, tokens, issuers, now_ms)
        except InvalidUrl as error:
            raise unauthorized(str(error), 'Bearer error="invalid_token"') from None
        if token is not None:
            ends_ms = min(signature.expires_ms, token.expires_ms or signature.expires_ms)
            identity = snapshot.identity_of(token, client, ends_ms)
        else:
            identity = snapshot.identity(
                f"signed:{signature.text}",
                kind,
                name,
                client,
                groups=grant.groups,
                tenant=grant.tenant,
                expires_ms=signature.expires_ms,
            )
        self._expiries.add(identity.expires_ms)
        return identity

    def _by_access_token(self, verifier: Verifier, text: str, client: str | None) -> Identity:
        try:
            found = verifier.find(text, self._clock.now_ms())
        except KeysMissing as refusal:
            raise Problem("overloaded", str(refusal)) from None
        except Refused as refusal:
            raise unauthorized(str(refusal), 'Bearer error="invalid_token"') from None
        self._expiries.add(found.expires_ms)
        key, groups, tenant = f"oidc:{found.digest}", found.groups, found.tenant
        return self.snapshot.identity(
            key, "oidc", found.name, client, groups=groups, tenant=tenant, expires_ms=found.expires_ms
        )


def _check_unnamed(request: Request, identity: Identity, need: Need) -> None:
    """Checks a need whose resource is not in the path. Raises Problem unauthorized, forbidden."""
    operation, resource, where = need
    if identity.space is not None and resource is Resource.CLUSTER and where is Where.NONE:
        _check_in_tenant(request.route.operation, identity, operation)
        return
    if where is Where.ANY:
        decision = identity.decide_any(operation, resource)
    elif where is Where.NONE:
        decision = identity.decide(operation, "", resource)
    else:  # the handler checks each name
        return
    if not decision.is_allowed:
        raise forbidden(identity, operation, "", resource, decision)


def _check_in_tenant(route: str, identity: Identity, operation: Operation) -> None:
    """Checks a route of the cluster inside a tenant: only its own rules and tokens, and the addresses of nodes.

    Raises Problem forbidden.
    """
    assert identity.space is not None
    if route == "describe_cluster":
        return
    if route not in IN_TENANTS:
        raise forbidden(identity, operation, "", Resource.CLUSTER, DENIED)
    tenant = identity.space.tenant
    decision = identity.decide(Operation.ACCESS, tenant, Resource.TENANT)
    if not decision.is_allowed:
        raise forbidden(identity, Operation.ACCESS, tenant, Resource.TENANT, decision)


def limits_of(caller: Caller, operation: Operation, resource: Resource = Resource.TOPIC) -> dict[str, object]:
    """Returns the field of a list that a caller does not see whole: the right and the prefixes that it has of it."""
    prefixes = caller.prefixes(operation, resource)
    if prefixes is None or (caller.space is not None and prefixes == (caller.space.prefix,)):
        return {}
    right = _RIGHTS[resource, operation]
    return {"limited_to": {"right": right.value, "prefixes": list(prefixes)}}


def forbidden(
    caller: Caller,
    operation: Operation,
    name: str,
    resource: Resource = Resource.TOPIC,
    decision: Decision | None = None,
) -> Problem:
    """Returns the problem of a caller without a right, which names the rule that denies it. No name: see Where.ANY."""
    if decision is None:
        decision = caller.decide(operation, name, resource)
    if caller.principal == ANONYMOUS:
        return unauthorized(f"to {operation} this {resource} needs a token: send {_HOW}", "Bearer")
    right = _RIGHTS.get((resource, operation))
    which = f"the {resource}" if resource is Resource.CLUSTER else f"{resource} {name!r}" if name else f"any {resource}"
    because = "no rule allows it" if decision.rule is None else f"rule {decision.rule} denies it"
    members: dict[str, object] = {"operation": operation.value, "resource": resource.value}
    if decision.rule is not None:
        members["rule"] = decision.rule
    if name and resource is not Resource.CLUSTER:
        members[resource.value] = name
    word = operation.value
    if right is not None:
        members["right"] = word = right.value
    elif resource is Resource.CLUSTER and operation is Operation.METRICS:
        members["right"] = operation.value
    purpose = "" if word == operation else f", to {operation} it"
    text = f"{caller.principal} lacks the right {word} to {which}{purpose}: {because}"
    problem = Problem("forbidden", text)
    problem.members = members
    return problem


def unauthorized(detail: str, challenge: str) -> Problem:
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge})
