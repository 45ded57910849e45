"""The settings of a node as a part of a cluster: its processes, its peers, and replication.

gateway/settings.py joins them with the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.directory.topics import REPLICATION_FACTOR_MAX
from engine.settings import DAY_MS, GIB, KIB, MIB, MINUTE_MS, SECOND_MS, setting


@dataclass(frozen=True)
class ClusterSettings:
    """Processes, peers and replicas."""

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
    advertised_direct_url: str = setting(
        "",
        why=(
            "The address of a shard that answers name to clients, with {port} or {shard} in it: "
            "`https://node1.example.org:{port}`. Empty: host and port of the shard, where these can be known. none: "
            "clients use the node's own address."
        ),
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
    zookeeper_tls_ca: str = setting(
        "",
        why="The file with the CA of ZooKeeper's certificates, the only one that is trusted. With it connections to "
        "ZooKeeper use TLS and check the name of the host. Empty: plain.",
    )
    zookeeper_tls_cert: str = setting(
        "", why="This node's certificate for ZooKeeper, a PEM chain. Renewed files count at the next connection."
    )
    zookeeper_tls_key: str = setting("", why="The private key of zookeeper_tls_cert, PEM without a password.")
    zookeeper_login_file: str = setting(
        "",
        why="A file with one line, user:password, with which the node logs in to ZooKeeper (digest). The same for "
        "all nodes; 32 or more random characters. Needs zookeeper_tls_ca.",
    )
    zookeeper_acl: bool = setting(
        False,
        why="New keys in ZooKeeper are for zookeeper_login_file only. All nodes must log in before. "
        "`penstock coordination secure` does the same with the keys that are there.",
    )
    internal_port_base: int = setting(
        0,
        minimum=0,
        maximum=65_000,
        why="Shard i listens for other nodes on this port plus i. 0: free ports. Set it if there is a firewall.",
    )
    internal_tls: str = setting(
        "off",
        choices=("off", "accept", "dial", "require"),
        why="TLS between nodes; a cluster goes from one word to the next by a rolling restart. accept: takes TLS and "
        "plain. dial: also uses TLS with every node that has it. require: refuses plain.",
    )
    internal_tls_ca: str = setting(
        "", why="The file with the private CA of the nodes' certificates, the only one that is trusted between nodes."
    )
    internal_tls_cert: str = setting(
        "",
        why="This node's certificate for other nodes, a PEM chain with the URI `penstock://<cluster id>/node/<id>`. "
        "Renewed files count for new connections.",
    )
    internal_tls_key: str = setting("", why="The private key of internal_tls_cert, PEM without a password.")
    session_timeout_ms: int = setting(
        6 * SECOND_MS,
        minimum=400,
        maximum=MINUTE_MS,
        why=("ZooKeeper declares a node dead after this long without a heartbeat. Lower values risk false failovers."),
    )
    replica_lag_time_max_ms: int = setting(
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
        why="A leader answers a follower once it has this many bytes; 1 has the least delay.",
    )
    replica_fetch_max_bytes: int = setting(
        8 * MIB,
        minimum=KIB,
        maximum=256 * MIB,
        why=(
            "The most bytes in one answer to a follower; one batch is always sent. A follower has up to "
            "three answers in memory."
        ),
    )
    replica_fetch_wait_max_ms: int = setting(
        500,
        minimum=1,
        maximum=MINUTE_MS,
        why=(
            "A leader answers a follower without new records after this long. At most half of replica_lag_time_max_ms."
        ),
    )
    replica_cache_bytes_max: int = setting(
        64 * MIB,
        minimum=0,
        maximum=16 * GIB,
        why=(
            "Memory for batches that followers in sync have not fetched yet; the shards share it. 0: the "
            "page cache answers."
        ),
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
    groups_partitions: int = setting(
        8,
        minimum=1,
        maximum=1000,
        why="Partitions of the topic __groups, whose leaders coordinate the consumer groups that fall to them. Read "
        "when the first group begins.",
    )
    groups_replication_factor: int = setting(
        3,
        minimum=1,
        maximum=REPLICATION_FACTOR_MAX,
        why="Replicas of __groups; one on each node where the cluster has fewer, and default_replication_factor if "
        "that is larger. Read when the first group begins.",
    )
    leader_wait_ms: int = setting(
        10 * SECOND_MS,
        minimum=0,
        maximum=10 * MINUTE_MS,
        why=(
            "How long a request other than a produce waits for a leader before 503. Longer than an "
            "election, so that a failover is a pause."
        ),
    )
    leader_imbalance_check_ms: int = setting(
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
    process_heartbeat_timeout_ms: int = setting(
        15 * SECOND_MS,
        minimum=1000,
        maximum=10 * MINUTE_MS,
        why="With several processes in a node, one that sends no heartbeat for this long is killed and restarted.",
    )
