"""The messages of Kafka's protocol that this listener reads and writes: made, not written.

`python -m tests.gateway.kafka.make_tables kafka-clients-4.3.1.jar` makes it of the schemas in Kafka's own client, for
the versions that are named here. gateway/kafka/codec/schema.py has the words of a table.
"""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """An API: its key, its first and last version, the first one with tagged fields, and the fields of its messages."""

    key: int
    first: int
    last: int
    flexible: int
    request: str
    response: str


NEVER = 99  # no version has tagged fields

TABLES = {
    "ApiVersions": Table(
        18,
        0,
        4,
        3,
        "client_software_name:string@3+ client_software_version:string@3+",
        "error_code:i16 api_keys[api_key:i16 min_version:i16 max_version:i16] throttle_time_ms:i32@1+ "
        "supported_features@3+#0[name:string min_version:i16 max_version:i16] "
        "finalized_features_epoch:i64@3+#1=-1 finalized_features@3+#2[name:string max_version_level:i16 "
        "min_version_level:i16] zk_migration_ready:bool@3+#3",
    ),
    "CreatePartitions": Table(
        37,
        0,
        3,
        2,
        "topics[name:string count:i32 assignments?[broker_ids:[]i32]] timeout_ms:i32 validate_only:bool",
        "throttle_time_ms:i32 results[name:string error_code:i16 error_message:string?=null]",
    ),
    "CreateTopics": Table(
        19,
        2,
        7,
        5,
        "topics[name:string num_partitions:i32 replication_factor:i16 assignments[partition_index:i32 "
        "broker_ids:[]i32] configs[name:string value:string?]] timeout_ms:i32=60000 validate_only:bool",
        "throttle_time_ms:i32 topics[name:string topic_id:uuid@7+ error_code:i16 error_message:string? "
        "topic_config_error_code:i16@5+#0 num_partitions:i32@5+=-1 replication_factor:i16@5+=-1 "
        "configs?@5+[name:string value:string? read_only:bool config_source:i8=-1 is_sensitive:bool]]",
    ),
    "DeleteGroups": Table(
        42,
        0,
        2,
        2,
        "groups_names:[]string",
        "throttle_time_ms:i32 results[group_id:string error_code:i16]",
    ),
    "DeleteRecords": Table(
        21,
        0,
        2,
        2,
        "topics[name:string partitions[partition_index:i32 offset:i64]] timeout_ms:i32",
        "throttle_time_ms:i32 topics[name:string partitions[partition_index:i32 low_watermark:i64 error_code:i16]]",
    ),
    "DeleteTopics": Table(
        20,
        1,
        6,
        4,
        "topics@6+[name:string?=null topic_id:uuid] topic_names:[]string@1-5 timeout_ms:i32",
        "throttle_time_ms:i32 responses[name:string?6+ topic_id:uuid@6+ error_code:i16 error_message:string?@5+=null]",
    ),
    "DescribeCluster": Table(
        60,
        0,
        2,
        0,
        "include_cluster_authorized_operations:bool endpoint_type:i8@1+=1 include_fenced_brokers:bool@2+",
        "throttle_time_ms:i32 error_code:i16 error_message:string?=null endpoint_type:i8@1+=1 cluster_id:string "
        "controller_id:i32=-1 brokers[broker_id:i32 host:string port:i32 rack:string?=null is_fenced:bool@2+] "
        "cluster_authorized_operations:i32=-2147483648",
    ),
    "DescribeConfigs": Table(
        32,
        1,
        4,
        4,
        "resources[resource_type:i8 resource_name:string configuration_keys:[]string?] include_synonyms:bool "
        "include_documentation:bool@3+",
        "throttle_time_ms:i32 results[error_code:i16 error_message:string? resource_type:i8 resource_name:string "
        "configs[name:string value:string? read_only:bool config_source:i8=-1 is_sensitive:bool "
        "synonyms[name:string value:string? source:i8] config_type:i8@3+ documentation:string?@3+]]",
    ),
    "DescribeGroups": Table(
        15,
        0,
        6,
        5,
        "groups:[]string include_authorized_operations:bool@3+",
        "throttle_time_ms:i32@1+ groups[error_code:i16 error_message:string?@6+=null group_id:string "
        "group_state:string protocol_type:string protocol_data:string members[member_id:string "
        "group_instance_id:string?@4+=null client_id:string client_host:string member_metadata:bytes "
        "member_assignment:bytes] authorized_operations:i32@3+=-2147483648]",
    ),
    "Fetch": Table(
        1,
        4,
        18,
        12,
        "cluster_id:string?@12+#0=null replica_id:i32@4-14=-1 replica_state@15+#1{replica_id:i32=-1 "
        "replica_epoch:i64=-1} max_wait_ms:i32 min_bytes:i32 max_bytes:i32=2147483647 isolation_level:i8 "
        "session_id:i32@7+ session_epoch:i32@7+=-1 topics[topic:string@4-12 topic_id:uuid@13+ "
        "partitions[partition:i32 current_leader_epoch:i32@9+=-1 fetch_offset:i64 last_fetched_epoch:i32@12+=-1 "
        "log_start_offset:i64@5+=-1 partition_max_bytes:i32 replica_directory_id:uuid@17+#0 "
        "high_watermark:i64@18+#1=9223372036854775807]] forgotten_topics_data@7+[topic:string@7-12 "
        "topic_id:uuid@13+ partitions:[]i32] rack_id:string@11+",
        "throttle_time_ms:i32 error_code:i16@7+ session_id:i32@7+ responses[topic:string@4-12 topic_id:uuid@13+ "
        "partitions[partition_index:i32 error_code:i16 high_watermark:i64 last_stable_offset:i64=-1 "
        "log_start_offset:i64@5+=-1 diverging_epoch@12+#0{epoch:i32=-1 end_offset:i64=-1} "
        "current_leader@12+#1{leader_id:i32=-1 leader_epoch:i32=-1} snapshot_id@12+#2{end_offset:i64=-1 "
        "epoch:i32=-1} aborted_transactions?[producer_id:i64 first_offset:i64] preferred_read_replica:i32@11+=-1 "
        "records:records?]] node_endpoints@16+#0[node_id:i32 host:string port:i32 rack:string?=null]",
    ),
    "FindCoordinator": Table(
        10,
        0,
        6,
        3,
        "key:string@0-3 key_type:i8@1+ coordinator_keys:[]string@4+",
        "throttle_time_ms:i32@1+ error_code:i16@0-3 error_message:string?@1-3 node_id:i32@0-3 host:string@0-3 "
        "port:i32@0-3 coordinators@4+[key:string node_id:i32 host:string port:i32 error_code:i16 "
        "error_message:string?]",
    ),
    "Heartbeat": Table(
        12,
        0,
        4,
        4,
        "group_id:string generation_id:i32 member_id:string group_instance_id:string?@3+=null",
        "throttle_time_ms:i32@1+ error_code:i16",
    ),
    "IncrementalAlterConfigs": Table(
        44,
        0,
        1,
        1,
        "resources[resource_type:i8 resource_name:string configs[name:string config_operation:i8 value:string?]] "
        "validate_only:bool",
        "throttle_time_ms:i32 responses[error_code:i16 error_message:string? resource_type:i8 resource_name:string]",
    ),
    "InitProducerId": Table(
        22,
        0,
        5,
        2,
        "transactional_id:string? transaction_timeout_ms:i32 producer_id:i64@3+=-1 producer_epoch:i16@3+=-1",
        "throttle_time_ms:i32 error_code:i16 producer_id:i64=-1 producer_epoch:i16",
    ),
    "JoinGroup": Table(
        11,
        0,
        9,
        6,
        "group_id:string session_timeout_ms:i32 rebalance_timeout_ms:i32@1+=-1 member_id:string "
        "group_instance_id:string?@5+=null protocol_type:string protocols[name:string metadata:bytes] "
        "reason:string?@8+=null",
        "throttle_time_ms:i32@2+ error_code:i16 generation_id:i32=-1 protocol_type:string?@7+=null "
        "protocol_name:string?7+ leader:string skip_assignment:bool@9+ member_id:string members[member_id:string "
        "group_instance_id:string?@5+=null metadata:bytes]",
    ),
    "LeaveGroup": Table(
        13,
        0,
        5,
        4,
        "group_id:string member_id:string@0-2 members@3+[member_id:string group_instance_id:string?=null "
        "reason:string?@5+=null]",
        "throttle_time_ms:i32@1+ error_code:i16 members@3+[member_id:string group_instance_id:string? error_code:i16]",
    ),
    "ListGroups": Table(
        16,
        0,
        5,
        3,
        "states_filter:[]string@4+ types_filter:[]string@5+",
        "throttle_time_ms:i32@1+ error_code:i16 groups[group_id:string protocol_type:string group_state:string@4+ "
        "group_type:string@5+]",
    ),
    "ListOffsets": Table(
        2,
        1,
        11,
        6,
        "replica_id:i32 isolation_level:i8@2+ topics[name:string partitions[partition_index:i32 "
        "current_leader_epoch:i32@4+=-1 timestamp:i64]] timeout_ms:i32@10+",
        "throttle_time_ms:i32@2+ topics[name:string partitions[partition_index:i32 error_code:i16 "
        "timestamp:i64=-1 offset:i64=-1 leader_epoch:i32@4+=-1]]",
    ),
    "Metadata": Table(
        3,
        0,
        13,
        9,
        "topics?1+[topic_id:uuid@10+ name:string?10+] allow_auto_topic_creation:bool@4+=true "
        "include_cluster_authorized_operations:bool@8-10 include_topic_authorized_operations:bool@8+",
        "throttle_time_ms:i32@3+ brokers[node_id:i32 host:string port:i32 rack:string?@1+=null] "
        "cluster_id:string?@2+=null controller_id:i32@1+=-1 topics[error_code:i16 name:string?12+ "
        "topic_id:uuid@10+ is_internal:bool@1+ partitions[error_code:i16 partition_index:i32 leader_id:i32 "
        "leader_epoch:i32@7+=-1 replica_nodes:[]i32 isr_nodes:[]i32 offline_replicas:[]i32@5+] "
        "topic_authorized_operations:i32@8+=-2147483648] cluster_authorized_operations:i32@8-10=-2147483648 "
        "error_code:i16@13+",
    ),
    "OffsetCommit": Table(
        8,
        2,
        9,
        8,
        "group_id:string generation_id_or_member_epoch:i32=-1 member_id:string group_instance_id:string?@7+=null "
        "retention_time_ms:i64@2-4=-1 topics[name:string partitions[partition_index:i32 committed_offset:i64 "
        "committed_leader_epoch:i32@6+=-1 committed_metadata:string?]]",
        "throttle_time_ms:i32@3+ topics[name:string partitions[partition_index:i32 error_code:i16]]",
    ),
    "OffsetDelete": Table(
        47,
        0,
        0,
        NEVER,
        "group_id:string topics[name:string partitions[partition_index:i32]]",
        "error_code:i16 throttle_time_ms:i32 topics[name:string partitions[partition_index:i32 error_code:i16]]",
    ),
    "OffsetFetch": Table(
        9,
        1,
        9,
        6,
        "group_id:string@1-7 topics?2+@1-7[name:string partition_indexes:[]i32] groups@8+[group_id:string "
        "member_id:string?@9+=null member_epoch:i32@9+=-1 topics?[name:string partition_indexes:[]i32]] "
        "require_stable:bool@7+",
        "throttle_time_ms:i32@3+ topics@1-7[name:string partitions[partition_index:i32 committed_offset:i64 "
        "committed_leader_epoch:i32@5+=-1 metadata:string? error_code:i16]] error_code:i16@2-7 "
        "groups@8+[group_id:string topics[name:string partitions[partition_index:i32 committed_offset:i64 "
        "committed_leader_epoch:i32=-1 metadata:string? error_code:i16]] error_code:i16]",
    ),
    "OffsetForLeaderEpoch": Table(
        23,
        2,
        4,
        4,
        "replica_id:i32@3+=-2 topics[topic:string partitions[partition:i32 current_leader_epoch:i32=-1 "
        "leader_epoch:i32]]",
        "throttle_time_ms:i32 topics[topic:string partitions[error_code:i16 partition:i32 leader_epoch:i32=-1 "
        "end_offset:i64=-1]]",
    ),
    "Produce": Table(
        0,
        3,
        13,
        9,
        "transactional_id:string?=null acks:i16 timeout_ms:i32 topic_data[name:string@3-12 topic_id:uuid@13+ "
        "partition_data[index:i32 records:records?]]",
        "responses[name:string@3-12 topic_id:uuid@13+ partition_responses[index:i32 error_code:i16 "
        "base_offset:i64 log_append_time_ms:i64=-1 log_start_offset:i64@5+=-1 record_errors@8+[batch_index:i32 "
        "batch_index_error_message:string?=null] error_message:string?@8+=null "
        "current_leader@10+#0{leader_id:i32=-1 leader_epoch:i32=-1}]] throttle_time_ms:i32 "
        "node_endpoints@10+#0[node_id:i32 host:string port:i32 rack:string?=null]",
    ),
    "SaslAuthenticate": Table(
        36,
        0,
        2,
        2,
        "auth_bytes:bytes",
        "error_code:i16 error_message:string? auth_bytes:bytes session_lifetime_ms:i64@1+",
    ),
    "SaslHandshake": Table(
        17,
        0,
        1,
        NEVER,
        "mechanism:string",
        "error_code:i16 mechanisms:[]string",
    ),
    "SyncGroup": Table(
        14,
        0,
        5,
        4,
        "group_id:string generation_id:i32 member_id:string group_instance_id:string?@3+=null "
        "protocol_type:string?@5+=null protocol_name:string?@5+=null assignments[member_id:string "
        "assignment:bytes]",
        "throttle_time_ms:i32@1+ error_code:i16 protocol_type:string?@5+=null protocol_name:string?@5+=null "
        "assignment:bytes",
    ),
}
