"""Requests to a node that does not lead behave as requests to the leader, except for a pause while leadership moves."""

from __future__ import annotations

import asyncio

from engine.directory.topics import TopicRecord
from replication.errors import NotEnoughReplicas
from tests.gateway.several_nodes import several_nodes
from tests.scenarios.conformity import assert_problem

NDJSON = "application/x-ndjson"


async def until(is_true) -> None:
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0.002)


async def test_any_node_takes_records_and_gives_them_back(cluster):
    topics = await cluster.create("t", leader=2)
    answer = await topics[1].post_lines("1", "2")
    assert answer.status == 200
    assert answer.headers["Penstock-Leader"] == cluster.members[2].node.peers.url
    assert cluster.members[2].partition("t").log_end == 2
    assert cluster.members[1].partition("t").log_end == 0
    assert await topics[1].values() == await topics[2].values() == [1, 2]
    assert "Penstock-Leader" in (await topics[1].fetch(0)).headers
    assert "Penstock-Leader" not in (await topics[2].fetch(0)).headers
    # of the log: this test has no replication
    assert (await topics[1].fetch(0)).headers["Penstock-Leader-Epoch"] == "1"


async def test_a_direct_request_gets_the_leaders_url(cluster):
    topics = await cluster.create("t", leader=2)
    straight = {"Penstock-Forward": "never"}
    refused = await topics[1].post(b"1", NDJSON, straight)
    url = cluster.members[2].node.peers.url
    assert_problem(refused, "misdirected", leader_url=url, no_side_effects=True, retryable=False)
    assert refused.headers["Penstock-Leader"] == url
    path = f"{topics[1].path}/partitions/0/records?offset=0"
    assert_problem(await topics[1].gateway.send("GET", path, b"", straight), "misdirected", leader_url=url)
    assert (await topics[2].post(b"1", NDJSON, straight)).status == 200
    assert (await topics[2].gateway.send("GET", path, b"", straight)).json["records"][0]["value"] == 1


async def test_a_produce_waits_for_a_leader(cluster):
    topics = await cluster.create("t", leader=2)
    cluster.world.lead(0, None)
    waiting = asyncio.ensure_future(topics[1].post_lines("1"))
    await until(lambda: cluster.members[1].node.failover.retries)
    assert not waiting.done()
    cluster.world.lead(0, 2)
    assert (await waiting).status == 200
    assert await topics[2].values() == [1]


async def test_an_append_that_no_leader_took_in_time_is_reported_as_not_stored(cluster):
    topics = await cluster.create("t", leader=2)
    cluster.world.lead(0, None)
    for acks in ("0", "1", "all"):
        assert_problem(await topics[1].post_lines("1", timeout_ms=50, acks=acks), "no_leader", no_side_effects=True)
    cluster.world.lead(0, 2)
    cluster.members[2].leader("t").rejection = NotEnoughReplicas("one of two")
    answer = await topics[1].post_lines("1", timeout_ms=50)
    assert_problem(answer, "not_enough_replicas", no_side_effects=True, retryable=True)
    assert cluster.members[2].partition("t").log_end == 0


async def test_records_that_waited_are_stored_in_the_order_in_which_they_came(cluster):
    """For any outcome of their attempts; a later request is stored after those that wait."""
    topics = await cluster.create("t", leader=2)
    leader, failover = cluster.members[2].leader("t"), cluster.members[1].node.failover
    leader.rejection = NotEnoughReplicas("one of two")
    waiting = []
    for value in range(20):
        waiting.append(asyncio.ensure_future(topics[1].post_lines(str(value))))
        await until(lambda count=value: failover.retries > count)
    await until(lambda: leader.lookups > 8)  # by the queue, not by each request
    leader.rejection = None
    late = asyncio.ensure_future(topics[1].post_lines("20"))
    answers = await asyncio.gather(*waiting, late)
    assert {answer.status for answer in answers} == {200}
    assert await topics[2].values() == list(range(21))
    assert repr(failover).startswith("LeaderFailover(lines=0")
    assert await topics[1].gateway.metric("penstock_failover_waiting_batches") == 0
    assert await topics[1].gateway.metric("penstock_failover_retries_total") >= 20


