"""Authorization: the right that each route needs, and the check of a request's bearer token.

The process that accepted the request checks it once, before a handler or a body is read. Links between the shards of a
node carry no identity: they are sockets in a private directory, and their calls have been checked. Without a tokens
file there is no check and no cost. Invariant: a route without an entry in NEEDS needs a token; with a topic in its path
it needs the right admin to that topic.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from aiohttp import web

from gateway.access.tokens_file import Right, Token, Tokens, unknown_because
from gateway.http.messages import Request
from gateway.http.problems import Problem

_SCHEME = "bearer "
_HOW = (
    "Authorization: Bearer penstock_…, the whole line that `penstock token create` has printed; "
    "the command takes it as --token or PENSTOCK_TOKEN"
)


class Requirement(Enum):
    """The need of a route that does not concern one topic's records."""

    NONE = "no token"
    AUTHENTICATED = "any token; the handler checks the rights to each topic"
    SEES = "a token with any right to the topic"
    WRITES = "a token with the right to write to any topic"
    OPERATES = "a token with the right admin to all topics, because placement concerns all of them"
    METRICS = "a token with the right metrics"


# By the name of the handler. Health reports nothing else; the contract and its page are the same on every node.
NEEDS: dict[str, Right | Requirement] = {
    "produce": Right.WRITE,
    "produce_to_partition": Right.WRITE,
    "produce_many": Requirement.AUTHENTICATED,
    "create_producer": Requirement.WRITES,
    "fetch": Right.READ,
    "tail_topic": Right.READ,
    "find_offsets": Right.READ,
    "read_table": Right.READ,
    "read_table_key": Right.READ,
    "fetch_many": Requirement.AUTHENTICATED,
    "list_topics": Requirement.AUTHENTICATED,
    "describe_topic": Requirement.SEES,
    "create_topic": Right.ADMIN,
    "alter_topic": Right.ADMIN,
    "delete_topic": Right.ADMIN,
    "roll_topic": Right.ADMIN,
    "delete_records": Right.ADMIN,
    "describe_fence": Right.WRITE,  # a client that knows the fencing token can write with it
    "set_fence": Right.WRITE,
    "describe_source": Right.WRITE,
    "tier_status": Requirement.SEES,
    "describe_cluster": Requirement.AUTHENTICATED,
    "list_reassignments": Requirement.AUTHENTICATED,
    "reassign": Requirement.OPERATES,
    "cancel_reassignment": Requirement.OPERATES,
    "drain_node": Requirement.OPERATES,
    "decommission_node": Requirement.OPERATES,
    "balance": Requirement.OPERATES,
    "list_groups": Requirement.AUTHENTICATED,
    "describe_group": Right.GROUP,
    "explain_group": Right.GROUP,
    "configure_group": Right.GROUP,
    "alter_group": Right.GROUP,
    "delete_group": Right.GROUP,
    "delete_group_offsets": Right.GROUP,
    "acquire_records": Right.GROUP,  # the handler checks the right read to each topic
    "acknowledge_records": Right.GROUP,
    "group_heartbeat": Right.GROUP,
    "group_poll": Right.GROUP,  # the handlers check the right read to each topic
    "group_events": Right.GROUP,
    "leave_group": Right.GROUP,
    "read_group_offsets": Right.GROUP,
    "commit_group_offsets": Right.GROUP,
    "reset_group": Right.GROUP,
    "put_subscription": Requirement.AUTHENTICATED,  # the handlers check the right read to each topic
    "alter_subscription": Requirement.AUTHENTICATED,
    "describe_subscription": Requirement.AUTHENTICATED,
    "list_subscriptions": Requirement.AUTHENTICATED,
    "delete_subscription": Requirement.AUTHENTICATED,
    "pause_subscription": Requirement.AUTHENTICATED,
    "resume_subscription": Requirement.AUTHENTICATED,
    "replay_subscription": Requirement.AUTHENTICATED,
    "healthz": Requirement.NONE,
    "readyz": Requirement.NONE,
    "metrics": Requirement.METRICS,
    "openapi_json": Requirement.NONE,
    "docs": Requirement.NONE,
    "root": Requirement.NONE,
    "links": Requirement.NONE,
}


