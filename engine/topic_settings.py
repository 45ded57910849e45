"""The settings of a topic, which values they take, and which fit together. Values in, values out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import InvalidConfig, TopicProtected
from engine.settings import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS, checked, rules, setting


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic. A topic stores only the values that differ from these defaults."""

    retention_ms: int | None = setting(
        7 * DAY_MS,
        minimum=MINUTE_MS,
        maximum=100 * 365 * DAY_MS,
        optional=True,
        why=(
            "Older records are deleted, on disk and in the store. A week outlives a long weekend; null keeps them"
            " permanently."
        ),
    )
    retention_bytes: int | None = setting(
        None,
        minimum=MIB,
        maximum=2**60,
        optional=True,
        why=(
            "The oldest segments of a partition are deleted above this size, on disk and in the store. Null: unlimited."
        ),
    )
    local_retention_ms: int | None = setting(
        None,
        minimum=SECOND_MS,
        maximum=100 * 365 * DAY_MS,
        optional=True,
        why="Tiered segments older than this are deleted from the local disk only. Null: as long as `retention_ms`.",
    )
    local_retention_bytes: int | None = setting(
        None,
        minimum=0,
        maximum=2**60,
        optional=True,
        why="Tiered segments beyond this size are deleted from the local disk only; 0 keeps just the active segment.",
    )
    cleanup_policy: str = setting(
        "delete",
        choices=("delete", "compact", "compact,delete"),
        why="delete: records leave by age and size. compact: the last record of each key stays, as a table's rows do; "
        "every record needs a key, and nothing is uploaded. compact,delete: both.",
    )
    delete_retention_ms: int = setting(
        DAY_MS,
        minimum=0,
        maximum=365 * DAY_MS,
        why="How long compaction keeps a tombstone (a null value). A reader that began before and is not done by then "
        "keeps a deleted key.",
    )
    min_compaction_lag_ms: int = setting(
        0,
        minimum=0,
        maximum=365 * DAY_MS,
        why="Younger records are not compacted: a reader within this lag sees every record.",
    )
    max_compaction_lag_ms: int | None = setting(
        None,
        minimum=SECOND_MS,
        maximum=365 * DAY_MS,
        optional=True,
        why="Superseded records are removed after this time at the latest, however few they are. Null: no limit.",
    )
    min_cleanable_dirty_percent: int = setting(
        50,
        minimum=1,
        maximum=100,
        why=(
            "Compaction begins when this part of the closed bytes is not compacted yet. Half bounds how "
            "often a record is copied."
        ),
    )
    segment_bytes: int = setting(
        64 * MIB,
        minimum=64 * KIB,
        maximum=GIB,
        why="Larger segments mean fewer objects in the store and a longer scan after a crash; positions fit 32 bits.",
    )
    segment_ms: int = setting(
        HOUR_MS,
        minimum=SECOND_MS,
        maximum=30 * DAY_MS,
        why="A segment is closed at this age, so that slow topics reach the store too.",
    )
    record_bytes_max: int = setting(
        MIB,
        minimum=1,
        maximum=64 * MIB,
        why="The largest key, value and headers of one record. A log of huge records starves its readers' memory.",
    )
    batch_bytes_max: int = setting(
        16 * MIB,
        minimum=KIB,
        maximum=64 * MIB,
        why="The largest batch stored as one: a fetch returns whole batches, so a reader must be able to hold one.",
    )
    batch_decoded_bytes_max: int = setting(
        64 * MIB,
        minimum=KIB,
        maximum=256 * MIB,
        why="What the records of a compressed batch may unpack to: 28 kB of zstd can hold 944 MB.",
    )
    compression: str = setting(
        "none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        why="Applied to batches made from JSON, NDJSON and raw bodies. Stored batches keep what their producer chose.",
    )
    timestamp_type: str = setting(
        "create",
        choices=("create", "append"),
        why="create: the producer's time, or arrival when it gives none. append: always the time of arrival.",
    )
    timestamp_ahead_ms_max: int = setting(
        HOUR_MS,
        minimum=0,
        maximum=100 * 365 * DAY_MS,
        why="Records with a timestamp further in the future get 400: every later search by time would find them.",
    )
    verify: str = setting(
        "full",
        choices=("full", "header"),
        why="full: the node checks the records of stored batches from clients against the batch header. header: it "
        "checks the header only, which saves 0.25 s of CPU per million records.",
    )
    trace_headers: str = setting(
        "sampled",
        choices=("sampled", "none"),
        why="Whether records of requests with a sampled `traceparent` get it as a header, with their `tracestate`: "
        "about 70 bytes a record. Records that have one, and stored batches, stay as they are.",
    )
    durability: str = setting(
        "group",
        choices=("group", "os"),
        why="group: acks=all waits for an fsync shared by all waiting requests. os: for the page cache, as Kafka does.",
    )
    flush_ms: int = setting(
        20,
        minimum=1,
        maximum=HOUR_MS,
        why=(
            "Bytes that no request waits for are fsynced after at most this time: the loss window of acks=0 and acks=1."
        ),
    )
    idempotency_window_ms: int = setting(
        15 * MINUTE_MS,
        minimum=SECOND_MS,
        maximum=DAY_MS,
        why=(
            "How long retries of a request with an `Idempotency-Key` are recognised. Use more than any client's "
            "retry time; keys take memory."
        ),
    )
    idempotency_keys_max: int = setting(
        1_000_000,
        minimum=1,
        maximum=10_000_000,
        why=(
            "Keys that a partition remembers, at about 200 bytes each. Above it the oldest expire early, which "
            "`Penstock-Idempotency-Window` reports."
        ),
    )
    producers_max: int = setting(
        10_000,
        minimum=1,
        maximum=1_000_000,
        why=(
            "The most recently active sequenced producers that a partition remembers, at about 1 kB each. A retry"
            " of a forgotten producer is stored again."
        ),
    )
    producer_expiry_ms: int = setting(
        DAY_MS,
        minimum=MINUTE_MS,
        maximum=365 * DAY_MS,
        why=(
            "A sequenced producer that sends nothing to a partition for this long is forgotten. Use more than any"
            " client's retry time."
        ),
    )
    sources_max: int = setting(
        10_000,
        minimum=1,
        maximum=1_000_000,
        why=(
            "The most recently used sources (`Penstock-Source`) whose positions a partition remembers, at about 500 "
            "bytes each. A retry of a forgotten source is stored again."
        ),
    )
    source_expiry_ms: int = setting(
        7 * DAY_MS,
        minimum=MINUTE_MS,
        maximum=365 * DAY_MS,
        why=(
            "The position of a source that sends nothing to a partition for this long is forgotten. Use more than "
            "any pause of a worker."
        ),
    )
    min_insync_replicas: int = setting(
        2,
        minimum=1,
        maximum=100,
        why=(
            "With fewer in-sync replicas acks=all is rejected, so that acknowledged records survive a lost disk. "
            "Never more than the replicas."
        ),
    )
    unclean_election: bool = setting(
        False,
        why=(
            "Allow a replica without all committed records to lead when all others are gone: the partition is "
            "available again, and those records are lost."
        ),
    )

    deletion_protection: bool = setting(
        False,
        why="While this is on, deleting the topic is rejected. Retention and deletions of records go on.",
    )
    retention_waits_for_jobs: bool = setting(
        False,
        why="Records that a registered ingestion job has not committed stay in the store when they expire. Off, they "
        "are removed, and the job reports how many it lost.",
    )
    retention_wait_max_ms: int = setting(
        7 * DAY_MS,
        minimum=MINUTE_MS,
        maximum=365 * DAY_MS,
        why="With `retention_waits_for_jobs`: expired records stay for jobs for this time at most, and a job that "
        "did not run for this time holds nothing.",
    )
    value_schema: str = setting(
        "",
        maximum=32 * KIB,
        why="A JSON Schema that each value must follow, as text; empty: any bytes are a value. ",
    )
    value_schema_type: str = setting(
        "none",
        choices=("none", "avro", "json", "protobuf"),
        why="Each value must begin with the id of such a schema in the registry (`schema_registry_url`) and follow it.",
    )
    value_schema_subject: str = setting(
        "",
        maximum=1024,
        why="With `value_schema_type`: the subject of these schemas; empty: the topic's name and `-value`; `*`: any.",
    )
    value_schema_version: int = setting(
        1,
        minimum=1,
        maximum=2**31 - 1,
        why=(
            "Counts the changes of `value_schema`. A change that earlier values may not follow must name "
            "the next version."
        ),
    )

    @property
    def is_compacted(self) -> bool:
        """True if the last record of each key stays."""
        return self.cleanup_policy != "delete"

    @property
    def is_expiring(self) -> bool:
        """True if records leave by age and size."""
        return self.cleanup_policy != "compact"