async def test_too_few_replicas_stop_those_only_who_ask_for_them(cluster):
    topics = await cluster.create("t", leader=1)
    leader = cluster.members[1].leader("t")
    leader.rejection = NotEnoughReplicas("one of two")
    waiting = asyncio.ensure_future(topics[1].post_lines("1"))
    await until(lambda: cluster.members[1].node.failover.retries)
    leader.rejection = None
    assert (await topics[1].post_lines("2", acks=1)).status == 200
    assert (await waiting).status == 200


async def test_a_produce_whose_link_is_lost_is_in_doubt_unless_the_leader_would_recognise_it(cluster):
    topics = await cluster.create("t", leader=2)
    partition = cluster.members[2].partition("t")
    leader = cluster.members[2].leader("t")
    plain = lambda: topics[1].post_lines("1", timeout_ms=60000)  # noqa: E731
    keyed = lambda: topics[1].post(b"1\n", NDJSON, {"Idempotency-Key": "k"}, timeout_ms=60000)  # noqa: E731
    outcomes = []
    for send in (plain, keyed):
        reached = asyncio.Event()
        leader.on_written = lambda _, reached=reached: reached.set()  # and never acknowledges
        sent = asyncio.ensure_future(send())
        await reached.wait()
        del leader.on_written
        cluster.members[1].callers[2].link().close()
        outcomes.append(await sent)
    in_doubt, repeated = outcomes
    assert_problem(in_doubt, "ack_timeout", no_side_effects=False)
    assert (repeated.status, repeated.json["results"][0]["base_offset"]) == (200, 1)
    assert partition.log_end == 2


async def test_a_doubt_is_not_answered_with_a_refusal(cluster):
    """The second attempt is definitely rejected, but the first one may have been stored."""
    topics = await cluster.create("t", leader=2)
    leader = cluster.members[2].leader("t")
    reached = asyncio.Event()
    leader.on_written = lambda _: reached.set()  # and never acknowledges
    sent = asyncio.ensure_future(topics[1].post(b"1\n", NDJSON, {"Idempotency-Key": "k"}, timeout_ms=4000))
    await reached.wait()
    cluster.world.lead(0, None)
    cluster.members[1].callers[2].link().close()
    assert_problem(await sent, "ack_timeout", no_side_effects=False)


async def test_a_long_poll_continues_at_the_next_leader(cluster):
    topics = await cluster.create("t", leader=2)
    for value in ("1", "2"):
        await topics[1].post_lines(value)
    cluster.world.lead(0, 1)
    assert (await topics[2].post_lines("3", "4")).status == 200  # node 1's copy, which is empty, has the same offsets
    cluster.world.lead(0, 2)
    polls = [asyncio.ensure_future(topic.fetch(2, wait_ms=20_000)) for topic in topics.values()]
    await until(lambda: cluster.members[2].node.long_polls.open == 2)
    cluster.world.lead(0, None)
    await asyncio.sleep(0.05)
    cluster.world.lead(0, 1)
    assert (await topics[1].post_lines("5")).json["results"][0]["base_offset"] == 2
    for poll in polls:
        assert [one["value"] for one in (await poll).json["records"]] == [5]


async def test_a_poll_over_many_partitions_continues_at_the_next_leaders(cluster):
    topics = await cluster.create("t", partitions=2, leader=2)
    entry = '{"topic":"t","partition":%d,"offset":0}'
    entries = f'{{"partitions":[{entry % 0},{entry % 1}],"wait_ms":20000}}'.encode()
    json = {"Content-Type": "application/json"}
    poll = asyncio.ensure_future(topics[1].gateway.send("POST", "/v1/fetch", entries, json))
    await until(lambda: cluster.members[1].node.long_polls.open == 1)
    cluster.world.lead(0, None)
    cluster.world.lead(1, None)
    await asyncio.sleep(0.05)
    assert not poll.done()
    cluster.world.lead(0, 1)
    assert (await topics[2].post_lines("7", partition=0)).status == 200
    first, second = (await poll).json["partitions"]
    assert [one["value"] for one in first["records"]] == [7]
    assert second.get("problem", {}).get("code") == "no_leader"