class Caller(Protocol):
    """The sender of a request."""

    @property
    def name(self) -> str: ...
    def allows(self, right: Right, topic: str) -> bool: ...
    def prefixes(self, right: Right) -> tuple[str, ...] | None: ...


class _Anonymous:
    """The caller of a node without tokens."""

    name = "anybody"

    def allows(self, right: Right, topic: str) -> bool:
        return True

    def prefixes(self, right: Right) -> tuple[str, ...] | None:
        return None


ANONYMOUS: Caller = _Anonymous()
_CALLER = web.RequestKey("caller", Token)


def unreadable(topic: str) -> Problem:
    """Returns the problem of a read of an internal topic, which has the secrets of subscriptions."""
    return Problem("invalid_topic_name", f"{topic!r} is an internal topic: clients do not read it")


class Access:
    """The tokens of a node. `tokens` is replaced as a whole when the file changes; None: there is no tokens file."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self.tokens = tokens

    def __repr__(self) -> str:
        return f"Access({self.tokens})"

    def check(self, request: Request, operation: str) -> None:
        """Checks the token of a request. Raises Problem unauthorized, forbidden."""
        topic = request.match_info.get("topic")
        need = NEEDS.get(operation, Requirement.AUTHENTICATED if topic is None else Right.ADMIN)
        if need is Requirement.NONE or self.tokens is None:
            return
        caller = self._caller(request, self.tokens)
        request[_CALLER] = caller
        if isinstance(need, Right):
            name = request.match_info["group"] if need is Right.GROUP else topic
            assert name is not None, operation
            if not caller.allows(need, name):
                raise forbidden(caller, need, name)
        elif need is Requirement.SEES:
            assert topic is not None, operation
            if not caller.sees(topic):
                raise forbidden(caller, Right.READ, topic)
        elif need is Requirement.WRITES and not caller.has_any(Right.WRITE):
            text = f"the token {caller.name!r} lacks the right write to any topic"
            raise Problem("forbidden", text, right=Right.WRITE.value)
        elif need is Requirement.OPERATES and not caller.allows(Right.ADMIN, ""):
            text = f"the token {caller.name!r} lacks the right admin to all topics, which cluster operations require"
            raise Problem("forbidden", text, right=Right.ADMIN.value)
        elif need is Requirement.METRICS and not caller.has_metrics:
            raise Problem("forbidden", f"the token {caller.name!r} lacks the right metrics", right="metrics")

    def _caller(self, request: Request, tokens: Tokens) -> Token:
        given = request.headers.getall("Authorization", ())
        if not given:
            raise _unauthorized(f"this node requires a token: send {_HOW}", "Bearer")
        text = given[0]
        if len(given) > 1 or text[: len(_SCHEME)].lower() != _SCHEME:
            raise _unauthorized(f"the Authorization header is not one with the scheme Bearer: send {_HOW}", "Bearer")
        given_token = text[len(_SCHEME) :].strip(" ")
        token = tokens.find(given_token)
        if token is None:
            raise _unauthorized(unknown_because(given_token), 'Bearer error="invalid_token"')
        return token


def caller_of(request: Request) -> Caller:
    """Returns the sender of a request, for handlers that read many topics."""
    caller: Caller = request.get(_CALLER, ANONYMOUS)
    return caller


def limits_of(caller: Caller, right: Right) -> dict[str, object]:
    """Returns the field of a list that a token does not see whole: the right and the prefixes that it has of it."""
    prefixes = caller.prefixes(right)
    if prefixes is None or "" in prefixes:
        return {}
    return {"limited_to": {"right": right.value, "prefixes": list(prefixes)}}


def forbidden(caller: Caller, right: Right, topic: str) -> Problem:
    if right is Right.GROUP:
        text = f"the token {caller.name!r} lacks the right group to group {topic!r}"
        return Problem("forbidden", text, right=right.value, group=topic)
    text = f"the token {caller.name!r} lacks the right {right.value} to topic {topic!r}"
    return Problem("forbidden", text, right=right.value, topic=topic)


def _unauthorized(detail: str, challenge: str) -> Problem:
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge})
