"""Reads the names in a request of a group: group, member and topics; and checks the rights to the topics."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Annotated, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.format.paths import INTERNAL_TOPICS, TOPIC_CHARS_MAX, is_topic_name
from gateway.access.access import forbidden
from gateway.access.names import NAME
from gateway.groups.context import GroupContext
from gateway.groups.core.expressions import CHARACTERS_MAX, compile_expression
from gateway.groups.model.token import decode_token, encode_token
from gateway.groups.model.values import Client, PollCall, Token, TopicPattern
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.rights import ANONYMOUS, Operation
from gateway.routing.leader_headers import read_rack

TOPICS_MAX = 1000
NAME_CHARS_MAX = 200  # of a group and of a member
PUSH_PREFIX = "push:"  # of the groups of subscriptions; no client can name such a group

Timeout = Annotated[int, Meta(ge=1000, le=3_600_000)]
TopicNames = Annotated[
    list[Annotated[str, Meta(max_length=TOPIC_CHARS_MAX), NAME]], Meta(min_length=1, max_length=TOPICS_MAX)
]

_Expression = Annotated[str, Meta(min_length=1, max_length=CHARACTERS_MAX)]


class Subscribing(Struct, forbid_unknown_fields=True):
    """The fields of a body that say which topics a member reads."""

    topics: TopicNames | UnsetType = UNSET
    topics_pattern: _Expression | UnsetType = UNSET
    topics_exclude: Annotated[str, Meta(max_length=CHARACTERS_MAX)] = ""


_GROUP = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")
_MEMBER = re.compile(rf"[A-Za-z0-9._:-]{{1,{NAME_CHARS_MAX}}}")


def group_name(request: Request) -> str:
    """Returns the group in the path. Raises Problem invalid_group_name."""
    name = request.names["group"]
    if not _GROUP.fullmatch(name):
        raise Problem("invalid_group_name", f"{name[:64]!r} cannot name a group; use 1 to 200 of A-Z a-z 0-9 . _ -")
    return name


def member_name(name: str) -> str:
    """Returns a member's name. Raises Problem invalid_group_name."""
    if not _MEMBER.fullmatch(name):
        raise Problem("invalid_group_name", f"{name[:64]!r} cannot name a member; use 1 to 200 of A-Z a-z 0-9 . _ : -")
    return name


def client_of(request: Request) -> Client:
    """Returns the sender of a request. Raises Problem invalid_header."""
    rack = read_rack(request) or ""
    return Client(request.headers.get("Penstock-Client-Id", "")[:200], request.client or "", rack)


def unknown_topics(request: Request, context: GroupContext, names: Iterable[str], *, must_exist: bool) -> list[str]:
    """Returns the topics that `check_topics` would miss, and that another node may have made."""
    return [
        name
        for name in names
        if (must_exist or not is_topic_name(name))
        and context.topics.get(name) is None
        and request.caller.allows(Operation.READ, name)
    ]


async def find_topics(request: Request, context: GroupContext, names: Iterable[str], *, must_exist: bool) -> None:
    """Waits for topics that another node may have made. Raises Problem."""
    for name in unknown_topics(request, context, names, must_exist=must_exist):
        await context.topics.refresh(name)


def check_topics(request: Request, context: GroupContext, names: Iterable[str], *, must_exist: bool) -> tuple[str, ...]:
    """Returns the topics that a member wants to read. Raises Problem forbidden, UnknownTopic.

    A topic has to exist when the member joins. One that is deleted later ends no membership.
    """
    topics = tuple(sorted(set(names)))
    for name in topics:
        check_readable(request, name)
        if must_exist or not is_topic_name(name):
            context.topics.topic(name)
    return topics


