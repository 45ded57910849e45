"""The settings of a group, with their defaults, bounds and reasons, and the limits of a coordinator."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import InvalidConfig
from engine.format.paths import TOPIC_CHARS_MAX
from engine.settings import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, checked, rules, setting
from gateway.groups.share.backoff import Backoff
from gateway.groups.share.partition import Rules

STARTS = ("earliest", "latest", "time", "error")
RACK_AWARE = "rack_aware"
ASSIGNORS = ("sticky", "range", "round_robin", RACK_AWARE)
CONSUMER, SHARE = "consumer", "share"
KINDS = (CONSUMER, SHARE)
ORDERS = ("none", "key")
KINDS_OF = {  # the settings that are of one kind only
    **dict.fromkeys(
        (
            "start_time_ms",
            "partition_bytes_max",
            "auto_commit",
            "session_timeout_ms",
            "heartbeat_ms",
            "rebalance_timeout_ms",
            "assignor",
        ),
        (CONSUMER,),
    ),
    **dict.fromkeys(("lock_ms", "in_flight_max", "order"), (SHARE,)),
}
_TOPIC = rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARS_MAX}}}"
_NAMES = re.compile(f"{_TOPIC}(,{_TOPIC}){{0,99}}")


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of one group. A group stores only the values that differ from these defaults."""

    kind: str = setting(
        "consumer",
        choices=KINDS,
        why="consumer: each partition has one member. share: any caller acquires single records and acknowledges them.",
    )
    start: str = setting(
        "earliest",
        choices=STARTS,
        why="Where a group without a position begins: at the first record, the end, start_time_ms, or with an error.",
    )
    start_time_ms: int | None = setting(
        None,
        minimum=0,
        maximum=2**53,
        optional=True,
        why="With start=time: a partition without a position begins at its first record of this time, in milliseconds.",
    )
    topics_priority: str | None = setting(
        None,
        optional=True,
        why="Topics in the order of their priority, joined by commas. A member gets records of a topic only when those "
        "before it have none; all others come last.",
    )
    partition_bytes_max: int | None = setting(
        None,
        minimum=1,
        maximum=2**31 - 1,
        optional=True,
        why="A poll returns about this many bytes of one partition at most: one with many records does not fill the "
        "delivery. Null: the bytes of the answer are the limit.",
    )
    auto_commit: bool = setting(
        True,
        why="A poll that names a token commits its delivery. false: only PUT /v1/groups/{group}/offsets commits.",
    )
    session_timeout_ms: int = setting(
        45 * SECOND_MS,
        minimum=SECOND_MS,
        maximum=30 * MINUTE_MS,
        why="A member without a poll or heartbeat for this long is removed. Time inside a poll does not count.",
    )
    heartbeat_ms: int = setting(
        5 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why="How often a member that does not poll is asked to call. Shorter: it learns its assignment sooner.",
    )
    rebalance_timeout_ms: int = setting(
        MINUTE_MS,
        minimum=SECOND_MS,
        maximum=HOUR_MS,
        why="A member that has not given up a revoked partition after this time is removed: others wait for it.",
    )
    assignor: str = setting(
        "sticky",
        choices=ASSIGNORS,
        why="sticky moves as few partitions as balance allows; range gives neighbours of each topic to one member; "
        "round_robin deals them out in turn; rack_aware is sticky, and gives members partitions of their rack.",
    )
    offsets_retention_ms: int = setting(
        7 * DAY_MS,
        minimum=MINUTE_MS,
        maximum=3650 * DAY_MS,
        why="A group without members and commits for this long is deleted with its positions.",
    )
    lock_ms: int = setting(
        30 * SECOND_MS,
        minimum=100,
        maximum=12 * HOUR_MS,
        why="Share groups: a record that is not acknowledged after this time is delivered again. Longer than the work.",
    )
    deliveries_max: int = setting(
        10,
        minimum=1,
        maximum=1000,
        why="A record that fails this often becomes a dead letter, so that it cannot block the others. Ten failures "
        "take 4 to 8 minutes with the default delays: a longer outage downstream needs more.",
    )
    redelivery_delay_ms: int = setting(
        SECOND_MS,
        minimum=0,
        maximum=12 * HOUR_MS,
        why="A record that failed waits half of this to all of it, and twice as long after each further failure, so "
        "that a short outage downstream makes no dead letters. A partition of a consumer group waits with its record.",
    )
    redelivery_delay_ms_max: int = setting(
        10 * MINUTE_MS,
        minimum=0,
        maximum=12 * HOUR_MS,
        why="The longest of these delays: how soon after a long outage the work goes on.",
    )
    in_flight_max: int = setting(
        10_000,
        minimum=1,
        maximum=100_000,
        why="Share groups: offsets of a partition from the first unfinished record to the last delivered one. It "
        "bounds the state: some 100 bytes a record at worst.",
    )
    order: str = setting(
        "none",
        choices=ORDERS,
        why="Share groups: key delivers a record only after all earlier ones of its key are finished.",
    )
    dead_letter_topic: str | None = setting(
        None,
        optional=True,
        why="The topic that gets rejected records and those that failed deliveries_max times. Null: a share group "
        "drops and counts them, and a partition of a consumer group waits for its failed record.",
    )

    @property
    def priorities(self) -> tuple[str, ...]:
        return tuple(self.topics_priority.split(",")) if self.topics_priority else ()

    def rules(self) -> Rules:
        """Returns what decides over the records of a share group."""
        return Rules(
            self.in_flight_max,
            self.deliveries_max,
            self.backoff(),
            self.order == "key",
            self.dead_letter_topic is not None,
        )

    def backoff(self) -> Backoff:
        """Returns the delays of records that failed."""
        return Backoff(self.redelivery_delay_ms, self.redelivery_delay_ms_max)


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """The limits of one coordinator. `groups_max` is of one partition of the groups topic."""

    groups_max: int = 10_000
    members_max: int = 1_000
    topics_max: int = 1_000
    positions_max: int = 20_000
    subscriptions_max: int = 100


