"""Each metric is in an alert, in a panel or on the monitoring page, or is listed here with the reason why not."""

from __future__ import annotations

import re

from tests.docs.console import PAGES
from tests.operations.dashboard import queries
from tests.operations.test_alerts import METRICS, RULES

NAME = re.compile(r"\b(?:penstock|process)_[a-z_]+")
UNWATCHED = {
    "a part of a total that is watched": """
        penstock_fetch_bytes_total penstock_log_bytes penstock_produce_bytes_total penstock_produce_records_total
        penstock_push_waiting_requests penstock_subscription_dead_letters_total
        penstock_subscription_failures_total penstock_subscription_waiting_requests penstock_topic_batches_in_total
        penstock_long_poll_partitions penstock_damaged_segments_total""",
    "a size without a good or bad value": """
        penstock_access_generation penstock_data_directory_size_bytes penstock_event_streams penstock_forwarding_bytes
        penstock_idempotency_keys penstock_producers penstock_quota_owners penstock_replica_cache_bytes
        penstock_request_bytes_in_flight penstock_segments penstock_sources penstock_subscriptions
        penstock_tier_cache_bytes penstock_topics process_virtual_memory_bytes""",
    "work of the background or of clients that goes well": """
        penstock_audit_events_total penstock_compaction_freed_bytes_total penstock_compaction_removed_records_total
        penstock_forwarded_requests_total penstock_group_commits_total penstock_idle_connections_closed_total
        penstock_moved_connections_total penstock_repaired_segments_total penstock_scrubbed_bytes_total
        penstock_share_records_acknowledged_total penstock_share_records_acquired_total
        penstock_tier_cache_evictions_total penstock_tier_cache_hits_total penstock_tier_cache_misses_total
        penstock_tier_cache_read_ahead_total penstock_tier_merged_bytes_total penstock_tier_merged_objects_total
        penstock_tier_merges_total""",
    "the last start, whose log says more": """
        penstock_last_shutdown_clean penstock_last_shutdown_killed penstock_last_shutdown_power_loss
        penstock_recovered_bytes penstock_recovery_scanned_bytes penstock_recovery_seconds
        penstock_recovery_truncated_bytes""",
    "a fault of a client, to look at when that client complains": """
        penstock_failover_retries_total penstock_failover_waiting_batches penstock_group_delayed_partitions
        penstock_idempotency_duplicates_total penstock_idempotency_keys_reused_total
        penstock_limited_credentials_total penstock_older_duplicates_total penstock_refused_credential_addresses
        penstock_refused_credentials_total penstock_rejected_responses_total penstock_source_repeats_total
        penstock_stalled_connections_closed_total""",
    "a step of an upgrade, whose command asks for it": """
        penstock_feature_level""",
    "the log names the cause": """
        penstock_oidc_issuers_without_keys penstock_oidc_keys_age_seconds penstock_spans_dropped_total
        penstock_tier_cache_refused_total penstock_usage_unreadable_files""",
}


def test_each_metric_is_watched_or_has_a_reason_why_not() -> None:
    page = (PAGES / "operate" / "monitoring.md").read_text()
    watched = {
        name.removesuffix("_bucket")
        for text in (RULES.read_text(), page, *(query for _, query in queries()))
        for name in NAME.findall(text)
    }
    metrics = set(re.findall(r"^\| `((?:penstock|process)_[a-z_]+)`", METRICS, re.MULTILINE))
    listed = " ".join(UNWATCHED.values()).split()
    assert len(listed) == len(set(listed))
    assert metrics - watched == set(listed)
