"""The APIs that this listener offers, with the versions that it advertises: what is not here is refused."""

from __future__ import annotations

from functools import partial

from gateway.kafka import configs, fetch, groups, metadata, offsets, positions, produce, producer_ids, sasl, topics
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
    }
    for name, handler in handlers.items():
        api = make_api(name, handler, context, ADVERTISED_FIRST.get(name), BY_HAND.get(name))
        apis[api.key] = api
    api = make_api(API_VERSIONS, partial(_api_versions, apis), context)
    apis[api.key] = api
    return apis


def _api_versions(apis: dict[int, Api], request: KafkaRequest, _: object) -> object:
    return metadata.api_versions(request, apis)
