"""docs/reference/limits.md against the code: its settings and problems exist, and a test checks each limit.

TESTS has the test of each row, by the test's file below tests/. A key is the first cell of the row, or its beginning.
"""

import re
from typing import NamedTuple

from engine.topic_settings import TOPIC_RULES
from gateway.http.problems import KINDS
from gateway.settings import NODE_RULES
from tests.cells import each_cell
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text()
RULES = {**TOPIC_RULES, **NODE_RULES}

TESTS = {
    "scenarios/produce/test_refused_requests.py": {
        "body, as it arrives": "test_a_body_over_the_limit_of_the_node_is_refused",
        "records": "test_more_records_than_the_node_takes_at_once_are_refused",
        "one record": "test_a_record_over_the_limit_of_its_topic_is_refused",
        "one batch": "test_a_batch_over_the_limit_of_its_topic_is_refused",
        "bytes that wait for the disk": "test_batches_that_no_empty_queue_could_hold_are_refused_for_good",
    },
    "scenarios/http/test_compressed_bodies.py": {
        "body, unpacked": "test_a_bomb_is_stopped_at_the_limit",
        "gzip members of a body": "test_a_body_of_nothing_but_empty_members_is_refused",
    },
    "engine/format/test_decompression.py": {
        "gzip that holds almost no": "test_a_gzip_member_of_empty_blocks_is_refused_after_a_bounded_amount_of_input",
    },
    "scenarios/http/test_early_answers.py": {
        "a rejected body, read and dropped after its": "test_a_body_larger_than_what_is_drained_is_answered_413",
    },
    "scenarios/http/test_limits.py": {
        "time to read a rejected body": "test_bodies_under_way_are_bounded_on_one_connection",
        "headers in bytes": "test_headers_over_http2_are_bounded",
        "one query value": "test_a_query_value_is_bounded",
        "nesting of a JSON value": "test_json_nested_too_deeply_is_refused",
        "digits of a JSON number, with its point and exponent": "test_a_number_of_too_many_digits_is_refused",
        "connections": "test_connections_past_the_bound_wait_until_one_leaves",
        "requests at once on an HTTP/2": "test_streams_of_a_connection_are_limited_and_further_ones_are_retryable",
        "bodies under way, in all": "test_bodies_under_way_are_bounded_in_total_and_reads_continue",
        "bodies under way, of one connection": "test_bodies_under_way_are_bounded_on_one_connection",
        "topics": "test_topics_are_bounded_and_room_comes_back",
        "partitions of one topic": "test_partitions_are_bounded_in_one_topic_and_in_all",
        "partitions in all": "test_partitions_are_bounded_in_one_topic_and_in_all",
    },
    "scenarios/http/test_quotas.py": {
        "time that a request over a quota": "test_beyond_the_delay_it_is_refused_with_the_time_to_wait",
    },
    "scenarios/http/test_slow_bodies.py": {
        "time for a body": "test_a_missing_body_gets_408",
        "pace of a body that takes longer": "test_a_trickle_does_not_extend_the_timeout",
        "time for a request head, HTTP/1.1": "test_an_incomplete_request_head_is_disconnected",
    },
    "gateway/wire/test_http2_limits.py": {
        "headers in number": "test_headers_are_as_many_as_over_http1",
        "headers of the requests under way on an HTTP/2": "test_the_heads_of_requests_under_way_are_bounded_together",
        "HTTP/2 streams that a client resets, or": "test_a_flood_ends_the_connection_and_a_little_of_it_does_not",
        "HTTP/2 pings, settings, priorities, empty": "test_a_flood_ends_the_connection_and_a_little_of_it_does_not",
        "an HTTP/2 header block": "test_a_header_block_without_end_ends_the_connection",
    },
    "gateway/access/test_attempts.py": {
        "wrong credentials of one address": "test_an_address_has_its_burst_and_then_its_rate",
        "addresses whose wrong credentials": "test_the_number_of_addresses_is_bounded_and_the_last_failures_stay",
    },
    "gateway/audit/test_audit_file.py": {
        "one audit file": "test_a_full_file_gives_way_and_the_oldest_go",
        "audit files": "test_a_full_file_gives_way_and_the_oldest_go",
    },
    "gateway/audit/test_repeats.py": {
        "kinds of denials": "test_ten_thousand_callers_take_bounded_memory_and_all_are_counted",
    },
    "scenarios/produce/test_produce_many.py": {
        "topics and partitions of a produce to many": "test_records_and_partitions_of_a_request_are_bounded",
    },
    "scenarios/fetch/test_fetch_many.py": {
        "partitions of a fetch over many": "test_more_partitions_than_allowed_are_refused",
        "partitions that long polls wait on": "test_partitions_that_are_waited_on_are_bounded_too",
    },
    "scenarios/groups/test_membership.py": {
        "members of a consumer group": "test_a_group_has_a_limit_of_members",
        "consumer groups of one partition of `__groups`": "test_a_coordinator_has_a_limit_of_groups",
    },
    "scenarios/push/test_push.py": {
        "subscriptions of one partition of `__groups`": "test_a_coordinator_has_a_limit_of_subscriptions",
    },
    "scenarios/fetch/test_fetch_bounds.py": {
        "answer of a fetch": "test_a_reader_never_gets_more_than_the_node_allows",
    },
    "scenarios/produce/test_idempotency_keys.py": {
        "idempotency keys that a partition remembers": "test_keys_beyond_the_limit_are_dropped_and_the_window_shrinks",
    },
    "engine/producers/test_sequences.py": {
        "sequenced producers that a partition": "test_of_too_many_producers_the_one_used_longest_ago_is_forgotten",
    },
    "engine/producers/test_sources.py": {
        "sources whose positions a partition remembers": "test_the_source_used_longest_ago_is_forgotten",
    },
    "scenarios/produce/test_verify.py": {
        "one batch from a client, unpacked": "test_the_bound_is_a_setting_of_the_topic",
        "one batch that the node compresses, before": "test_json_is_not_compressed_into_what_could_not_be_read_again",
    },
    "engine/runtime/test_pooled_disk.py": {
        "files that the log keeps open, in each process": "test_many_handles_need_few_open_files",
    },
    "gateway/wire/test_handshakes.py": {
        "TLS handshakes at once": "test_the_next_handshake_starts_when_one_of_four_has_ended",
    },
    "gateway/wire/test_connection.py": {
        "what is parsed of a connection before": "test_a_client_of_small_pieces_leaves_turns_of_the_loop_to_others",
    },
    "engine/runtime/test_loop_turns.py": {
        "work that begins in one turn of the event": "test_a_client_with_much_work_delays_another_by_a_few_pieces",
    },
    "gateway/server/test_turns.py": {
        "bytes that are read for a": "test_for_a_client_without_a_window_a_piece_is_read_and_not_what_it_asks_for",
    },
    "scenarios/fetch/test_long_polls.py": {
        "open long polls": "test_long_polls_beyond_the_limit_get_retry_after",
    },
    "gateway/routing/test_topic_finder.py": {
        "unknown topic names that a node of a cluster asks the": "test_names_that_are_all_different_are_bounded_too",
    },
    "gateway/connections/test_send_buffers.py": {
        "bytes sent to event streams that clients have not read,": "test_when_all_have_too_much_each_may_have_little",
    },
    "scenarios/fetch/test_event_streams.py": {
        "bytes read for event streams and": "test_streams_that_nobody_reads_hold_a_bounded_amount_of_large_batches",
        "time in which the client of an event": "test_a_client_that_never_reads_is_cut_and_costs_a_bounded_amount",
    },
    "e2e/clients/test_clients_that_never_read.py": {
        "bytes of large answers that clients have": "test_an_answer_for_which_there_is_no_room_is_refused_with_words",
        "the same, of one connection": "test_a_connection_that_reads_too_little_gets_429",
        "time in which the client of a large answer": "test_who_never_reads_takes_bounded_memory_and_is_hung_up_on",
    },
    "e2e/clients/test_memory_of_unread_answers.py": {
        "memory, all copies included, of": "test_answers_on_one_connection_hold_bounded_memory_which_comes_back",
    },
    "gateway/wire/test_slow_clients.py": {
        "memory of an answer in JSON or NDJSON with more than 256": "test_pieces_wait_for_a_client_that_does_not_read",
    },
    "gateway/wire/test_idle.py": {
        "pace at which a client reads a large answer": "test_a_trickle_is_cut_off_whatever_is_pending",
    },
    "gateway/connections/test_read_budget.py": {
        "bytes read and rendered for fetches at once, all copies": "test_clients_are_served_in_rotation",
    },
    "scenarios/http/test_idle_connections.py": {
        "time from opening a connection to its first": "test_a_client_without_a_complete_request_is_disconnected",
        "time of a connection without a": "test_an_http2_connection_is_closed_when_it_is_idle_though_it_answers_pings",
    },
    "e2e/lifecycle/test_tls.py": {
        "time of a TLS handshake, which counts as a connection": "test_a_handshake_that_does_not_end_is_cut_off",
    },
    "gateway/metrics/test_metrics.py": {
        "topics listed one by one in /metrics": "test_traffic_and_size_are_counted_by_topic_and_the_rest_together",
    },
    "gateway/server/test_spool.py": {
        "closed segments that wait for": "test_produce_goes_on_until_the_spool_is_full_and_after_the_store_is_back",
    },
    "engine/producers/test_key_window.py": {
        "idempotency keys of all partitions": "test_partitions_together_hold_so_many_and_the_oldest_of_all_go_first",
    },
}


