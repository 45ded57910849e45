"""The topics that a member reads: those that it names, and those that match its expression.

Topics that come later are found by a sweep of the coordinator. They begin at their first record, whatever `start` is:
else what was produced before they were found would be skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.groups.core import membership
from gateway.groups.core.membership import Subscription
from gateway.groups.core.patterns import Patterns
from gateway.groups.model.errors import GroupError
from gateway.groups.model.state import Group, KnownTopic, Member
from gateway.groups.model.values import Now, TopicPattern, TopicSource


def subscription(
    patterns: Patterns,
    topics: Iterable[str],
    pattern: TopicPattern | None,
    source: TopicSource,
    topics_max: int,
    before: frozenset[str] = frozenset(),
) -> Subscription:
    """Returns what a member reads now. Raises InvalidPattern, PatternsUnavailable."""
    if pattern is None:
        return Subscription(frozenset(topics))
    patterns.begin_look(source.names())
    pattern = TopicPattern(pattern.include, pattern.exclude, pattern.readable, tuple(sorted(topics)))
    return _match(patterns, pattern, topics_max, before)


def _match(patterns: Patterns, pattern: TopicPattern, topics_max: int, before: frozenset[str]) -> Subscription:
    matches = patterns.matches(pattern)
    names = [name for name in matches.names if pattern.readable is None or name.startswith(pattern.readable)]
    room = max(0, topics_max - len(pattern.named))
    if len(names) > room:  # those that it had stay
        names = sorted(names, key=lambda name: (name not in before, name))[:room]
    return Subscription(frozenset((*pattern.named, *names)), pattern, matches.version, patterns.sequence)


def follow(
    group: Group, members: Iterable[Member], patterns: Patterns, now: Now, source: TopicSource, topics_max: int
) -> bool:
    """Gives members the topics that match since the last look. Returns whether a rebalance is due."""
    has_changed = False
    for member in members:
        assert member.pattern is not None
        try:
            if patterns.matches(member.pattern).version == member.matched:
                continue
            after = _match(patterns, member.pattern, topics_max, member.topics)
        except GroupError:  # the node of this coordinator has no engine for expressions: the topics stay
            continue
        for topic in sorted(after.topics - member.topics):
            size = source.find(topic)
            if size is not None and topic not in group.topics and patterns.is_new(topic, member.arrived):
                membership.know(group, topic, KnownTopic(size.topic_id, 0))
        member.matched = after.matched
        if after.topics != member.topics:
            group.history.note("topics_changed", now, member.member_id, _changes(member.topics, after.topics))
            member.topics = after.topics
            group.changed_members.add(member.member_id)
            has_changed = True
    return has_changed


def _changes(before: frozenset[str], after: frozenset[str]) -> str:
    changes = [f"+{topic}" for topic in sorted(after - before)] + [f"-{topic}" for topic in sorted(before - after)]
    return ", ".join(changes[:10]) + (" …" if len(changes) > 10 else "")
