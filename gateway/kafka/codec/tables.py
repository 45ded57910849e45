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
    "AlterClientQuotas": Table(
        49,
        0,
        1,
        1,
        "entries[entity[entity_type:string entity_name:string?] ops[key:string value:f64 remove:bool]] "
        "validate_only:bool",
        "throttle_time_ms:i32 entries[error_code:i16 error_message:string? entity[entity_type:string "
        "entity_name:string?]]",
    ),
    "AlterConfigs": Table(
        33,
        0,
        2,
        2,
        "resources[resource_type:i8 resource_name:string configs[name:string value:string?]] validate_only:bool",
        "throttle_time_ms:i32 responses[error_code:i16 error_message:string? resource_type:i8 resource_name:string]",
    ),
    "AlterPartitionReassignments": Table(
        45,
        0,
        1,
        0,
        "timeout_ms:i32=60000 allow_replication_factor_change:bool@1+=true topics[name:topic "
        "partitions[partition_index:i32 replicas:[]i32?=null]]",
        "throttle_time_ms:i32 allow_replication_factor_change:bool@1+=true error_code:i16 error_message:string? "
        "responses[name:topic partitions[partition_index:i32 error_code:i16 error_message:string?]]",
    ),
    "AlterReplicaLogDirs": Table(
        34,
        1,
        2,
        2,
        "dirs[path:string topics[name:topic partitions:[]i32]]",
        "throttle_time_ms:i32 results[topic_name:topic partitions[partition_index:i32 error_code:i16]]",
    ),
    "AlterShareGroupOffsets": Table(
        91,
        0,
        0,
        0,
        "group_id:group topics[topic_name:topic partitions[partition_index:i32 start_offset:i64]]",
        "throttle_time_ms:i32 error_code:i16 error_message:string?=null responses[topic_name:topic topic_id:uuid "
        "partitions[partition_index:i32 error_code:i16 error_message:string?=null]]",
    ),
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
    "ConsumerGroupDescribe": Table(
        69,
        0,
        1,
        0,
        "group_ids:[]group include_authorized_operations:bool",
        "throttle_time_ms:i32 groups[error_code:i16 error_message:string?=null group_id:group group_state:string "
        "group_epoch:i32 assignment_epoch:i32 assignor_name:string members[member_id:string "
        "instance_id:string?=null rack_id:string?=null member_epoch:i32 client_id:string client_host:string "
        "subscribed_topic_names:[]topic subscribed_topic_regex:string?=null "
        "assignment{topic_partitions[topic_id:uuid topic_name:topic partitions:[]i32]} "
        "target_assignment{topic_partitions[topic_id:uuid topic_name:topic partitions:[]i32]} "
        "member_type:i8@1+=-1] authorized_operations:i32=-2147483648]",
    ),
    "ConsumerGroupHeartbeat": Table(
        68,
        0,
        1,
        0,
        "group_id:group member_id:string member_epoch:i32 instance_id:string?=null rack_id:string?=null "
        "rebalance_timeout_ms:i32=-1 subscribed_topic_names:[]topic?=null subscribed_topic_regex:string?@1+=null "
        "server_assignor:string?=null topic_partitions?=null[topic_id:uuid partitions:[]i32]",
        "throttle_time_ms:i32 error_code:i16 error_message:string?=null member_id:string?=null member_epoch:i32 "
        "heartbeat_interval_ms:i32 assignment?=null{topic_partitions[topic_id:uuid partitions:[]i32]}",
    ),
    "CreateAcls": Table(
        30,
        1,
        3,
        2,
        "creations[resource_type:i8 resource_name:string resource_pattern_type:i8=3 principal:string host:string "
        "operation:i8 permission_type:i8]",
        "throttle_time_ms:i32 results[error_code:i16 error_message:string?]",
    ),
    "CreatePartitions": Table(
        37,
        0,
        3,
        2,
        "topics[name:topic count:i32 assignments?[broker_ids:[]i32]] timeout_ms:i32 validate_only:bool",
        "throttle_time_ms:i32 results[name:topic error_code:i16 error_message:string?=null]",
    ),
    "CreateTopics": Table(
        19,
        2,
        7,
        5,
        "topics[name:topic num_partitions:i32 replication_factor:i16 assignments[partition_index:i32 "
        "broker_ids:[]i32] configs[name:string value:string?]] timeout_ms:i32=60000 validate_only:bool",
        "throttle_time_ms:i32 topics[name:topic topic_id:uuid@7+ error_code:i16 error_message:string? "
        "topic_config_error_code:i16@5+#0 num_partitions:i32@5+=-1 replication_factor:i16@5+=-1 "
        "configs?@5+[name:string value:string? read_only:bool config_source:i8=-1 is_sensitive:bool]]",
    ),
    "DeleteAcls": Table(
        31,
        1,
        3,
        2,
        "filters[resource_type_filter:i8 resource_name_filter:string? pattern_type_filter:i8=3 "
        "principal_filter:string? host_filter:string? operation:i8 permission_type:i8]",
        "throttle_time_ms:i32 filter_results[error_code:i16 error_message:string? matching_acls[error_code:i16 "
        "error_message:string? resource_type:i8 resource_name:string pattern_type:i8=3 principal:string "
        "host:string operation:i8 permission_type:i8]]",
    ),
    "DeleteGroups": Table(
        42,
        0,
        2,
        2,
        "groups_names:[]group",
        "throttle_time_ms:i32 results[group_id:group error_code:i16]",
    ),
    "DeleteRecords": Table(
        21,
        0,
        2,
        2,
        "topics[name:topic partitions[partition_index:i32 offset:i64]] timeout_ms:i32",
        "throttle_time_ms:i32 topics[name:topic partitions[partition_index:i32 low_watermark:i64 error_code:i16]]",
    ),
    "DeleteShareGroupOffsets": Table(
        92,
        0,
        0,
        0,
        "group_id:group topics[topic_name:topic]",
        "throttle_time_ms:i32 error_code:i16 error_message:string?=null responses[topic_name:topic topic_id:uuid "
        "error_code:i16 error_message:string?=null]",
    ),
    "DeleteTopics": Table(
        20,
        1,
        6,
        4,
        "topics@6+[name:topic?=null topic_id:uuid] topic_names:[]topic@1-5 timeout_ms:i32",
        "throttle_time_ms:i32 responses[name:topic?6+ topic_id:uuid@6+ error_code:i16 error_message:string?@5+=null]",
    ),
    "DescribeAcls": Table(
        29,
        1,
        3,
        2,
        "resource_type_filter:i8 resource_name_filter:string? pattern_type_filter:i8=3 principal_filter:string? "
        "host_filter:string? operation:i8 permission_type:i8",
        "throttle_time_ms:i32 error_code:i16 error_message:string? resources[resource_type:i8 "
        "resource_name:string pattern_type:i8=3 acls[principal:string host:string operation:i8 "
        "permission_type:i8]]",
    ),
    "DescribeClientQuotas": Table(
        48,
        0,
        1,
        1,
        "components[entity_type:string match_type:i8 match:string?] strict:bool",
        "throttle_time_ms:i32 error_code:i16 error_message:string? entries?[entity[entity_type:string "
        "entity_name:string?] values[key:string value:f64]]",
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
        "groups:[]group include_authorized_operations:bool@3+",
        "throttle_time_ms:i32@1+ groups[error_code:i16 error_message:string?@6+=null group_id:group "
        "group_state:string protocol_type:string protocol_data:string members[member_id:string "
        "group_instance_id:string?@4+=null client_id:string client_host:string member_metadata:bytes "
        "member_assignment:bytes] authorized_operations:i32@3+=-2147483648]",
    ),
    "DescribeLogDirs": Table(
        35,
        1,
        4,
        2,
        "topics?[topic:topic partitions:[]i32]",
        "throttle_time_ms:i32 error_code:i16@3+ results[error_code:i16 log_dir:string topics[name:topic "
        "partitions[partition_index:i32 partition_size:i64 offset_lag:i64 is_future_key:bool]] "
        "total_bytes:i64@4+=-1 usable_bytes:i64@4+=-1]",
    ),
    "DescribeProducers": Table(
        61,
        0,
        0,
        0,
        "topics[name:topic partition_indexes:[]i32]",
        "throttle_time_ms:i32 topics[name:topic partitions[partition_index:i32 error_code:i16 "
        "error_message:string?=null active_producers[producer_id:i64 producer_epoch:i32 last_sequence:i32=-1 "
        "last_timestamp:i64=-1 coordinator_epoch:i32 current_txn_start_offset:i64=-1]]]",
    ),
    "DescribeShareGroupOffsets": Table(
        90,
        0,
        1,
        0,
        "groups[group_id:group topics?[topic_name:topic partitions:[]i32]]",
        "throttle_time_ms:i32 groups[group_id:group topics[topic_name:topic topic_id:uuid "
        "partitions[partition_index:i32 start_offset:i64 leader_epoch:i32 lag:i64@1+=-1 error_code:i16 "
        "error_message:string?=null]] error_code:i16 error_message:string?=null]",
    ),
    "DescribeTopicPartitions": Table(
        75,
        0,
        0,
        0,
        "topics[name:topic] response_partition_limit:i32=2000 cursor?=null{topic_name:topic partition_index:i32}",
        "throttle_time_ms:i32 topics[error_code:i16 name:topic? topic_id:uuid is_internal:bool "
        "partitions[error_code:i16 partition_index:i32 leader_id:i32 leader_epoch:i32=-1 replica_nodes:[]i32 "
        "isr_nodes:[]i32 eligible_leader_replicas:[]i32?=null last_known_elr:[]i32?=null offline_replicas:[]i32] "
        "topic_authorized_operations:i32=-2147483648] next_cursor?=null{topic_name:topic partition_index:i32}",
    ),
    "DescribeTransactions": Table(
        65,
        0,
        0,
        0,
        "transactional_ids:[]string",
        "throttle_time_ms:i32 transaction_states[error_code:i16 transactional_id:string transaction_state:string "
        "transaction_timeout_ms:i32 transaction_start_time_ms:i64 producer_id:i64 producer_epoch:i16 "
        "topics[topic:topic partitions:[]i32]]",
    ),
    "DescribeUserScramCredentials": Table(
        50,
        0,
        0,
        0,
        "users?[name:string]",
        "throttle_time_ms:i32 error_code:i16 error_message:string? results[user:string error_code:i16 "
        "error_message:string? credential_infos[mechanism:i8 iterations:i32]]",
    ),
    "ElectLeaders": Table(
        43,
        0,
        2,
        2,
        "election_type:i8@1+ topic_partitions?[topic:topic partitions:[]i32] timeout_ms:i32=60000",
        "throttle_time_ms:i32 error_code:i16@1+ replica_election_results[topic:topic "
        "partition_result[partition_id:i32 error_code:i16 error_message:string?]]",
    ),
    "Fetch": Table(
        1,
        4,
        18,
        12,
        "cluster_id:string?@12+#0=null replica_id:i32@4-14=-1 replica_state@15+#1{replica_id:i32=-1 "
        "replica_epoch:i64=-1} max_wait_ms:i32 min_bytes:i32 max_bytes:i32=2147483647 isolation_level:i8 "
        "session_id:i32@7+ session_epoch:i32@7+=-1 topics[topic:topic@4-12 topic_id:uuid@13+ "
        "partitions[partition:i32 current_leader_epoch:i32@9+=-1 fetch_offset:i64 last_fetched_epoch:i32@12+=-1 "
        "log_start_offset:i64@5+=-1 partition_max_bytes:i32 replica_directory_id:uuid@17+#0 "
        "high_watermark:i64@18+#1=9223372036854775807]] forgotten_topics_data@7+[topic:topic@7-12 "
        "topic_id:uuid@13+ partitions:[]i32] rack_id:string@11+",
        "throttle_time_ms:i32 error_code:i16@7+ session_id:i32@7+ responses[topic:topic@4-12 topic_id:uuid@13+ "
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
        "group_id:group generation_id:i32 member_id:string group_instance_id:string?@3+=null",
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
        "group_id:group session_timeout_ms:i32 rebalance_timeout_ms:i32@1+=-1 member_id:string "
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
        "group_id:group member_id:string@0-2 members@3+[member_id:string group_instance_id:string?=null "
        "reason:string?@5+=null]",
        "throttle_time_ms:i32@1+ error_code:i16 members@3+[member_id:string group_instance_id:string? error_code:i16]",
    ),
    "ListConfigResources": Table(
        74,
        0,
        1,
        0,
        "resource_types:[]i8@1+",
        "throttle_time_ms:i32 error_code:i16 config_resources[resource_name:string resource_type:i8@1+=16]",
    ),
    "ListGroups": Table(
        16,
        0,
        5,
        3,
        "states_filter:[]string@4+ types_filter:[]string@5+",
        "throttle_time_ms:i32@1+ error_code:i16 groups[group_id:group protocol_type:string group_state:string@4+ "
        "group_type:string@5+]",
    ),
    "ListOffsets": Table(
        2,
        1,
        11,
        6,
        "replica_id:i32 isolation_level:i8@2+ topics[name:topic partitions[partition_index:i32 "
        "current_leader_epoch:i32@4+=-1 timestamp:i64]] timeout_ms:i32@10+",
        "throttle_time_ms:i32@2+ topics[name:topic partitions[partition_index:i32 error_code:i16 timestamp:i64=-1 "
        "offset:i64=-1 leader_epoch:i32@4+=-1]]",
    ),
    "ListPartitionReassignments": Table(
        46,
        0,
        0,
        0,
        "timeout_ms:i32=60000 topics?=null[name:topic partition_indexes:[]i32]",
        "throttle_time_ms:i32 error_code:i16 error_message:string? topics[name:topic "
        "partitions[partition_index:i32 replicas:[]i32 adding_replicas:[]i32 removing_replicas:[]i32]]",
    ),
    "ListTransactions": Table(
        66,
        0,
        2,
        0,
        "state_filters:[]string producer_id_filters:[]i64 duration_filter:i64@1+=-1 "
        "transactional_id_pattern:string?@2+=null",
        "throttle_time_ms:i32 error_code:i16 unknown_state_filters:[]string "
        "transaction_states[transactional_id:string producer_id:i64 transaction_state:string]",
    ),
    "Metadata": Table(
        3,
        0,
        13,
        9,
        "topics?1+[topic_id:uuid@10+ name:topic?10+] allow_auto_topic_creation:bool@4+=true "
        "include_cluster_authorized_operations:bool@8-10 include_topic_authorized_operations:bool@8+",
        "throttle_time_ms:i32@3+ brokers[node_id:i32 host:string port:i32 rack:string?@1+=null] "
        "cluster_id:string?@2+=null controller_id:i32@1+=-1 topics[error_code:i16 name:topic?12+ "
        "topic_id:uuid@10+ is_internal:bool@1+ partitions[error_code:i16 partition_index:i32 leader_id:i32 "
        "leader_epoch:i32@7+=-1 replica_nodes:[]i32 isr_nodes:[]i32 offline_replicas:[]i32@5+] "
        "topic_authorized_operations:i32@8+=-2147483648] cluster_authorized_operations:i32@8-10=-2147483648 "
        "error_code:i16@13+",
    ),
    "OffsetCommit": Table(
        8,
        2,
        10,
        8,
        "group_id:group generation_id_or_member_epoch:i32=-1 member_id:string group_instance_id:string?@7+=null "
        "retention_time_ms:i64@2-4=-1 topics[name:topic@2-9 topic_id:uuid@10+ partitions[partition_index:i32 "
        "committed_offset:i64 committed_leader_epoch:i32@6+=-1 committed_metadata:string?]]",
        "throttle_time_ms:i32@3+ topics[name:topic@2-9 topic_id:uuid@10+ partitions[partition_index:i32 "
        "error_code:i16]]",
    ),
    "OffsetDelete": Table(
        47,
        0,
        0,
        NEVER,
        "group_id:group topics[name:topic partitions[partition_index:i32]]",
        "error_code:i16 throttle_time_ms:i32 topics[name:topic partitions[partition_index:i32 error_code:i16]]",
    ),
    "OffsetFetch": Table(
        9,
        1,
        10,
        6,
        "group_id:group@1-7 topics?2+@1-7[name:topic partition_indexes:[]i32] groups@8+[group_id:group "
        "member_id:string?@9+=null member_epoch:i32@9+=-1 topics?[name:topic@8-9 topic_id:uuid@10+ "
        "partition_indexes:[]i32]] require_stable:bool@7+",
        "throttle_time_ms:i32@3+ topics@1-7[name:topic partitions[partition_index:i32 committed_offset:i64 "
        "committed_leader_epoch:i32@5+=-1 metadata:string? error_code:i16]] error_code:i16@2-7 "
        "groups@8+[group_id:group topics[name:topic@8-9 topic_id:uuid@10+ partitions[partition_index:i32 "
        "committed_offset:i64 committed_leader_epoch:i32=-1 metadata:string? error_code:i16]] error_code:i16]",
    ),
    "OffsetForLeaderEpoch": Table(
        23,
        2,
        4,
        4,
        "replica_id:i32@3+=-2 topics[topic:topic partitions[partition:i32 current_leader_epoch:i32=-1 "
        "leader_epoch:i32]]",
        "throttle_time_ms:i32 topics[topic:topic partitions[error_code:i16 partition:i32 leader_epoch:i32=-1 "
        "end_offset:i64=-1]]",
    ),
    "Produce": Table(
        0,
        3,
        13,
        9,
        "transactional_id:string?=null acks:i16 timeout_ms:i32 topic_data[name:topic@3-12 topic_id:uuid@13+ "
        "partition_data[index:i32 records:records?]]",
        "responses[name:topic@3-12 topic_id:uuid@13+ partition_responses[index:i32 error_code:i16 base_offset:i64 "
        "log_append_time_ms:i64=-1 log_start_offset:i64@5+=-1 record_errors@8+[batch_index:i32 "
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
    "ShareAcknowledge": Table(
        79,
        1,
        2,
        0,
        "group_id:group?=null member_id:string? share_session_epoch:i32 is_renew_ack:bool@2+ topics[topic_id:uuid "
        "partitions[partition_index:i32 acknowledgement_batches[first_offset:i64 last_offset:i64 "
        "acknowledge_types:[]i8]]]",
        "throttle_time_ms:i32 error_code:i16 error_message:string?=null acquisition_lock_timeout_ms:i32@2+ "
        "responses[topic_id:uuid partitions[partition_index:i32 error_code:i16 error_message:string?=null "
        "current_leader{leader_id:i32 leader_epoch:i32}]] node_endpoints[node_id:i32 host:string port:i32 "
        "rack:string?=null]",
    ),
    "ShareFetch": Table(
        78,
        1,
        2,
        0,
        "group_id:group?=null member_id:string? share_session_epoch:i32 max_wait_ms:i32 min_bytes:i32 "
        "max_bytes:i32=2147483647 max_records:i32 batch_size:i32 share_acquire_mode:i8@2+ is_renew_ack:bool@2+ "
        "topics[topic_id:uuid partitions[partition_index:i32 acknowledgement_batches[first_offset:i64 "
        "last_offset:i64 acknowledge_types:[]i8]]] forgotten_topics_data[topic_id:uuid partitions:[]i32]",
        "throttle_time_ms:i32 error_code:i16 error_message:string?=null acquisition_lock_timeout_ms:i32 "
        "responses[topic_id:uuid partitions[partition_index:i32 error_code:i16 error_message:string?=null "
        "acknowledge_error_code:i16 acknowledge_error_message:string?=null current_leader{leader_id:i32 "
        "leader_epoch:i32} records:records acquired_records[first_offset:i64 last_offset:i64 "
        "delivery_count:i16]]] node_endpoints[node_id:i32 host:string port:i32 rack:string?=null]",
    ),
    "ShareGroupDescribe": Table(
        77,
        1,
        1,
        0,
        "group_ids:[]group include_authorized_operations:bool",
        "throttle_time_ms:i32 groups[error_code:i16 error_message:string?=null group_id:group group_state:string "
        "group_epoch:i32 assignment_epoch:i32 assignor_name:string members[member_id:string rack_id:string?=null "
        "member_epoch:i32 client_id:string client_host:string subscribed_topic_names:[]topic "
        "assignment{topic_partitions[topic_id:uuid topic_name:topic partitions:[]i32]}] "
        "authorized_operations:i32=-2147483648]",
    ),
    "ShareGroupHeartbeat": Table(
        76,
        1,
        1,
        0,
        "group_id:group member_id:string member_epoch:i32 rack_id:string?=null subscribed_topic_names:[]topic?=null",
        "throttle_time_ms:i32 error_code:i16 error_message:string?=null member_id:string?=null member_epoch:i32 "
        "heartbeat_interval_ms:i32 assignment?=null{topic_partitions[topic_id:uuid partitions:[]i32]}",
    ),
    "SyncGroup": Table(
        14,
        0,
        5,
        4,
        "group_id:group generation_id:i32 member_id:string group_instance_id:string?@3+=null "
        "protocol_type:string?@5+=null protocol_name:string?@5+=null assignments[member_id:string "
        "assignment:bytes]",
        "throttle_time_ms:i32@1+ error_code:i16 protocol_type:string?@5+=null protocol_name:string?@5+=null "
        "assignment:bytes",
    ),
}
