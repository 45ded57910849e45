"""Our small Kafka codec against kafka-python's, which is made from Kafka's own message definitions."""

import pytest
from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from loadtests.generators.bodies import batch_body, json_values
from loadtests.peers import kafka_codec as codec
from loadtests.peers.kafka_codec import CREATE_TOPICS, DELETE_TOPICS, FETCH, KNOWN, LIST_OFFSETS, PRODUCE

BATCH = batch_body(json_values(3), 1_700_000_000_000).data


def versions(api):
    lowest, highest = KNOWN[api]
    return range(lowest, highest + 1)


def decoded(request_class, api, version, body):
    data = codec.request(api, version, 7, body)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    found = request_class.decode(data[4:], version=version, header=True)
    assert (found.header.correlation_id, found.header.client_id) == (7, "penstock-bench")
    return found


def encoded(response, version):
    return (7).to_bytes(4, "big") + response.encode(version=version)


@pytest.mark.parametrize("version", versions(PRODUCE))
def test_a_produce_carries_the_batch_and_its_answer_is_read(version):
    found = decoded(ProduceRequest, PRODUCE, version, codec.produce_body(b"t", 1, 30_000, BATCH))
    (topic,) = found.topic_data
    (partition,) = topic.partition_data
    assert (found.acks, found.timeout_ms, topic.name, partition.index) == (1, 30_000, "t", 0)
    assert bytes(partition.records) == BATCH
    topic_class = ProduceResponse.TopicProduceResponse
    part = topic_class.PartitionProduceResponse(index=0, error_code=3, base_offset=12_345_678_901)
    answer = encoded(ProduceResponse(responses=[topic_class(name="t", partition_responses=[part])]), version)
    assert codec.parse_produced(answer) == (7, 3, 12_345_678_901)


@pytest.mark.parametrize("version", versions(FETCH))
def test_a_fetch_names_offset_and_bounds_and_its_answer_is_read(version):
    found = decoded(FetchRequest, FETCH, version, codec.fetch_body(version, b"t", 5_000_000_000, 1000, 20))
    (topic,) = found.topics
    (partition,) = topic.partitions
    assert (found.replica_id, found.max_wait_ms, found.min_bytes, found.max_bytes) == (-1, 20, 1, 1000)
    assert (topic.topic, partition.partition) == ("t", 0)
    assert (partition.fetch_offset, partition.partition_max_bytes) == (5_000_000_000, 1000)
    topic_class = FetchResponse.FetchableTopicResponse
    part = topic_class.PartitionData(partition_index=0, high_watermark=9, records=BATCH, aborted_transactions=[])
    answer = encoded(FetchResponse(responses=[topic_class(topic="t", partitions=[part])]), version)
    assert codec.parse_fetched(version, answer) == (7, 0, 9, BATCH)


@pytest.mark.parametrize("version", versions(FETCH))
def test_an_error_of_a_partition_is_read(version):
    topic_class = FetchResponse.FetchableTopicResponse
    part = topic_class.PartitionData(partition_index=0, error_code=6, high_watermark=-1, records=None)
    answer = encoded(FetchResponse(responses=[topic_class(topic="t", partitions=[part])]), version)
    assert codec.parse_fetched(version, answer).error == 6


@pytest.mark.parametrize("version", versions(LIST_OFFSETS))
def test_the_log_end_is_asked_for_and_read(version):
    found = decoded(ListOffsetsRequest, LIST_OFFSETS, version, codec.log_end_body(version, b"t"))
    assert found.topics[0].partitions[0].timestamp == -1
    topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
    part = topic_class.ListOffsetsPartitionResponse(partition_index=0, offset=77)
    answer = encoded(ListOffsetsResponse(topics=[topic_class(name="t", partitions=[part])]), version)
    assert codec.parse_log_end(version, answer) == (0, 77)


@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
def test_a_topic_is_created_with_its_settings(version):
    body = codec.create_topic_body(b"t", {"flush.messages": "1"}, 30_000)
    (topic,) = decoded(CreateTopicsRequest, CREATE_TOPICS, version, body).topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 1, 1)
    assert [(config.name, config.value) for config in topic.configs] == [("flush.messages", "1")]
    result = CreateTopicsResponse.CreatableTopicResult(name="t", error_code=36, error_message="exists")
    assert codec.parse_topic_error(encoded(CreateTopicsResponse(topics=[result]), version)) == 36


@pytest.mark.parametrize("version", versions(DELETE_TOPICS))
def test_a_topic_is_deleted(version):
    found = decoded(DeleteTopicsRequest, DELETE_TOPICS, version, codec.delete_topic_body(b"t", 30_000))
    assert found.topic_names == ["t"]
    result = DeleteTopicsResponse.DeletableTopicResult(name="t", error_code=3)
    assert codec.parse_topic_error(encoded(DeleteTopicsResponse(responses=[result]), version)) == 3


def test_the_highest_version_in_common_is_chosen():
    offered = dict.fromkeys(KNOWN, (0, 99)) | {PRODUCE: (3, 5)}
    chosen = codec.negotiate(offered)
    assert (chosen[PRODUCE], chosen[FETCH]) == (5, 11)


def test_no_version_in_common_is_an_error():
    with pytest.raises(codec.KafkaError, match="API 1: known are the versions 4 to 11, offered are 12 to 18"):
        codec.negotiate(dict.fromkeys(KNOWN, (0, 99)) | {FETCH: (12, 18)})


def test_a_cut_batch_at_the_end_is_left_out():
    found = list(codec.batches_in(BATCH + BATCH[:-1]))
    assert found == [codec.StoredBatch(0, 3, 3)]


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
def test_responses_are_found_however_the_stream_is_cut(piece):
    bodies = [b"a" * 5, b"", b"b" * 300, b"c"]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    frames = codec.Frames()
    found = [frame for at in range(0, len(stream), piece) for frame in frames.take(stream[at : at + piece])]
    assert found == bodies