TOPIC_RULES = {rule.name: rule for rule in rules(TopicSettings)}


def topic_settings(overrides: Mapping[str, object]) -> TopicSettings:
    """Returns the effective settings of a topic. Raises InvalidConfig."""
    settings = TopicSettings(**checked(TopicSettings, overrides))  # type: ignore[arg-type]
    if settings.value_schema and settings.value_schema_type != "none":
        hint = "unset one of them"
        text = "value_schema and value_schema_type are both set, and a value cannot follow both"
        raise InvalidConfig(text, hint=hint, setting="value_schema_type")
    if settings.batch_bytes_max > settings.segment_bytes:
        settings = dataclasses.replace(settings, batch_bytes_max=_batch_bytes_for(settings, overrides))
    if settings.record_bytes_max > settings.batch_bytes_max:
        settings = dataclasses.replace(settings, record_bytes_max=_record_bytes_for(settings, overrides))
    if settings.is_compacted and settings.max_compaction_lag_ms is not None:  # only sealed segments are compacted
        segment_ms = min(settings.segment_ms, settings.max_compaction_lag_ms)
        settings = dataclasses.replace(settings, segment_ms=segment_ms)
    return settings


OF_COMPACTION = (
    "delete_retention_ms",
    "min_compaction_lag_ms",
    "max_compaction_lag_ms",
    "min_cleanable_dirty_percent",
)
OF_RETENTION = (
    "retention_ms",
    "retention_bytes",
    "local_retention_ms",
    "local_retention_bytes",
    "retention_waits_for_jobs",
    "retention_wait_max_ms",
)