async def test_without_a_leader_reads_say_so_in_the_end(tmp_path):
    async with several_nodes(tmp_path, leader_wait_ms=30) as cluster:
        topics = await cluster.create("t", leader=2)
        cluster.world.lead(0, None)
        assert_problem(await topics[1].fetch(0), "no_leader", retryable=True, no_side_effects=True)
        path = f"{topics[1].path}/partitions/0/offsets"
        assert_problem(await topics[1].gateway.send("GET", path), "no_leader")
        entry = b'{"partitions":[{"topic":"t","partition":0,"offset":0}]}'
        answer = await topics[1].gateway.send("POST", "/v1/fetch", entry, {"Content-Type": "application/json"})
        assert_problem(answer, "no_leader")


async def test_a_new_leader_that_does_not_know_what_is_committed_sends_nobody_away(cluster):
    """A consumer's position is above the high watermark that the new leader knows: a temporary state, not a 416."""
    topics = await cluster.create("t", leader=2)
    await topics[1].post_lines("1")
    leader = cluster.members[2].leader("t")
    leader.is_new = True
    at_end = asyncio.ensure_future(topics[1].fetch(5, wait_ms=0))
    latest = asyncio.ensure_future(topics[1].fetch(**{"from": "latest"}))
    later = asyncio.ensure_future(topics[1].fetch(timestamp=1 << 42, wait_ms=0))
    await asyncio.sleep(0.05)
    assert not at_end.done()
    assert not latest.done()
    assert not later.done()
    leader.is_new = False
    assert_problem(await at_end, "offset_above_high_watermark")
    assert (await latest).json["next_offset"] == (await later).json["next_offset"] == 1


async def test_a_consumer_is_not_served_by_a_leader_that_was_replaced(cluster):
    """It has seen epoch 9; a node that only knows an earlier one has to catch up first."""
    topics = await cluster.create("t", leader=2)
    await topics[1].post_lines("1")
    path = f"{topics[2].path}/partitions/0/records?offset=0"
    waiting = asyncio.ensure_future(topics[2].gateway.send("GET", path, b"", {"Penstock-Leader-Epoch": "9"}))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    cluster.world.put(0, 2, 9)
    assert (await waiting).status == 200
    refused = await topics[2].gateway.send("GET", path, b"", {"Penstock-Leader-Epoch": "x"})
    assert_problem(refused, "invalid_header")


async def test_a_key_is_found_at_the_leader_on_another_node(cluster):
    """The first request went to node 2, the repeat with another body to node 1: rejected for any leader."""
    topics = await cluster.create("t", partitions=4, leader=2)
    keyed = {"Idempotency-Key": "order-17"}
    first = await topics[2].post(b"1\n", NDJSON, keyed)
    again = await topics[1].post(b"1\n", NDJSON, keyed)
    assert again.headers["Penstock-Duplicate"] == "true"
    assert again.json["results"][0]["base_offset"] == first.json["results"][0]["base_offset"]
    assert_problem(await topics[1].post(b"2\n", NDJSON, keyed), "idempotency_key_reused")
    cluster.world.lead(0, None)  # which may know the key: no request is treated as new
    waiting = asyncio.ensure_future(topics[1].post(b"1\n", NDJSON, keyed))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    cluster.world.lead(0, 2)
    assert (await waiting).headers["Penstock-Duplicate"] == "true"


async def test_what_is_done_to_partitions_is_done_at_their_leaders(cluster):
    topics = await cluster.create("t", partitions=2, leader=2)
    cluster.world.lead(1, 1)
    for number in (0, 1):
        assert (await topics[1].post_lines("1", "2", partition=number)).status == 200
    rolled = (await topics[1].roll()).json["partitions"]
    assert [one["sealed_end"] for one in rolled] == [2, 2]
    path = f"{topics[1].path}/partitions/0/"
    assert (await topics[1].gateway.send("DELETE", path + "records", before=1)).json["log_start"] == 1
    assert cluster.members[2].partition("t", 0).log.log_start == 1
    json = {"Content-Type": "application/json"}
    assert (await topics[1].gateway.send("PUT", path + "fence", b'{"token":"a"}', json)).status == 200
    assert (await topics[2].gateway.send("GET", path + "fence")).json["token"] == "a"
    described = await topics[1].describe()
    assert [row["log_end"] for row in described["partitions"]] == [3, 2]


