"""The settings that bound what clients use: bytes, time and numbers of requests, answers and connections.

gateway/settings.py joins them with the others. docs/reference/limits.md says what happens above each.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.settings import DAY_MS, GIB, KIB, MIB, MINUTE_MS, SECOND_MS, setting
from gateway.http.json_limits import DEFAULT_LIMITS, DEPTH_CEILING


@dataclass(frozen=True)
class ClientLimits:
    """Bounds of requests, answers and connections."""

    request_body_bytes_max: int = setting(
        8 * MIB, minimum=KIB, maximum=64 * MIB, why="The largest request body, as sent and after decompression."
    )
    lingering_close_bytes_max: int = setting(
        64 * MIB,
        minimum=0,
        maximum=GIB,
        why=(
            "How much of a rejected body is read and dropped, for clients that read the answer only after "
            "sending everything."
        ),
    )
    lingering_close_ms_max: int = setting(
        10 * SECOND_MS,
        minimum=0,
        maximum=MINUTE_MS,
        why="How long a rejected body is read; slower clients may get a reset.",
    )
    body_read_timeout_ms: int = setting(
        30 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why=("A body must arrive within this time plus the time that body_bytes_per_second_min allows. Otherwise 408."),
    )
    body_bytes_per_second_min: int = setting(
        16 * KIB,
        minimum=1,
        maximum=GIB,
        why=("Slower senders of bodies and slower readers of large answers are disconnected: they hold memory."),
    )
    throttle_ms_max: int = setting(
        SECOND_MS,
        minimum=0,
        maximum=10 * SECOND_MS,
        why=(
            "A request over a quota is delayed up to this time, so that a short burst gets no error; beyond it the "
            "answer is 429."
        ),
    )
    header_read_timeout_ms: int = setting(
        30 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why=(
            "A connection that sends no complete request head for this long is closed; over HTTP/1.1 an idle "
            "connection too."
        ),
    )
    connections_max_idle_ms: int = setting(
        5 * MINUTE_MS,
        minimum=100,
        maximum=DAY_MS,
        why=(
            "A connection without a request in progress for this long is closed, over HTTP/2 too. Long polls, event "
            "streams and slow bodies are in progress."
        ),
    )
    records_per_request_max: int = setting(
        200_000, minimum=1, maximum=10_000_000, why="Bounds the time and memory that decoding one request may take."
    )
    json_depth_max: int = setting(
        DEFAULT_LIMITS.depth_max,
        minimum=8,
        maximum=DEPTH_CEILING,
        why="Levels of nesting of a JSON value that is produced; serde_json reads 128.",
    )
    json_number_digits_max: int = setting(
        DEFAULT_LIMITS.digits_max,
        minimum=64,
        maximum=MIB,
        why="Characters of a JSON number that is produced; Jackson reads 1,000.",
    )
    query_value_chars_max: int = setting(
        4096, minimum=256, maximum=4096, why="Characters of one query value; the longest is a key. Beyond: 400."
    )
    topics_max: int = setting(
        10_000, minimum=1, maximum=1_000_000, why="Topics of the node: each is opened at the start. Beyond: 409."
    )
    topic_partitions_max: int = setting(
        10_000,
        minimum=1,
        maximum=10_000,
        why="Partitions of one topic, so that one request cannot use up partitions_max. Beyond: 400.",
    )
    partitions_max: int = setting(
        20_000, minimum=1, maximum=1_000_000, why="Partitions of the node: each takes a few kB of memory. Beyond: 409."
    )
    request_bytes_in_flight_max: int = setting(
        256 * MIB,
        minimum=MIB,
        maximum=64 * GIB,
        why="Bodies of requests that are not answered yet, in each process. Beyond: 503, and reads go on.",
    )
    connection_bytes_in_flight_max: int = setting(
        64 * MIB,
        minimum=MIB,
        maximum=64 * GIB,
        why="The same of one connection, so that no single client takes all. Beyond: 429.",
    )
    produce_partitions_max: int = setting(
        1000, minimum=1, maximum=100_000, why="Partitions that one produce to many topics may be for. Beyond: 413."
    )
    fetch_bytes_max: int = setting(
        32 * MIB,
        minimum=KIB,
        maximum=256 * MIB,
        why="The largest max_bytes of a fetch. An answer has at least one batch.",
    )
    fetch_bytes_default: int = setting(
        MIB,
        minimum=KIB,
        maximum=256 * MIB,
        why="max_bytes of a fetch that does not give it: a good size over any link.",
    )
    compress_bytes_min: int = setting(
        16 * KIB,
        minimum=0,
        maximum=GIB,
        why=(
            "Larger JSON and NDJSON answers are compressed for clients that ask: a megabyte takes 3 ms "
            "(zstd) or 6 ms (gzip)."
        ),
    )
    cache_max_age_ms: int = setting(
        60 * SECOND_MS,
        minimum=0,
        maximum=365 * DAY_MS,
        why=(
            "How long caches may return a fetch from closed segments without asking. They keep deleted records "
            "for this long too; 0: they always ask."
        ),
    )
    long_polls_max: int = setting(
        10_000, minimum=1, maximum=1_000_000, why="Open long polls at once; each holds about 20 kB. Beyond: 429."
    )
    fetch_partitions_max: int = setting(
        1000, minimum=1, maximum=100_000, why="Partitions that one fetch over many may name. Beyond: 413."
    )
    long_poll_partitions_max: int = setting(
        200_000,
        minimum=1,
        maximum=100_000_000,
        why="Partitions that open fetches over many wait on, together; each costs about 0.5 kB. Beyond: 429.",
    )
    groups_max: int = setting(
        10_000,
        minimum=1,
        maximum=1_000_000,
        why="Consumer groups of one partition of __groups: each takes a few kB of memory. Beyond: 409.",
    )
    group_members_max: int = setting(
        1000, minimum=1, maximum=100_000, why="Members of one consumer group; each change visits all. Beyond: 409."
    )
    subscriptions_max: int = setting(
        100,
        minimum=1,
        maximum=10_000,
        why="Push subscriptions of one partition of __groups: each holds up to 1 MiB for each partition that it reads. "
        "Beyond: 409.",
    )
    stream_heartbeat_ms: int = setting(
        15 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why="An event stream without events sends a comment this often: proxies cut what is silent for 30 s to 60 s.",
    )
    stream_stall_ms: int = setting(
        30 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why="An event stream or large answer is closed if its client reads nothing for this long.",
    )
    stream_send_buffer_bytes_max: int = setting(
        64 * MIB,
        minimum=MIB,
        maximum=16 * GIB,
        why="Sent to event streams and not yet read by their clients, together; beyond it each may have 64 KiB.",
    )
    send_buffer_bytes_max: int = setting(
        256 * MIB,
        minimum=MIB,
        maximum=64 * GIB,
        why="Answers of 64 KiB and more that clients have not read, in each process. Beyond: 503, for those.",
    )
    connection_send_buffer_bytes_max: int = setting(
        128 * MIB,
        minimum=MIB,
        maximum=64 * GIB,
        why="The same of one connection; one answer always fits. Beyond: 429.",
    )
    produce_timeout_ms: int = setting(
        30 * SECOND_MS,
        minimum=1,
        maximum=10 * MINUTE_MS,
        why="How long a produce without timeout_ms waits for its acks; then 504.",
    )
    append_queue_bytes_max: int = setting(
        256 * MIB,
        minimum=MIB,
        maximum=16 * GIB,
        why="Bytes waiting for the disk; beyond it produces get 503. At least request_body_bytes_max.",
    )
    log_files_max: int = setting(
        4096,
        minimum=16,
        maximum=65_536,
        why="Files that the log keeps open in each process; the least recently used is closed for the next. At most "
        "a quarter of the limit of open files.",
    )
    connections_max: int = setting(
        16_384,
        minimum=16,
        maximum=1_000_000,
        why="Open connections; half-open ones cost about 20 kB each. Fewer where the limit of open files leaves fewer.",
    )
    http2_streams_max: int = setting(
        1024, minimum=1, maximum=100_000, why="Requests at once on one HTTP/2 connection; long polls count."
    )
    http2_ping_ms: int = setting(
        30 * SECOND_MS,
        minimum=1000,
        maximum=60 * MINUTE_MS,
        why="The node sends a PING to HTTP/2 clients this often. It disconnects a client without an answer for 20 s.",
    )
    header_bytes_max: int = setting(
        64 * KIB, minimum=8 * KIB, maximum=16 * MIB, why="All headers of a request together."
    )
    idempotency_keys_total_max: int = setting(
        2_000_000,
        minimum=1,
        maximum=1_000_000_000,
        why="Idempotency keys that all partitions remember together, at about 200 bytes each. Beyond that the oldest "
        "go before their time.",
    )
