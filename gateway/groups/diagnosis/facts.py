"""The facts about a group from which causes follow: its activity, the lag of its partitions; and a found cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from gateway.groups.diagnosis.activity import Activity
from gateway.groups.model.settings import GroupSettings, stored_settings
from gateway.groups.model.values import Slot

STUCK_MS = 60_000  # without a commit, while an older record waits
RECENT_MS = 600_000  # events older than this explain nothing of now
OFTEN = 3  # events of one member in that time
LARGE_LAG = 1_000  # records; a smaller lag is not called hot or slow
FACTOR = 10  # how many times the lag of the others


class Behind(NamedTuple):
    """How far a partition is behind: records, and the age of the first of them."""

    records: int
    age_ms: int


class Finding(Struct, frozen=True):
    """One cause. `member_id`, `topic` and `partition` name where it is, if it is in one place.

    `until_ms` is the wall time at which it ends by itself; None: it does not, or that is not known.
    """

    cause: str
    text: str
    member_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    until_ms: int | None = None


class Facts(NamedTuple):
    """`behind` lacks partitions without a position, and those whose leader cannot be asked."""

    activity: Activity
    settings: GroupSettings
    behind: Mapping[Slot, Behind]
    owners: Mapping[Slot, str]
    recent: Counter[tuple[str, str]]  # events of the last minutes by cause and member

    def lagging(self, member_id: str) -> dict[Slot, Behind]:
        owned = {slot: lag for slot, lag in self.behind.items() if self.owners.get(slot) == member_id}
        return {slot: lag for slot, lag in owned.items() if lag.records and lag.age_ms >= STUCK_MS}


def facts_of(activity: Activity, behind: Mapping[Slot, Behind]) -> Facts:
    """Returns what the causes of a group are looked for in."""
    recent: Counter[tuple[str, str]] = Counter()
    for event in activity.events:
        if event.at_ms > activity.now_ms - RECENT_MS:
            recent[event.cause, event.member_id] += event.count
    owners = {
        Slot(position.topic, position.partition): position.member_id
        for position in activity.view.offsets
        if position.member_id
    }
    return Facts(activity, stored_settings(activity.view.config), behind, owners, recent)


def missing(facts: Facts) -> Iterator[Finding]:
    for topic in facts.activity.missing:
        if any(position.topic == topic for position in facts.activity.view.offsets):
            text = f"topic {topic} was deleted: the group goes on with the others, and with this one once it is created"
        else:
            text = f"members subscribe to topic {topic}, which does not exist: create it"
        yield Finding("topic_missing", text, topic=topic)


def unreachable(facts: Facts) -> Iterator[Finding]:
    for position in facts.activity.view.offsets:
        is_missing = position.topic in facts.activity.missing
        if (
            position.offset is not None
            and not is_missing
            and Slot(position.topic, position.partition) not in facts.behind
        ):
            name = f"partition {position.partition} of topic {position.topic}"
            text = f"the leader of {name} does not answer: see penstock doctor"
            yield Finding("partition_unreachable", text, position.member_id or None, position.topic, position.partition)


def seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
