"""The partition of a record: the named one, the one of its key as in Kafka, or the sticky one."""

import pytest

from tests.scenarios.conformity import assert_problem

# murmur2 of Kafka's own tests (UtilsTest); a producer takes (hash & 0x7fffffff) % partitions.
KAFKA_VECTORS = {
    "21": -973_932_308,
    "foobar": -790_332_482,
    "a-little-bit-long-string": -985_981_536,
    "a-little-bit-longer-string": -1_486_304_829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58_897_971,
    "abc": 479_470_107,
}


@pytest.mark.parametrize("partitions", [1, 3, 7, 100])
async def test_a_key_lands_where_a_kafka_producer_would_put_it(new_topic, partitions):
    topic = await new_topic(partitions)
    for key, murmur2 in KAFKA_VECTORS.items():
        (result,) = (await topic.post_lines("1", key=key)).json["results"]
        assert result["partition"] == (murmur2 & 0x7FFF_FFFF) % partitions, key


async def test_a_key_decides_the_same_way_in_every_kind_of_body(new_topic):
    topic = await new_topic(50)
    answers = [
        await topic.post_records({"key": "foobar", "value": 1}),
        await topic.post_records({"key_base64": "Zm9vYmFy", "value": 1}),
        await topic.post_lines('{"k":"foobar"}', key_pointer="/k"),
        await topic.post_lines('{"key":"foobar","value":1}', ndjson="records"),
        await topic.post(b"raw", "text/plain", key="foobar"),
        await topic.post(b"raw", "text/plain", {"Penstock-Key": "foobar"}),
    ]
    expected = (KAFKA_VECTORS["foobar"] & 0x7FFF_FFFF) % 50
    assert [answer.json["results"][0]["partition"] for answer in answers] == [expected] * 6


async def test_a_named_partition_goes_before_the_key(new_topic):
    topic = await new_topic(4)
    own, others = {"key": "abc", "value": "own", "partition": 2}, {"key": "abc", "value": "query"}
    await topic.post_records(own, others, partition=1)
    assert await topic.values(2) == ["own"]
    assert await topic.values(1) == ["query"]


async def test_order_is_kept_within_a_partition_and_a_request(new_topic):
    topic = await new_topic(5)
    await topic.post_records(*({"key": f"key-{n % 20}", "value": n} for n in range(500)))
    values = [await topic.values(partition) for partition in range(5)]
    assert sorted(n for some in values for n in some) == list(range(500))
    assert all(some == sorted(some) for some in values)
    assert all(some for some in values)


async def test_records_without_a_key_of_one_request_stay_together(new_topic):
    """One batch is cheaper than one in each partition."""
    topic = await new_topic(10)
    assert len((await topic.post_lines(*map(str, range(100)))).json["results"]) == 1
    assert len((await topic.post_records(*({"value": n} for n in range(100)))).json["results"]) == 1


async def test_records_without_a_key_reach_every_partition_of_the_shard_in_time(new_topic, form):
    """The shard is the one that accepted this connection: forwarding to another one would gain nothing."""
    topic = await new_topic(3)
    line = '"' + "x" * 20_000 + '"'
    for _ in range(60):
        await topic.post_lines(line, acks="1")
    reached = [(await topic.positions(partition))["log_end"] > 0 for partition in range(3)]
    assert sum(reached) == 3 if form != "sharded" else sum(reached) in (1, 2)


@pytest.mark.parametrize("partition", [3, 2_147_483_647])
async def test_a_partition_that_is_not_there_is_refused(new_topic, partition):
    topic = await new_topic(3)
    assert_problem(await topic.post_lines("1", partition=partition), "unknown_partition")
    assert_problem(await topic.post_lines("1", to=partition), "unknown_partition")
    assert_problem(await topic.post_records({"value": 1, "partition": partition}), "unknown_partition")


@pytest.mark.parametrize("partition", ["x", "-1", "99999999999", "%20", "1.0"])
async def test_what_is_no_partition_number_is_no_partition(topic, partition):
    path = f"{topic.path}/partitions/{partition}/records"
    assert_problem(await topic.gateway.send("POST", path, b"1"), "unknown_partition")
    assert_problem(await topic.gateway.send("GET", path + "?offset=0"), "unknown_partition")


async def test_a_record_may_not_name_another_partition_than_the_path(new_topic):
    topic = await new_topic(2)
    answer = await topic.post_records({"value": 1}, {"value": 2, "partition": 1}, to=0)
    assert_problem(answer, "invalid_body")
    assert await topic.records(0) == await topic.records(1) == []
