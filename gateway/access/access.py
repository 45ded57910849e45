"""Authorization: the check of a request's bearer token against the need of its route.

The process that accepted the request checks it once, before a handler or a body is read. Links between the shards of a
node carry no identity: they are sockets in a private directory, and their calls have been checked. Without a tokens
file there is no check and no cost.
"""

from __future__ import annotations

from engine.format.paths import INTERNAL_TOPICS
from gateway.access.tokens_file import Token, Tokens, unknown_because
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.rights import Caller, Requirement, Right

_SCHEME = "bearer "
_HOW = (
    "Authorization: Bearer penstock_…, the whole line that `penstock token create` has printed; "
    "the command takes it as --token or PENSTOCK_TOKEN"
)


def unreadable(topic: str) -> Problem:
    """Returns the problem of a read of an internal topic, which has the secrets of subscriptions."""
    return Problem("invalid_topic_name", f"{topic!r} is an internal topic: clients do not read it")


class Access:
    """The tokens of a node. `tokens` is replaced as a whole when the file changes; None: there is no tokens file."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self.tokens = tokens

    def __repr__(self) -> str:
        return f"Access({self.tokens})"

    def check(self, request: Request) -> None:
        """Checks the token of a request, and that no internal topic is read. Notes the caller in the request.

        Raises Problem unauthorized, forbidden, invalid_topic_name.
        """
        need = request.route.need
        if self.tokens is not None and need is not Requirement.NONE:
            self._check_token(request, self.tokens)
        if need is Right.READ and (topic := request.names.get("topic")) in INTERNAL_TOPICS:
            raise unreadable(topic)

    def _check_token(self, request: Request, tokens: Tokens) -> None:
        need, topic = request.route.need, request.names.get("topic")
        caller = request.caller = self._caller(request, tokens)
        if isinstance(need, Right):
            name = request.names["group"] if need is Right.GROUP else topic
            assert name is not None, request.route
            if not caller.allows(need, name):
                raise forbidden(caller, need, name)
        elif need is Requirement.SEES:
            assert topic is not None, request.route
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
