"""The settings of a node: names, defaults, bounds and reasons. node/setup/setting_sources.py reads their values.

Numbers and words only; components are made in node/processes/server.py. docs/reference/settings.md is made from this
file and engine/settings.py (`make docs-write`), and a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.directory.topics import REPLICATION_FACTOR_MAX
from engine.settings import DAY_MS, GIB, KIB, MIB, MINUTE_MS, SECOND_MS, Rule, rules, setting
from gateway.derived_settings import DerivedSettings
from gateway.http.json_limits import DEFAULT_LIMITS, DEPTH_CEILING


@dataclass(frozen=True, slots=True)
class NodeSettings(DerivedSettings):
    """The settings of one node."""

    host: str = setting(
        "127.0.0.1",
        why=(
            "An IPv4 or IPv6 address, or a name, which listens on all its addresses; `::` includes IPv4. Loopback"
            " is safe without tokens and TLS; other addresses need a tokens_file or --insecure."
        ),
    )
    port: int = setting(8080, minimum=0, maximum=65535, why="HTTP/1.1 and HTTP/2 on one port. 0 takes a free one.")
    data_dir: str = setting("penstock-data", why="The directory of the log; one node at a time may use it.")
    data_dirs: tuple[str, ...] = setting(
        (),
        why=(
            "Several directories, in place of data_dir. The first has everything that exists once, the others "
            "hold partitions; a failed one takes only its own partitions offline. In the environment separated by"
            " commas; --data-dir is repeated."
        ),
    )
    store: str = setting(
        "",
        why=(
            "The store for sealed segments: file:///path or s3://bucket/prefix. Empty: file:// inside the data "
            "directory."
        ),
    )
    node_id: int = setting(1, minimum=1, maximum=2**31 - 1, why="This node's number in its cluster.")
    shards: int = setting(
        0,
        minimum=0,
        maximum=64,
        why="Processes that own the partitions, one writer each, under a supervisor. 0: everything in one process.",
    )
    direct_port_base: int = setting(
        0,
        minimum=0,
        maximum=65_000,
        why="Shard i also listens on this port plus i, so that clients can avoid forwarding. 0: free ports.",
    )
    cluster_id: str = setting("", why="Rejects a data directory of another cluster. Empty: accepts any.")
    rack: str = setting(
        "", why="The rack of the node: replicas are spread over racks, and consumers can read from a replica in theirs."
    )
    coordination: str = setting(
        "",
        why=(
            "zookeeper://host:2181,host:2181/penstock: nodes with the same value are one cluster. embedded: a "
            "cluster of this node alone, kept in its data directory. Empty: standalone. IPv6 addresses have "
            "brackets."
        ),
    )
    internal_port_base: int = setting(
        0,
        minimum=0,
        maximum=65_000,
        why="Shard i listens for other nodes on this port plus i. 0: free ports. Set it if there is a firewall.",
    )
    session_timeout_ms: int = setting(
        6 * SECOND_MS,
        minimum=400,
        maximum=MINUTE_MS,
        why=(
            "ZooKeeper declares a node dead after this long without a heartbeat. Lower values risk false "
            "failovers; ZooKeeper limits it to 2 to 20 of its ticks."
        ),
    )
    replica_lag_ms_max: int = setting(
        10 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why=(
            "A follower that has not caught up for this long leaves the in-sync set. Use more than the longest "
            "pause of its disk."
        ),
    )
    replica_fetch_min_bytes: int = setting(
        1,
        minimum=1,
        maximum=8 * MIB,
        why="A leader answers a follower once this many bytes are available; 1 has the least delay.",
    )
    replica_fetch_max_bytes: int = setting(
        8 * MIB,
        minimum=KIB,
        maximum=256 * MIB,
        why=(
            "The most bytes in one answer to a follower, of all partitions together; one batch is always sent. A "
            "follower that catches up has up to three answers in memory."
        ),
    )
    replica_fetch_wait_ms: int = setting(
        500,
        minimum=1,
        maximum=MINUTE_MS,
        why=("A leader answers a follower without new records after this long. At most half of replica_lag_ms_max."),
    )
    replica_catchup_bytes_per_second: int = setting(
        0,
        minimum=0,
        maximum=64 * GIB,
        why=(
            "The rate at which replicas that are behind or new may fetch from one process, so that they do not "
            "slow others. 0: unlimited."
        ),
    )
    default_replication_factor: int = setting(
        1,
        minimum=1,
        maximum=REPLICATION_FACTOR_MAX,
        why="Replicas of a topic that is created without a number. 3 survive the loss of any node.",
    )
    leader_wait_ms: int = setting(
        10 * SECOND_MS,
        minimum=0,
        maximum=10 * MINUTE_MS,
        why=(
            "How long a request that appends nothing waits for a leader before 503; a produce waits for its "
            "timeout_ms. Longer than an election, so that a failover is a pause."
        ),
    )
    leader_rebalance_check_ms: int = setting(
        MINUTE_MS,
        minimum=100,
        maximum=DAY_MS,
        why="How often leaderships return to their preferred nodes.",
    )
    leader_imbalance_percent: int = setting(
        10,
        minimum=0,
        maximum=100,
        why="Leaderships return once a node lacks more than this share of the partitions that prefer it as leader.",
    )
    advertised_url: str = setting("", why="The address that clients use, behind a proxy or NAT. Empty: host and port.")
    insecure: bool = setting(False, why="Allow listening on non-loopback addresses without authentication.")
    tokens_file: str = setting(
        "", why=("TOML file with tokens and their rights (docs/secure.md). Empty: authentication is disabled.")
    )
    files_check_ms: int = setting(
        2 * SECOND_MS,
        minimum=100,
        maximum=DAY_MS,
        why=("How often the tokens file and the certificate are checked for changes, in addition to SIGHUP."),
    )
    cors_origins: str = setting(
        "",
        why=(
            "Origins of web pages that may call this node: `https://app.example.org,http://localhost:3000`, or "
            "`*` for all. Other origins are rejected, so that a page cannot write to a node behind its reader's "
            "firewall."
        ),
    )
    allowed_hosts: str = setting(
        "",
        why=(
            "Names by which clients may call a node without tokens, besides IP addresses, localhost and the names"
            " in host and advertised_url: `penstock,.example.org`, where a leading dot means the name and all "
            "names below it, or `*` for all. Other names get 421, which prevents DNS rebinding."
        ),
    )
    tls_cert: str = setting("", why="PEM certificate chain; with tls_key it turns on TLS and ALPN h2.")
    tls_key: str = setting("", why="PEM private key of tls_cert.")
    default_partitions: int = setting(
        1,
        minimum=1,
        maximum=10_000,
        why="Partitions of a topic that is created without a number; one keeps total order.",
    )
    auto_create_topics: bool = setting(False, why="Create unknown topics on produce. Off: a typing error is a 404.")
    request_body_bytes_max: int = setting(
        8 * MIB, minimum=KIB, maximum=64 * MIB, why="The largest request body, as sent and after decompression."
    )
    drain_bytes_max: int = setting(
        64 * MIB,
        minimum=0,
        maximum=GIB,
        why=(
            "How much of a rejected body is read and dropped after its answer, for clients that read the answer "
            "only after sending everything; beyond it they get a reset."
        ),
    )
    drain_ms_max: int = setting(
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
        why=(
            "Slower senders of bodies and slower readers of large answers are disconnected, because they hold "
            "memory; faster ones may take as long as they need."
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
    idle_connection_ms: int = setting(
        5 * MINUTE_MS,
        minimum=100,
        maximum=DAY_MS,
        why=(
            "A connection without a request in progress for this long is closed, over HTTP/2 too: it counts "
            "against connections_max. Long polls, event streams and slow bodies are in progress."
        ),
    )
    records_per_request_max: int = setting(
        200_000, minimum=1, maximum=10_000_000, why="Bounds the time and memory that decoding one request may take."
    )
    json_depth_max: int = setting(
        DEFAULT_LIMITS.depth_max,
        minimum=8,
        maximum=DEPTH_CEILING,
        why="Levels of nesting of a JSON value that is produced. serde_json reads 128 levels, .NET 64, Jackson 1,000.",
    )
    json_number_digits_max: int = setting(
        DEFAULT_LIMITS.digits_max,
        minimum=64,
        maximum=MIB,
        why="Digits in a row of a JSON number that is produced. Jackson reads numbers of 1,000 characters, Python "
        "integers of 4,300 digits.",
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
        why="JSON and NDJSON answers of fetches from here on are compressed for clients that ask: a megabyte takes "
        "3 ms (zstd) or 6 ms (gzip) of a processor, and shrinks to a fifth. Smaller ones fit a few packets anyway.",
    )
    cache_max_age_ms: int = setting(
        60 * SECOND_MS,
        minimum=0,
        maximum=365 * DAY_MS,
        why=(
            "How long caches may return a fetch from sealed segments without asking. They keep deleted records "
            "for this long too; 0: they always ask."
        ),
    )
    long_polls_max: int = setting(
        10_000, minimum=1, maximum=1_000_000, why="Open long polls at once; each holds about 20 kB. Beyond: 429."
    )
    fetch_partitions_max: int = setting(
        1000, minimum=1, maximum=100_000, why="Partitions that one fetch over many may name. Beyond: 413."
    )
    waiting_partitions_max: int = setting(
        200_000,
        minimum=1,
        maximum=100_000_000,
        why="Partitions that open fetches over many wait on, together; each costs about 0.5 kB. Beyond: 429.",
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
    stream_unread_bytes_max: int = setting(
        64 * MIB,
        minimum=MIB,
        maximum=16 * GIB,
        why="Sent to event streams and not yet read by their clients, together; beyond it each may have 64 KiB. "
        "As much again may be read for them and not yet sent.",
    )
    unread_answer_bytes_max: int = setting(
        256 * MIB,
        minimum=MIB,
        maximum=64 * GIB,
        why="Answers of 64 KiB and more that are given out and not yet taken by their clients, in each process. "
        "Beyond, but for one answer: 503, for those.",
    )
    connection_unread_bytes_max: int = setting(
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
        "a quarter of the limit of open files, which a node raises to the hard limit (ulimit -Hn) at its start.",
    )
    connections_max: int = setting(
        16_384,
        minimum=16,
        maximum=1_000_000,
        why="Open connections; half-open ones cost about 20 kB each. Fewer where the limit of open files leaves fewer "
        "beside the log: about half of it.",
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
    shutdown_deadline_ms: int = setting(
        10 * SECOND_MS, minimum=0, maximum=10 * MINUTE_MS, why="How long SIGTERM waits for requests under way."
    )
    process_silent_ms_max: int = setting(
        15 * SECOND_MS,
        minimum=1000,
        maximum=10 * MINUTE_MS,
        why="With several processes in a node, one that sends no heartbeat for this long is killed and restarted.",
    )
    tier_check_ms: int = setting(
        5 * SECOND_MS,
        minimum=10,
        maximum=DAY_MS,
        why="How often the shipper looks for sealed segments, besides at a roll; up to 12 times less often when idle.",
    )
    tier_cache_bytes_max: int = setting(
        GIB, minimum=64 * MIB, maximum=2**50, why="Disk space for copies of tiered segments that clients read."
    )
    scrub_bytes_per_second: int = setting(
        8 * MIB,
        minimum=0,
        maximum=4 * GIB,
        why="How fast the scrubber reads sealed segments to find damage: 1 TB takes 36 hours. 0: never.",
    )
    scrub_interval_ms: int = setting(
        DAY_MS,
        minimum=100,
        maximum=365 * DAY_MS,
        why="The scrubber starts a new pass over all sealed segments at most this often.",
    )
    log_level: str = setting(
        "warning",
        choices=("debug", "info", "warning", "error"),
        why="The default logs only what an operator must act on.",
    )
    idempotency_keys_total_max: int = setting(
        2_000_000,
        minimum=1,
        maximum=1_000_000_000,
        why="Idempotency keys that all partitions remember together, shards in equal parts, at about 200 bytes each: "
        "400 MB, or 2,200 keyed requests a second for 15 minutes. Beyond that the oldest go before their time.",
    )
    metrics_topics_max: int = setting(
        100,
        minimum=0,
        maximum=100_000,
        why="The number of topics that /metrics lists one by one; the rest are combined as `other`.",
    )
    request_log: bool = setting(
        False, why="A line for each request in the log; it costs about 25 µs of processor time each."
    )
    slow_request_ms: int = setting(
        0,
        minimum=0,
        maximum=DAY_MS,
        why="Requests that take this long get a line; waits for data do not count. 0: none.",
    )


NODE_RULES: dict[str, Rule] = {rule.name: rule for rule in rules(NodeSettings)}