def check_applicable(given: Mapping[str, object], settings: TopicSettings) -> None:
    """Checks that each setting of a request does something in the topic as it will be.

    None restores a default, and a default may be sent with all others: a description can be sent back. A stored topic
    is not checked: an earlier release accepted settings that do nothing. Raises InvalidConfig.
    """
    defaults = TopicSettings()
    names = {name for name, value in given.items() if value is not None and value != getattr(defaults, name)}
    for group, applies, policy in (
        (OF_COMPACTION, settings.is_compacted, "compact, or compact,delete"),
        (OF_RETENTION, settings.is_expiring, "delete, or compact,delete"),
    ):
        if not applies and (unused := sorted(names & set(group))):
            text = f"{unused[0]} has no effect with cleanup_policy {settings.cleanup_policy}"
            hint = f"leave {unused[0]} out, or set cleanup_policy to {policy}"
            raise InvalidConfig(text, hint=hint, setting=unused[0])
    if "retention_wait_max_ms" in names and not settings.retention_waits_for_jobs:
        text = "retention_wait_max_ms has no effect without retention_waits_for_jobs"
        hint = "set retention_waits_for_jobs too, or leave it out"
        raise InvalidConfig(text, hint=hint, setting="retention_wait_max_ms")


def check_deletable(name: str, overrides: Mapping[str, object]) -> None:
    """Raises TopicProtected if a topic with these settings must not be deleted."""
    if overrides.get("deletion_protection"):
        hint = "set deletion_protection=false, then delete it"
        raise TopicProtected(f"topic {name!r} has deletion_protection on", hint=hint, topic=name)


def _batch_bytes_for(settings: TopicSettings, overrides: Mapping[str, object]) -> int:
    """A small segment lowers the default for batches. Raises InvalidConfig if both are given and contradictory."""
    if "batch_bytes_max" in overrides:
        raise InvalidConfig("batch_bytes_max is larger than segment_bytes", setting="batch_bytes_max")
    return settings.segment_bytes


def _record_bytes_for(settings: TopicSettings, overrides: Mapping[str, object]) -> int:
    if "record_bytes_max" in overrides:
        raise InvalidConfig("record_bytes_max is larger than batch_bytes_max", setting="record_bytes_max")
    return settings.batch_bytes_max