class Row(NamedTuple):
    what: str
    setting: str
    above: str


CELLS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
ROWS = [Row(*cells) for cells in CELLS if len(cells) == 3 and cells[1].startswith(("`", "none: "))]
KEYS = [key for tests in TESTS.values() for key in tests]


def row_of(key: str) -> Row:
    """Return the row whose first cell is this text, else the only one whose first cell begins with it."""
    exact = [row for row in ROWS if row.what == key]
    (row,) = exact or [row for row in ROWS if row.what.startswith(key)]
    return row


@each_cell("row", ROWS, ids=lambda row: row.what)
def test_a_row_names_a_setting_and_a_problem(row):
    if not row.setting.startswith("none: "):
        assert row.setting.strip("`") in RULES
    for status, code in re.findall(r"(\d{3}) `(\w+)`", row.above):
        assert KINDS[code].status == int(status)


def test_every_row_has_a_test():
    assert sorted(row_of(key) for key in KEYS) == sorted(ROWS)


@each_cell("path", TESTS)
def test_the_tests_of_limits_exist(path):
    code = (ROOT / "tests" / path).read_text()
    assert set(TESTS[path].values()) - set(re.findall(r"^(?:async )?def (test_\w+)\(", code, re.MULTILINE)) == set()


def test_every_bound_of_a_node_is_in_the_table():
    """A setting that ends in _max is one; those named here limit the node's own work, not clients."""
    own = {"tier_cache_bytes_max", "segment_bytes_max", "timestamp_ahead_ms_max", "replica_lag_time_max_ms"}
    own |= {"process_heartbeat_timeout_ms", "replica_cache_bytes_max"}
    documented = {row.setting.strip("`") for row in ROWS}
    assert {name for name in RULES if name.endswith("_max")} - own - documented == set()
