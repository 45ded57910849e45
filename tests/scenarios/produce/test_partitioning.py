"""The partition of a record: the named one, the one of its key as in Kafka, or the sticky one."""


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
