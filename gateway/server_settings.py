"""The settings of a node by itself: addresses, data, access, the store, its logs and its stop.

gateway/settings.py joins them with the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.settings import DAY_MS, GIB, MIB, MINUTE_MS, SECOND_MS, setting


@dataclass(frozen=True)
class ServerSettings:
    """Addresses, directories, access, tiering and logs."""

    host: str = setting(
        "127.0.0.1",
        why=(
            "An IPv4 or IPv6 address, or a name, which listens on all its addresses; `::` includes IPv4. Addresses "
            "other than loopback need a tokens_file and TLS, or --insecure."
        ),
    )
    port: int = setting(8080, minimum=0, maximum=65535, why="HTTP/1.1 and HTTP/2 on one port. 0 takes a free one.")
    data_dir: str = setting("penstock-data", why="The directory of the log; one node at a time may use it.")
    data_dirs: tuple[str, ...] = setting(
        (),
        why=(
            "Several directories, in place of data_dir; a failed one takes only its own partitions offline. In the "
            "environment separated by commas; --data-dir is repeated."
        ),
    )
    store: str = setting(
        "",
        why=(
            "The object store for closed segments: a path, file:///path or s3://bucket/prefix. Empty: inside the data "
            "directory."
        ),
    )
    advertised_url: str = setting("", why="The address that clients use, behind a proxy or NAT. Empty: host and port.")
    kafka_listen: str = setting(
        "",
        why=(
            "HOST:PORT for clients of Kafka's protocol (docs/kafka.md): `127.0.0.1:9092`. Empty: no such listener. It "
            "has the tokens and the certificate of HTTP."
        ),
    )
    kafka_advertised: str = setting(
        "",
        why=(
            "HOST:PORT by which clients of Kafka's protocol reach this node. Empty: that of kafka_listen, which may "
            "then not be a wildcard."
        ),
    )
    rest_proxy_listen: str = setting(
        "",
        why=(
            "HOST:PORT for clients of REST Proxy, v2 and v3 (docs/rest-proxy.md): `127.0.0.1:8082`. Empty: no such "
            "listener. It has the tokens and the certificate of HTTP."
        ),
    )
    rest_proxy_instance_timeout_ms: int = setting(
        300 * SECOND_MS,
        minimum=10 * SECOND_MS,
        maximum=30 * MINUTE_MS,
        why="A consumer instance of REST Proxy that no request names for this long is deleted, as its clients expect.",
    )
    insecure: bool = setting(
        False, why="Allow listening on non-loopback addresses without authentication, or with tokens and without TLS."
    )
    tokens_file: str = setting(
        "", why=("TOML file with tokens and their rights (docs/secure.md). Empty: authentication is disabled.")
    )
    superusers: str = setting(
        "",
        why=(
            "Tokens of the tokens file that may do everything, as `token:ops,token:night`: rules of the coordination "
            "store cannot lock them out."
        ),
    )
    issuers_file: str = setting(
        "",
        why=(
            "TOML file with the OpenID Connect issuers whose access tokens the node takes (docs/oidc.md). Empty: none."
            " It needs a tokens_file beside it."
        ),
    )
    issuer_keys_kept_ms: int = setting(
        DAY_MS,
        minimum=MINUTE_MS,
        maximum=365 * DAY_MS,
        why=(
            "How long the last good keys of an issuer stay while it does not answer. A key that the issuer withdraws "
            "meanwhile counts until then."
        ),
    )
    signed_url_life_max_ms: int = setting(
        DAY_MS,
        minimum=SECOND_MS,
        maximum=7 * DAY_MS,
        why=(
            "The longest life of a signed URL (docs/signed-urls.md): a short one bounds a leak. By default a URL has "
            "15 minutes, or this if it is less."
        ),
    )
    reload_check_ms: int = setting(
        2 * SECOND_MS,
        minimum=100,
        maximum=DAY_MS,
        why="How often the tokens file, the issuers file and the certificate are checked, in addition to SIGHUP.",
    )
    cors_origins: str = setting(
        "",
        why=(
            "Origins of web pages that may call this node: `https://app.example.org,http://localhost:3000`, or `*` "
            "for all. Others are rejected, so that a page cannot write to a node behind its reader's firewall."
        ),
    )
    allowed_hosts: str = setting(
        "",
        why=(
            "Names by which clients may call a node without tokens, besides IP addresses, localhost and its own: "
            "`penstock,.example.org`, where a leading dot means all names below, or `*` for all. Other names get "
            "421, which prevents DNS rebinding."
        ),
    )
    tls_cert: str = setting("", why="PEM certificate chain; with tls_key it turns on TLS and ALPN h2.")
    tls_key: str = setting("", why="PEM private key of tls_cert.")
    tls_min: str = setting(
        "1.2",
        choices=("1.2", "1.3"),
        why="The oldest version of TLS. Clients of the last ten years speak 1.2; take 1.3 if yours do.",
    )
    listeners_file: str = setting(
        "",
        why=(
            "TOML file with further addresses to listen on (docs/listeners.md). Read at the start; needs tokens_file."
        ),
    )
    default_partitions: int = setting(
        1,
        minimum=1,
        maximum=10_000,
        why="Partitions of a topic that is created without a number; one keeps total order.",
    )
    auto_create_topics: bool = setting(False, why="Create unknown topics on produce. Off: a typing error is a 404.")
    requests_before_move: int = setting(
        16,
        minimum=0,
        maximum=1_000_000,
        why=(
            "A connection moves to another shard of a standalone node that has served this many of its requests in a "
            "row. Connections of TLS stay. 0: none moves."
        ),
    )
    shutdown_timeout_ms: int = setting(
        10 * SECOND_MS, minimum=0, maximum=10 * MINUTE_MS, why="How long SIGTERM waits for requests under way."
    )
    tier_check_ms: int = setting(
        5 * SECOND_MS,
        minimum=10,
        maximum=DAY_MS,
        why="How often the uploader looks for closed segments, besides at a roll; up to 12 times less often when idle.",
    )
    accepted_counts_ms: int = setting(
        MINUTE_MS,
        minimum=0,
        maximum=60 * MINUTE_MS,
        why=(
            "How often counts of accepted records go to the store, for audits; a kill loses the counts "
            "since. 0: never; else at least a second."
        ),
    )
    tier_cache_bytes_max: int = setting(
        GIB,
        minimum=64 * MIB,
        maximum=2**50,
        why="Disk space for blocks of uploaded segments that clients read, for all shards of the node together.",
    )
    tier_spool_bytes_max: int = setting(
        0,
        minimum=0,
        maximum=2**50,
        why=(
            "Bytes of closed segments that may wait for the store; at the bound the node refuses records with 503 "
            "`spool_full`. Each shard has an equal share. 0: the disk is the bound."
        ),
    )
    tier_merge_below_bytes: int = setting(
        4 * MIB,
        minimum=0,
        maximum=64 * MIB,
        why=("Smaller neighbouring objects in the store become one, which readers fetch in one request. 0: none."),
    )
    tier_merge_target_bytes: int = setting(
        32 * MIB,
        minimum=MIB // 16,
        maximum=64 * MIB,
        why="The largest merged object, which a merge holds in memory twice; at most an eighth of `retention_bytes`.",
    )
    tier_merge_min_age_ms: int = setting(
        60 * MINUTE_MS,
        minimum=0,
        maximum=365 * DAY_MS,
        why="Younger objects are not merged: consumers still read them.",
    )
    tier_merge_bytes_per_second: int = setting(
        8 * MIB,
        minimum=MIB // 16,
        maximum=4 * GIB,
        why="How fast a merge reads objects, so that uploads keep most of the network. One partition merges at a time.",
    )
    disk_move_bytes_per_second: int = setting(
        50 * MIB,
        minimum=64 * 1024,
        maximum=4 * GIB,
        why="How fast partitions are copied to other data directories, all together: requests need the same disks. "
        "Below the rate of appends to a partition its move does not end.",
    )
    scrub_bytes_per_second: int = setting(
        8 * MIB,
        minimum=0,
        maximum=4 * GIB,
        why="How fast the scrubber reads closed segments to find damage: 1 TB takes 36 hours. 0: never.",
    )
    scrub_interval_ms: int = setting(
        DAY_MS,
        minimum=100,
        maximum=365 * DAY_MS,
        why="The scrubber starts a new pass over all closed segments at most this often.",
    )
    compaction_check_ms: int = setting(
        15 * SECOND_MS,
        minimum=10,
        maximum=DAY_MS,
        why="How often the node looks for compacted topics that are due.",
    )
    compaction_bytes_per_second: int = setting(
        64 * MIB,
        minimum=MIB // 16,
        maximum=4 * GIB,
        why="How fast compaction reads segments, so that clients keep most of the disk.",
    )
    compaction_memory_bytes: int = setting(
        128 * MIB,
        minimum=MIB,
        maximum=64 * GIB,
        why="The memory for the keys of one round of compaction: 32 bytes each, 160 without the compiled codec. With "
        "more keys a log takes several rounds.",
    )
    table_memory_bytes: int = setting(
        256 * MIB,
        minimum=MIB,
        maximum=64 * GIB,
        why="The memory of a shard for the keys of compacted topics that are read by key: 32 to 64 bytes each, 160 "
        "without the compiled codec.",
    )
    push_targets: str = setting(
        "",
        why=(
            "Targets of push: `hooks.example.org,.example.com`, where a leading dot means the name and all below it, "
            "or `*` for all names. Networks such as `10.1.0.0/16` allow addresses that are not public. Empty: no push."
        ),
    )
    push_http: bool = setting(False, why="Allow push to http:// URLs: the network between can read and change events.")
    push_unconfirmed: bool = setting(
        False,
        why=("Do not ask new targets of push whether they want deliveries (CloudEvents' webhook handshake)."),
    )
    log_level: str = setting(
        "warning",
        choices=("debug", "info", "warning", "error"),
        why="The default logs only what an operator must act on.",
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
    statsd_address: str = setting("", why="Host and port that get the metrics by UDP: `127.0.0.1:8125`. Empty: none.")
    statsd_interval_ms: int = setting(
        10 * SECOND_MS,
        minimum=100,
        maximum=DAY_MS,
        why="How often. Statsd adds up what it gets in ten seconds, by default.",
    )
    statsd_prefix: str = setting(
        "", why="Put before each name: `shop.`. Empty: `node-1.`, so that gauges of nodes do not overwrite each other."
    )
    schema_registry_url: str = setting(
        "",
        why="The schema registry of topics with `value_schema_type`: `http://127.0.0.1:8081`. "
        "`PENSTOCK_SCHEMA_REGISTRY_AUTH` (`user:password`) authenticates.",
    )
    otlp_endpoint: str = setting(
        "",
        why="The collector that takes spans by OTLP over HTTP: `http://127.0.0.1:4318`. Empty: no tracing. Without it "
        "the variable `OTEL_EXPORTER_OTLP_ENDPOINT` is used.",
    )
    otlp_service_name: str = setting(
        "penstock", why="The `service.name` of the node's spans. Without it `OTEL_SERVICE_NAME` is used."
    )
    otlp_resource_attributes: str = setting(
        "",
        why="Further attributes of the node in its spans: `deployment.environment.name=test,host.name=n1`. Without it "
        "`OTEL_RESOURCE_ATTRIBUTES` is used.",
    )
    trace_ratio: float = setting(
        0.0,
        minimum=0,
        maximum=1,
        why="The share of the requests without a `traceparent` that get a span. A sampled request with that header "
        "has a span in any case.",
    )
    trace_spans_per_second: int = setting(
        100,
        minimum=1,
        maximum=100_000,
        why="The spans that a node begins in a second: clients choose the sampled flag, and must not fill the memory. "
        "The spans above it are counted as dropped.",
    )