def group_settings(overrides: Mapping[str, object]) -> GroupSettings:
    """Returns the settings of a group. Raises InvalidConfig."""
    settings = GroupSettings(**checked(GroupSettings, overrides))  # type: ignore[arg-type]
    if settings.topics_priority is not None and not _NAMES.fullmatch(settings.topics_priority):
        raise InvalidConfig("topics_priority is 1 to 100 names of topics, joined by commas", setting="topics_priority")
    return settings


def check_together(settings: GroupSettings, given: Mapping[str, object]) -> None:
    """Checks settings that depend on each other, and that each of the given ones does something. Raises InvalidConfig.

    `settings` are those of the group with the given ones. Its other settings are not checked: a group of an earlier
    release may have settings that were accepted then.
    """
    defaults = GroupSettings()
    for name in sorted(given):  # a default may be sent with all others: a description can be sent back
        if getattr(settings, name) != getattr(defaults, name) and settings.kind not in KINDS_OF.get(name, KINDS):
            raise _unused_error(name, f"in a group of kind {settings.kind}", f"kind {KINDS_OF[name][0]}")
    if "start_time_ms" in given and settings.start_time_ms is not None and settings.start != "time":
        raise _unused_error("start_time_ms", f"with start {settings.start}", "start time")
    is_without = settings.kind == CONSUMER and settings.dead_letter_topic is None
    if "deliveries_max" in given and is_without and settings.deliveries_max != defaults.deliveries_max:
        raise _unused_error("deliveries_max", "in a consumer group that has no dead_letter_topic", "dead_letter_topic")
    if settings.start == "time" and settings.kind == SHARE:
        raise InvalidConfig("start is not time for a share group", hint="reset the group to the time", setting="start")
    if settings.start == "time" and settings.start_time_ms is None:
        raise InvalidConfig("start is time and start_time_ms is not set", hint="set both", setting="start_time_ms")


def _unused_error(name: str, where: str, missing: str) -> InvalidConfig:
    hint = f"leave {name} out, or give {missing} too"
    return InvalidConfig(f"{name} has no effect {where}", hint=hint, setting=name)


def stored_settings(overrides: Mapping[str, object]) -> GroupSettings:
    """Returns the settings of a stored group. Names and values that only a later version knows count as defaults."""
    values: dict[str, object] = {}
    for rule in rules(GroupSettings):
        with contextlib.suppress(InvalidConfig, KeyError):
            values[rule.name] = rule.check(overrides[rule.name])
    return GroupSettings(**values)  # type: ignore[arg-type]
