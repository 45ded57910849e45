"""Completes the names of topics, which it asks the node for, and of topic settings, for `penstock completion`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.node import node_of
from penstock.errors import ClientError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem  # slow to import: loaded when used

_TIMEOUT_MS = 1_000  # for the node: a person waits at the keyboard

# The settings of a topic: TopicSettings of the server (engine/settings.py). A test compares the two.
TOPIC_SETTINGS = (
    "retention_ms",
    "retention_bytes",
    "local_retention_ms",
    "local_retention_bytes",
    "cleanup_policy",
    "delete_retention_ms",
    "min_compaction_lag_ms",
    "max_compaction_lag_ms",
    "min_cleanable_dirty_percent",
    "segment_bytes",
    "segment_ms",
    "record_bytes_max",
    "batch_bytes_max",
    "batch_decoded_bytes_max",
    "compression",
    "timestamp_type",
    "timestamp_ahead_ms_max",
    "verify",
    "trace_headers",
    "durability",
    "flush_ms",
    "idempotency_window_ms",
    "idempotency_keys_max",
    "producers_max",
    "producer_expiry_ms",
    "sources_max",
    "source_expiry_ms",
    "min_insync_replicas",
    "unclean_election",
    "deletion_protection",
    "retention_waits_for_jobs",
    "retention_wait_max_ms",
    "value_schema",
    "value_schema_type",
    "value_schema_subject",
    "value_schema_version",
)


def topics(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Returns the topics that begin with `begun`, as the node lists them; none if no node answers within a second."""
    from click.shell_completion import CompletionItem

    try:
        listed = node_of(ctx).once(_TIMEOUT_MS).list_topics()["topics"]
    except (ClientError, click.ClickException, OSError):
        return []
    return [CompletionItem(topic["topic"]) for topic in listed if topic["topic"].startswith(begun)]


def complete_settings(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Returns the topic settings that begin with `begun`, each as `NAME=`."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(f"{name}=") for name in TOPIC_SETTINGS if name.startswith(begun)]