def check_subscription(
    request: Request, context: GroupContext, subscribing: Subscribing, *, must_exist: bool
) -> tuple[tuple[str, ...] | None, TopicPattern | None]:
    """Returns the topics that a member names and its expression. None: the request has neither.

    Raises Problem, UnknownTopic, InvalidPattern, PatternsUnavailable.
    """
    topics = None
    if subscribing.topics is not UNSET:
        topics = check_topics(request, context, subscribing.topics, must_exist=must_exist)
    if subscribing.topics_pattern is UNSET:
        if subscribing.topics_exclude:
            raise Problem("invalid_body", "topics_exclude needs topics_pattern: it leaves out topics that match that")
        return topics, None
    include, exclude = (
        _stored_expression(request, text, field)
        for text, field in (
            (subscribing.topics_pattern, "topics_pattern"),
            (subscribing.topics_exclude, "topics_exclude"),
        )
    )
    caller = request.caller
    readable = caller.prefixes(Operation.READ)
    if readable == ():
        raise forbidden(caller, Operation.READ, subscribing.topics_pattern)
    return topics or (), TopicPattern(include, exclude, readable)


def _stored_expression(request: Request, text: str, field: str) -> str:
    """Returns an expression over stored names. Raises InvalidPattern, PatternsUnavailable."""
    if text:
        compile_expression(text, field)
    if not text or request.space is None:
        return text
    stored = request.space.expression(text)
    compile_expression(stored, field)  # as `\\Q` without an end, which would take in what is around it
    return stored


def token_of(request: Request, text: str) -> Token:
    """Returns the delivery that a token is of. Raises Problem, InvalidToken."""
    token = decode_token(text)
    return token if request.space is None else cast(Token, request.space.stored_in(token))


def text_of_token(request: Request, token: Token) -> str:
    return encode_token(token if request.space is None else request.space.visible_in(token))


def check_readable(request: Request, topic: str) -> None:
    """Checks that a client may read a topic as a member. Raises Problem forbidden, invalid_topic_name."""
    caller = request.caller
    if topic in INTERNAL_TOPICS:
        raise Problem("invalid_topic_name", f"{topic!r} is an internal topic: no group reads it")
    if not caller.allows(Operation.READ, topic):
        raise forbidden(caller, Operation.READ, topic)


def check_own(request: Request, topics: Iterable[str], given: Collection[str] = ()) -> None:
    """Checks that a client may read the topics of a group; `given` are those that it has named itself.

    Another one that it may not describe stays unnamed. Raises Problem forbidden.
    """
    caller = request.caller
    for topic in topics:
        if topic not in given and not caller.allows(Operation.DESCRIBE, topic):
            text = f"{caller.principal} lacks the right read to a topic of this group, and the right to know its name"
            raise Problem("forbidden", text, right="read")
        check_readable(request, topic)


def check_all_readable(request: Request, topics: Iterable[str]) -> None:
    for topic in topics:
        check_readable(request, topic)


def check_again(request: Request, context: GroupContext, topics: Iterable[str]) -> None:
    """Checks the rights to the group and to the topics right before a commit: a request that waited may have lost them.

    Raises Problem.
    """
    if request.caller is not ANONYMOUS:
        context.fetch.access.check(request)
        check_all_readable(request, topics)


def check_commit(request: Request, context: GroupContext, call: PollCall) -> None:
    """Checks the rights to what the call of a poll commits, as `check_again` does, and while the call waits."""
    if request.caller is not ANONYMOUS:
        delivered = () if call.token is None else call.token.positions
        topics = {position.topic for positions in (delivered, call.starts, call.copied) for position in positions}
        request.topics_read = topics
        check_again(request, context, topics)


async def check_writable(request: Request, context: GroupContext, topic: str) -> None:
    """Checks that a client may write to the topic that it names. Raises Problem, UnknownTopic."""
    caller = request.caller
    if topic in INTERNAL_TOPICS:
        raise Problem("invalid_topic_name", f"{topic!r} is an internal topic")
    if not caller.allows(Operation.WRITE, topic):
        raise forbidden(caller, Operation.WRITE, topic)
    await context.topics.refresh(topic)
    context.topics.topic(topic)
