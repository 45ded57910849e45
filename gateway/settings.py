"""The settings of a node: names, defaults, bounds and reasons. What a start gives is node/setup/setting_sources.py.

Numbers and words only; components are made in node/processes/server.py. docs/settings.md is generated from this file
and engine/settings.py (`make docs-write`), and a test holds them together.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.directory.topics import REPLICATION_FACTOR_MAX
from engine.settings import DAY_MS, GIB, KIB, MIB, MINUTE_MS, SECOND_MS, Rule, rules, setting
from gateway.derived_settings import DerivedSettings
from gateway.http.json_limits import DEFAULT_LIMITS, DEPTH_CEILING


@dataclass(frozen=True, slots=True)
class NodeSettings(DerivedSettings):
    """How one node runs."""

    host: str = setting(
        "127.0.0.1",
        why="An IPv4 or IPv6 address, or a name, which stands for all its addresses; `::` takes IPv4 too. Loopback: "
        "safe without tokens and TLS. Others need a tokens_file, or --insecure.",
    )
    port: int = setting(8080, minimum=0, maximum=65535, why="HTTP/1.1 and HTTP/2 on one port. 0 takes a free one.")
    data_dir: str = setting("penstock-data", why="Where the log lives; one node at a time may use it.")
    data_dirs: tuple[str, ...] = setting(
        (),
        why="Several directories, in place of data_dir: the first has what exists once, the others partitions. In the "
        "environment with commas between; --data-dir is given once for each. One that fails takes only its own along.",
    )
    store: str = setting(
        "",
        why="Where sealed segments go: file:///path or s3://bucket/prefix. Empty: file:// inside the data directory.",
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
        why="Shard i listens on this port plus i too, for clients that want no forwarding. 0 takes free ports.",
    )
    cluster_id: str = setting("", why="Refuse a data directory of another cluster. Empty: whatever the directory says.")
    rack: str = setting("", why="Where the node stands: replicas are spread over racks, and readers may name theirs.")
    coordination: str = setting(
        "",
        why="zookeeper://host:2181,host:2181/penstock: the nodes that name the same are one cluster. embedded: a "
        "cluster of this node, kept in its data directory. Empty: alone. An IPv6 address stands in brackets.",
    )
    internal_port_base: int = setting(
        0,
        minimum=0,
        maximum=65_000,
        why="Shard i takes other nodes of the cluster on this port plus i. 0: free ports; a firewall wants fixed ones.",
    )
    session_timeout_ms: int = setting(
        6 * SECOND_MS,
        minimum=400,
        maximum=MINUTE_MS,
        why="A node of which ZooKeeper hears nothing for so long is dead, and others lead. Shorter takes a pause for a "
        "death; ZooKeeper's own bounds are 2 and 20 of its ticks.",
    )
    replica_lag_ms_max: int = setting(
        10 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why="A follower that has not caught up for so long is no longer waited for. Longer than a pause of its disk.",
    )
    replica_fetch_min_bytes: int = setting(
        1, minimum=1, maximum=8 * MIB, why="A follower is answered once so much is there: 1 is the least delay."
    )
    replica_fetch_max_bytes: int = setting(
        8 * MIB,
        minimum=KIB,
        maximum=256 * MIB,
        why="What one answer to a follower holds, of all partitions together; one batch is given in any case. A "
        "follower that catches up has up to three of them in memory.",
    )
    replica_fetch_wait_ms: int = setting(
        500,
        minimum=1,
        maximum=MINUTE_MS,
        why="A follower with nothing to get is answered after so long. At most a half of replica_lag_ms_max.",
    )
    replica_catchup_bytes_per_second: int = setting(
        0,
        minimum=0,
        maximum=64 * GIB,
        why="What replicas that are behind or new may fetch from one process, so that others do not suffer. 0: all.",
    )
    default_replication_factor: int = setting(
        1,
        minimum=1,
        maximum=REPLICATION_FACTOR_MAX,
        why="Replicas of a topic made without saying how many. 3 survive any one node.",
    )
    leader_wait_ms: int = setting(
        10 * SECOND_MS,
        minimum=0,
        maximum=10 * MINUTE_MS,
        why="How long a request that appends nothing looks for a leader before it is answered 503; a produce does for "
        "its timeout_ms. Longer than an election, so that a failover is a pause.",
    )
    leader_rebalance_check_ms: int = setting(
        MINUTE_MS,
        minimum=100,
        maximum=DAY_MS,
        why="How often leaderships that wandered go back to the nodes that they were meant for.",
    )
    leader_imbalance_percent: int = setting(
        10,
        minimum=0,
        maximum=100,
        why="They stay while no node lacks more than this share of the partitions that it was meant to lead.",
    )
    advertised_url: str = setting("", why="What clients are told to call, behind a proxy or NAT. Empty: host and port.")
    insecure: bool = setting(False, why="Allow an address other than loopback though there are no tokens.")
    tokens_file: str = setting("", why="TOML with who may do what (docs/access.md). Empty: whoever comes may do all.")
    files_check_ms: int = setting(
        2 * SECOND_MS,
        minimum=100,
        maximum=DAY_MS,
        why="How often the tokens file and the certificate are looked at for a change, besides at each SIGHUP.",
    )
    cors_origins: str = setting(
        "",
        why="Web pages that may call from elsewhere: `https://app.example.org,http://localhost:3000`, or `*` for all. "
        "Others are refused, or a page that somebody looks at could write to a node behind their firewall.",
    )
    allowed_hosts: str = setting(
        "",
        why="Names by which a node without tokens may be called, besides IP addresses, localhost and the names in host "
        "and advertised_url: `penstock,.example.org`, where the dot stands for the name and all below it, or `*` for "
        "all. Other names get 421: a web page could have pointed its own name here (DNS rebinding).",
    )
    tls_cert: str = setting("", why="PEM certificate chain; with tls_key it turns on TLS and ALPN h2.")
    tls_key: str = setting("", why="PEM private key of tls_cert.")
    default_partitions: int = setting(
        1, minimum=1, maximum=10_000, why="Partitions of a topic made without saying how many: one keeps total order."
    )
    auto_create_topics: bool = setting(False, why="Make unknown topics on produce. Off: a typing error is a 404.")
    request_body_bytes_max: int = setting(
        8 * MIB, minimum=KIB, maximum=64 * MIB, why="The largest request body, as sent and after decompression."
    )
    drain_bytes_max: int = setting(
        64 * MIB,
        minimum=0,
        maximum=GIB,
        why="How much of a refused body is read and thrown away after its answer, for clients that read an answer only "
        "when all is sent: past it they see a reset.",
    )
    drain_ms_max: int = setting(
        10 * SECOND_MS,
        minimum=0,
        maximum=MINUTE_MS,
        why="How long a refused body is read for that; a client that is slower may see a reset instead.",
    )
    body_read_timeout_ms: int = setting(
        30 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why="A body must be there within this time and that of body_bytes_per_second_min. Beyond: 408.",
    )
    body_bytes_per_second_min: int = setting(
        16 * KIB,
        minimum=1,
        maximum=GIB,
        why="Slower senders, and slower readers of large answers, hold memory for nothing; whoever is faster may take "
        "as long as the body needs.",
    )
    header_read_timeout_ms: int = setting(
        30 * SECOND_MS,
        minimum=100,
        maximum=10 * MINUTE_MS,
        why="A connection that sends no whole request head for so long is closed; over HTTP/1.1 an idle one too.",
    )
    idle_connection_ms: int = setting(
        5 * MINUTE_MS,
        minimum=100,
        maximum=DAY_MS,
        why="So is one that has had no request under way for so long, over HTTP/2 as well: it has a place of "
        "connections_max. Long polls, event streams and slow bodies are under way.",
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
        4096, minimum=256, maximum=4096, why="A key is the longest that a query carries. Beyond: 400."
    )
    topics_max: int = setting(
        10_000, minimum=1, maximum=1_000_000, why="Each is opened at the start and told in full by a list. Beyond: 409."
    )
    topic_partitions_max: int = setting(
        10_000, minimum=1, maximum=10_000, why="Of one topic: a single request cannot take all the room there is."
    )
    partitions_max: int = setting(
        20_000, minimum=1, maximum=1_000_000, why="In all: each has a few kB of memory. Beyond: 409."
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
        why="The largest max_bytes of a fetch; one batch is given in any case.",
    )
    fetch_bytes_default: int = setting(
        MIB, minimum=KIB, maximum=256 * MIB, why="max_bytes when a fetch does not say: a good size over any link."
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
        why="How long caches may give a fetch from sealed segments unasked, and so records after they were deleted. A "
        "minute is enough for many readers to share one; then they ask, and are told 304. 0: they ask each time.",
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
        why="An event stream or a large answer whose client takes nothing for so long is cut; the client goes on or "
        "asks again where it was.",
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
        why="How long a produce waits for its acks when it does not say; then 504.",
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
        why="An HTTP/2 client is asked for a sign of life this often, and dropped without one for 20 s.",
    )
    header_bytes_max: int = setting(
        64 * KIB, minimum=8 * KIB, maximum=16 * MIB, why="All headers of a request; nobody honest needs more."
    )
    shutdown_deadline_ms: int = setting(
        10 * SECOND_MS, minimum=0, maximum=10 * MINUTE_MS, why="How long SIGTERM waits for requests under way."
    )
    process_silent_ms_max: int = setting(
        15 * SECOND_MS,
        minimum=1000,
        maximum=10 * MINUTE_MS,
        why="A process of a node of several that gives no sign of life for so long is killed and started again.",
    )
    tier_check_ms: int = setting(
        5 * SECOND_MS,
        minimum=10,
        maximum=DAY_MS,
        why="How often sealed segments are looked for, besides at a roll; where all is quiet up to 12 times as rarely.",
    )
    tier_cache_bytes_max: int = setting(
        GIB, minimum=64 * MIB, maximum=2**50, why="Disk kept for copies of tiered segments that somebody reads."
    )
    scrub_bytes_per_second: int = setting(
        8 * MIB,
        minimum=0,
        maximum=4 * GIB,
        why="How fast sealed segments are read to see whether the disk has kept them: 1 TB takes 36 hours. 0: never.",
    )
    scrub_interval_ms: int = setting(
        DAY_MS, minimum=100, maximum=365 * DAY_MS, why="How often all sealed segments are gone through, at most."
    )
    log_level: str = setting(
        "warning", choices=("debug", "info", "warning", "error"), why="Quiet by default: only what needs a person."
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
        why="Topics that /metrics tells of one by one, in the order of their making; the rest together, as other.",
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
