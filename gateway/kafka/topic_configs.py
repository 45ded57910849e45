"""The settings of topics by Kafka's names: to ours, and from ours. Names without effect here are accepted and shown.

A value of Kafka's is text. Invariant: a name that is shown can be sent back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from engine.errors import InvalidConfig
from engine.settings import DAY_MS, rules
from engine.topic_settings import TopicSettings

DYNAMIC, STATIC, DEFAULTED = 1, 4, 5  # Kafka's sources of a setting
LONG_MAX = 2**63 - 1
YEARS_100_MS = 100 * 365 * DAY_MS
Overrides = dict[str, object]
_DEFAULTS = TopicSettings()
_RULES = {rule.name: rule for rule in rules(TopicSettings)}


class Kind(IntEnum):
    """Kafka's types of values."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Config(NamedTuple):
    """One name: the type of its value, the value of some settings, and the settings that a value is.

    `own` are our settings that it is about; none: it has no effect here, and is not kept.
    """

    name: str
    kind: Kind
    own: tuple[str, ...]
    shown: Callable[[TopicSettings], str]
    parsed: Callable[[str], Overrides]
    is_read_only: bool = False


def parse_configs(given: Mapping[str, str | None]) -> Overrides:
    """Returns our settings of Kafka's; a value of None restores a default. Raises InvalidConfig."""
    found: Overrides = {}
    for name, value in given.items():
        config = CONFIGS.get(name)
        if config is None:
            raise InvalidConfig(f"Unknown topic config name: {name}", setting=name)
        if value is None:
            found |= {own: getattr(_DEFAULTS, own) for own in config.own}
        else:
            found |= config.parsed(value.strip())
    return found


def source_of(config: Config, settings: TopicSettings) -> int:
    """Returns Kafka's number for where a value comes from."""
    is_default = all(getattr(settings, own) == getattr(_DEFAULTS, own) for own in config.own)
    return DEFAULTED if is_default else DYNAMIC


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidConfig(f"{name} is {text!r}, which is not a whole number", setting=name) from None


def _plain(name: str, own: str, kind: Kind = Kind.LONG, unlimited: int | None = None, most: int = LONG_MAX) -> Config:
    """Returns a number that is one of our settings. `unlimited`: the number that stands where ours is null."""

    def shown(settings: TopicSettings) -> str:
        value = getattr(settings, own)
        return str(unlimited if value is None else value)

    def parsed(text: str) -> Overrides:
        value = _number(name, text)
        if unlimited is not None and (value == unlimited or value > most):
            return {own: None}
        return {own: value}

    return Config(name, kind, (own,), shown, parsed)


def _words(name: str, own: str, ours: Mapping[str, str]) -> Config:
    """Returns a word that is one of our settings; `ours` has our word for each of Kafka's."""
    kafkas = {word: kafka for kafka, word in reversed(list(ours.items()))}

    def parsed(text: str) -> Overrides:
        if text not in ours:
            raise InvalidConfig(f"{name} is {text!r}", hint=f"give {' or '.join(ours)}", setting=name)
        return {own: ours[text]}

    return Config(name, Kind.STRING, (own,), lambda settings: kafkas[getattr(settings, own)], parsed)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidConfig(f"{name} is {text!r}", hint="give true or false", setting=name)
    return text.lower() == "true"


def _cleanup_policy(text: str) -> Overrides:
    words = sorted({word.strip() for word in text.split(",") if word.strip()})
    return {"cleanup_policy": ",".join(words)}


def _dirty_percent(text: str) -> Overrides:
    try:
        percent = round(float(text) * 100)
    except ValueError:
        raise InvalidConfig(f"min.cleanable.dirty.ratio is {text!r}", setting="min.cleanable.dirty.ratio") from None
    return {"min_cleanable_dirty_percent": max(percent, 1) if percent >= 0 else percent}


def _max_message_bytes(text: str) -> Overrides:
    """A batch of one record may be as large, so the record may be too."""
    size = _number("max.message.bytes", text)
    found: Overrides = {"batch_bytes_max": size}
    if size > _DEFAULTS.record_bytes_max:
        found["record_bytes_max"] = size
    return found


