"""The APIs that this listener offers, with the versions that it advertises: what is not here is refused."""

from __future__ import annotations

from functools import partial

from gateway.kafka import (
    acls,
    client_quotas,
    configs,
    consumer_groups,
    fetch,
    groups,
    log_dirs,
    metadata,
    offsets,
    positions,
    produce,
    producer_ids,
    reassignments,
    sasl,
    share_fetch,
    share_groups,
    topics,
    transactions,
)
from gateway.kafka.codec import fetch as fetch_codec
from gateway.kafka.codec import produce as produce_codec
from gateway.kafka.context import KafkaContext
from gateway.kafka.requests import API_VERSIONS, Api, KafkaRequest, Read, Write, make_api

# librdkafka before 2.11.1 turns compression off where version 0 is missing, and sends a later one.
ADVERTISED_FIRST = {"Produce": 0}

BY_HAND: dict[str, tuple[Read, Write]] = {
    "Produce": (produce_codec.read_request, produce_codec.write_answer),
    "Fetch": (fetch_codec.read_request, fetch_codec.write_answer),
}


def make_apis(context: KafkaContext) -> dict[int, Api]:
    """Returns the APIs by their keys."""
    apis: dict[int, Api] = {}
    handlers = {
        "Produce": produce.produce,
        "Fetch": fetch.fetch,
        "ListOffsets": positions.list_offsets,
        "Metadata": metadata.metadata,
        "OffsetCommit": offsets.offset_commit,
        "OffsetFetch": offsets.offset_fetch,
        "FindCoordinator": metadata.find_coordinator,
        "JoinGroup": groups.join_group,
        "Heartbeat": groups.heartbeat,
        "LeaveGroup": groups.leave_group,
        "SyncGroup": groups.sync_group,
        "DescribeGroups": groups.describe_groups,
        "ListGroups": groups.list_groups,
        "SaslHandshake": sasl.handshake,
        "SaslAuthenticate": sasl.authenticate,
        "CreateTopics": topics.create_topics,
        "DeleteTopics": topics.delete_topics,
        "DeleteRecords": positions.delete_records,
        "InitProducerId": producer_ids.init_producer_id,
        "OffsetForLeaderEpoch": positions.offset_for_leader_epoch,
        "DescribeConfigs": configs.describe_configs,
        "CreatePartitions": topics.create_partitions,
        "IncrementalAlterConfigs": configs.incremental_alter_configs,
        "DeleteGroups": groups.delete_groups,
        "OffsetDelete": offsets.offset_delete,
        "DescribeCluster": metadata.describe_cluster,
        "DescribeTopicPartitions": metadata.describe_topic_partitions,
        "AlterConfigs": configs.alter_configs,
        "ListConfigResources": configs.list_config_resources,
        "DescribeLogDirs": log_dirs.describe_log_dirs,
        "AlterReplicaLogDirs": log_dirs.alter_replica_log_dirs,
        "DescribeAcls": acls.describe_acls,
        "CreateAcls": acls.create_acls,
        "DeleteAcls": acls.delete_acls,
        "DescribeClientQuotas": client_quotas.describe_client_quotas,
        "AlterClientQuotas": client_quotas.alter_client_quotas,
        "DescribeUserScramCredentials": sasl.describe_scram_users,
        "ElectLeaders": reassignments.elect_leaders,
        "AlterPartitionReassignments": reassignments.alter_partition_reassignments,
        "ListPartitionReassignments": reassignments.list_partition_reassignments,
        "DescribeProducers": transactions.describe_producers,
        "ListTransactions": transactions.list_transactions,
        "DescribeTransactions": transactions.describe_transactions,
        "ConsumerGroupHeartbeat": consumer_groups.consumer_group_heartbeat,
        "ConsumerGroupDescribe": consumer_groups.consumer_group_describe,
        "ShareGroupHeartbeat": share_groups.share_group_heartbeat,
        "ShareGroupDescribe": share_groups.share_group_describe,
        "ShareFetch": share_fetch.share_fetch,
        "ShareAcknowledge": share_fetch.share_acknowledge,
        "DescribeShareGroupOffsets": share_groups.describe_share_group_offsets,
        "AlterShareGroupOffsets": share_groups.alter_share_group_offsets,
        "DeleteShareGroupOffsets": share_groups.delete_share_group_offsets,
    }
    for name, handler in handlers.items():
        api = make_api(name, handler, context, ADVERTISED_FIRST.get(name), BY_HAND.get(name))
        apis[api.key] = api
    api = make_api(API_VERSIONS, partial(_api_versions, apis), context)
    apis[api.key] = api
    return apis


def _api_versions(apis: dict[int, Api], request: KafkaRequest, _: object) -> object:
    return metadata.api_versions(request, apis)