async def test_an_event_stream_continues_at_the_next_leader(cluster):
    topics = await cluster.create("t", leader=2)
    await topics[1].post_lines("1")
    url = topics[1].gateway.url("/v1/topics/t/records?from=earliest")
    async with topics[1].gateway.session.get(url, headers={"Accept": "text/event-stream"}) as stream:
        seen = b""
        while b'"value":1' not in seen:
            seen += await asyncio.wait_for(stream.content.readany(), 60)
        cluster.world.lead(0, None)
        await asyncio.sleep(0.02)
        next_leader = cluster.members[1].leader("t")
        next_leader.is_new = True  # its copy is empty: the stream's position is above its log end
        cluster.world.lead(0, 1)
        await topics[2].post_lines("5", "6")
        next_leader.is_new = False
        while b'"value":6' not in seen:
            assert not stream.content.at_eof(), seen
            seen += await asyncio.wait_for(stream.content.readany(), 60)
        assert b'"value":5' not in seen
        await cluster.members[1].node.drain()  # otherwise the server would wait for the stream's end


async def test_a_reader_is_served_by_a_follower_in_its_rack_as_far_as_that_one_knows(cluster):
    """Nothing is copied in this test: the values show whether a record comes from node 1, a follower, or from node
    2.
    """
    topics = await cluster.create("t", leader=1)
    await topics[1].post_lines("1")
    cluster.world.lead(0, 2)
    await topics[2].post_lines("21", "22")
    for topic in topics.values():
        for rack, offset, expected in (
            ("rack 1", 0, [1]),
            ("rack 2", 0, [21, 22]),
            ("rack 3", 0, [21, 22]),
            ("rack 1", 2, []),  # node 1's log is shorter: the leader answers
        ):
            path = f"{topic.path}/partitions/0/records?offset={offset}"
            fetched = await topic.gateway.send("GET", path, b"", {"Penstock-Rack": rack})
            assert fetched.status == 200, (rack, offset, fetched.body)
            assert [record["value"] for record in fetched.json["records"]] == expected, rack
    cluster.world.put(0, 2, 3, in_sync=[2])  # node 1 is out of sync: it serves no reads
    path = f"{topics[1].path}/partitions/0/records?offset=0"
    fetched = await topics[1].gateway.send("GET", path, b"", {"Penstock-Rack": "rack 1"})
    assert [record["value"] for record in fetched.json["records"]] == [21, 22]
    assert_problem(await topics[1].gateway.send("GET", path, b"", {"Penstock-Rack": ""}), "invalid_header")


async def test_a_long_poll_at_a_follower_continues_at_the_leader_when_it_leaves_the_set(cluster):
    topics = await cluster.create("t", leader=2)
    path = f"{topics[1].path}/partitions/0/records?offset=0&wait_ms=20000"
    poll = asyncio.ensure_future(topics[1].gateway.send("GET", path, b"", {"Penstock-Rack": "rack 1"}))
    await until(lambda: cluster.members[1].node.long_polls.open == 1)
    cluster.world.put(0, 2, 2, in_sync=[2])
    await until(lambda: cluster.members[2].node.long_polls.open == 1)
    await topics[2].post_lines("7")
    assert [record["value"] for record in (await poll).json["records"]] == [7]


async def test_an_event_stream_ends_when_its_topic_was_deleted_and_created_again(cluster):
    """Without a leader the old topic's partitions look as if leadership moved: chaos found a silent stream."""
    topics = await cluster.create("t", leader=2)
    await topics[1].post_lines("1")
    url = topics[1].gateway.url("/v1/topics/t/records?from=earliest")
    async with topics[1].gateway.session.get(url, headers={"Accept": "text/event-stream"}) as stream:
        seen = b""
        while b'"value":1' not in seen:
            seen += await asyncio.wait_for(stream.content.readany(), 60)
        cluster.world.lead(0, None)
        for member in cluster.members.values():
            await member.node.shard.close_topic("t")
            await member.open(TopicRecord("t", "id-of-another", 1, 2, {}, 1_000))
        async with asyncio.timeout(10):  # less than a heartbeat
            seen += await stream.content.read()
        assert b'"code":"unknown_topic"' in seen
