"""The topics that a caller may describe, of those that an answer about a group would name.

A right to a group is none to its topics: whatever names another topic is left out, and `limited_to` says that something
may be. Numbers about the whole group stay: its state, its epoch, its members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from gateway.access.access import limits_of
from gateway.groups.diagnosis.facts import Finding
from gateway.groups.model.history import Event
from gateway.groups.model.values import GroupView, MemberView
from gateway.http.rights import Caller, Operation

LISTS = frozenset({"joined", "subscription_changed", "topics_changed", "dead_lettered"})  # events: names are the detail
COPY_ERROR = "dead_letters_failed"  # a name and a colon begin the detail


class VisibleTopics:
    """Leaves other topics out of what is shown to one caller."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def __repr__(self) -> str:
        return f"VisibleTopics({self._caller.principal})"

    @property
    def limits(self) -> dict[str, object]:
        """The field of an answer; empty: the caller may describe all topics."""
        return limits_of(self._caller, Operation.DESCRIBE)

    def has(self, topic: str) -> bool:
        return self._caller.allows(Operation.DESCRIBE, topic)

    def view(self, view: GroupView) -> GroupView:
        """Returns a group without the other topics."""
        letters = view.config.get("dead_letter_topic")
        config = dict(view.config)
        if isinstance(letters, str) and not self.has(letters):
            del config["dead_letter_topic"]
        return structs.replace(
            view,
            config=config,
            members=tuple(map(self._member, view.members)),
            offsets=tuple(position for position in view.offsets if self.has(position.topic)),
            shares=tuple(share for share in view.shares if self.has(share.topic)),
        )

    def finding(self, finding: Finding) -> bool:
        """Returns whether a finding names no other topic."""
        return finding.topic is None or self.has(finding.topic)

    def events(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yields events without the other topics. An event about them alone is left out, unless a member joined."""
        for event in events:
            if event.cause == COPY_ERROR:
                if not event.detail or self.has(event.detail.partition(":")[0]):
                    yield event
            elif event.cause in LISTS and event.detail:
                detail = ", ".join(name for name in event.detail.split(", ") if self.has(_topic_in(event, name)))
                if detail or event.cause == "joined":
                    yield structs.replace(event, detail=detail)
            else:
                yield event

    def _member(self, member: MemberView) -> MemberView:
        """An expression may be a name: it is shown only with all topics that the member has by it."""
        topics = tuple(filter(self.has, member.topics))
        return structs.replace(
            member,
            topics=topics,
            pattern=member.pattern if len(topics) == len(member.topics) else None,
            assignment=tuple(slot for slot in member.assignment if self.has(slot[0])),
            revoking=tuple(slot for slot in member.revoking if self.has(slot[0])),
        )


def _topic_in(event: Event, name: str) -> str:
    """Returns the topic in a part of a detail: +name or -name if its member has changed its topics, … at a cut."""
    topic = name.removesuffix(" …")
    return topic[1:] if event.cause == "topics_changed" and event.member_id else topic