def _time_ahead(text: str) -> Overrides:
    value = _number("message.timestamp.after.max.ms", text)
    return {"timestamp_ahead_ms_max": min(value, YEARS_100_MS)}


def _flush_ms(text: str) -> Overrides:
    value, most = _number("flush.ms", text), _RULES["flush_ms"].maximum
    assert most is not None
    return {"flush_ms": _DEFAULTS.flush_ms if value > most else value}


def _ignored(name: str, kind: Kind, value: str) -> Config:
    """Returns a setting of Kafka's that has no effect here: it is accepted, and shown with Kafka's default."""
    return Config(name, kind, (), lambda _: value, lambda _: {})


_ALL = (
    Config("cleanup.policy", Kind.LIST, ("cleanup_policy",), lambda settings: settings.cleanup_policy, _cleanup_policy),
    _words(
        "compression.type",
        "compression",
        {"producer": "none", "uncompressed": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"},
    ),
    _plain("delete.retention.ms", "delete_retention_ms"),
    Config("flush.ms", Kind.LONG, ("flush_ms",), lambda settings: str(settings.flush_ms), _flush_ms),
    _ignored("flush.messages", Kind.LONG, str(LONG_MAX)),
    _plain("local.retention.bytes", "local_retention_bytes", unlimited=-2),
    _plain("local.retention.ms", "local_retention_ms", unlimited=-2),
    _plain("max.compaction.lag.ms", "max_compaction_lag_ms", unlimited=LONG_MAX),
    Config(
        "max.message.bytes",
        Kind.INT,
        ("batch_bytes_max", "record_bytes_max"),
        lambda settings: str(settings.batch_bytes_max),
        _max_message_bytes,
    ),
    Config(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        ("timestamp_ahead_ms_max",),
        lambda settings: str(settings.timestamp_ahead_ms_max),
        _time_ahead,
    ),
    _ignored("message.timestamp.before.max.ms", Kind.LONG, str(LONG_MAX)),
    _words("message.timestamp.type", "timestamp_type", {"CreateTime": "create", "LogAppendTime": "append"}),
    Config(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        ("min_cleanable_dirty_percent",),
        lambda settings: str(settings.min_cleanable_dirty_percent / 100),
        _dirty_percent,
    ),
    _plain("min.compaction.lag.ms", "min_compaction_lag_ms"),
    _plain("min.insync.replicas", "min_insync_replicas", Kind.INT),
    Config("remote.storage.enable", Kind.BOOLEAN, (), lambda _: "true", lambda _: {}, is_read_only=True),
    _plain("retention.bytes", "retention_bytes", unlimited=-1),
    _plain("retention.ms", "retention_ms", unlimited=-1, most=YEARS_100_MS),
    _plain("segment.bytes", "segment_bytes", Kind.INT),
    _plain("segment.ms", "segment_ms"),
    Config(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        ("unclean_election",),
        lambda settings: str(settings.unclean_election).lower(),
        lambda text: {"unclean_election": _boolean("unclean.leader.election.enable", text)},
    ),
    _ignored("compression.gzip.level", Kind.INT, "-1"),
    _ignored("compression.lz4.level", Kind.INT, "9"),
    _ignored("compression.zstd.level", Kind.INT, "3"),
    _ignored("file.delete.delay.ms", Kind.LONG, "60000"),
    _ignored("follower.replication.throttled.replicas", Kind.LIST, ""),
    _ignored("index.interval.bytes", Kind.INT, "4096"),
    _ignored("leader.replication.throttled.replicas", Kind.LIST, ""),
    _ignored("message.downconversion.enable", Kind.BOOLEAN, "true"),
    _ignored("message.format.version", Kind.STRING, "3.0-IV1"),
    _ignored("message.timestamp.difference.max.ms", Kind.LONG, str(LONG_MAX)),
    _ignored("preallocate", Kind.BOOLEAN, "false"),
    _ignored("remote.log.copy.disable", Kind.BOOLEAN, "false"),
    _ignored("remote.log.delete.on.disable", Kind.BOOLEAN, "false"),
    _ignored("segment.index.bytes", Kind.INT, "10485760"),
    _ignored("segment.jitter.ms", Kind.LONG, "0"),
)
CONFIGS = {config.name: config for config in _ALL}
