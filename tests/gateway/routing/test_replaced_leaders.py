"""A leader that was replaced and does not know it gives no answer that a client would take as final.

Its log lacks what the new leader has committed. Reads below its high watermark are allowed: they are stale, not wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest

from replication.replica.replica import Replica
from tests.gateway.several_nodes import Cluster, HostOfOne, several_nodes
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import Answer, Topic

JSON = "application/json"
ABOVE = 5


class HostOfReplaced(HostOfOne):
    """Node 2 takes itself for the leader. The store, if reachable, contradicts it until `confirms_it` is set."""

    def __init__(self) -> None:
        super().__init__(2)
        self.confirms_it = False
        self.lookups = 0

    async def confirms(self, replica: Replica, leader_epoch: int) -> bool:
        self.lookups += 1
        await asyncio.sleep(0)
        return self.confirms_it


@pytest.fixture
async def cluster(tmp_path) -> AsyncIterator[Cluster]:
    async with several_nodes(tmp_path, leader_wait_ms=50, produce_timeout_ms=3000) as cluster:
        yield cluster


@pytest.fixture
async def topics(cluster) -> dict[int, Topic]:
    """Return the topic `t` at each node, with one record; node 2 leads it."""
    topics = await cluster.create("t", leader=2)
    await topics[2].post_lines("1")
    return topics


@pytest.fixture
def host(cluster, topics) -> HostOfReplaced:
    host = HostOfReplaced()
    cluster.members[2].leader("t").host = host
    return host


async def fetch_many(topic: Topic, offset: int) -> Answer:
    entry = {"partitions": [{"topic": topic.name, "partition": 0, "offset": offset}]}
    return await topic.gateway.send("POST", "/v1/fetch", orjson.dumps(entry), {"Content-Type": JSON})


def assert_passes(answer: Answer) -> None:
    assert_problem(answer, "not_leader", retryable=True, no_side_effects=True)


@pytest.mark.parametrize("node", [1, 2])
async def test_a_position_above_the_watermark_is_refused_for_good_only_by_a_confirmed_leader(topics, host, node):
    assert_passes(await topics[node].fetch(ABOVE))
    assert_passes(await fetch_many(topics[node], ABOVE))
    path = f"{topics[node].path}/partitions/0/records"
    assert_passes(await topics[node].gateway.send("DELETE", path, before=ABOVE))
    assert host.lookups >= 3
    host.confirms_it = True
    assert_problem(await topics[node].fetch(ABOVE), "offset_above_high_watermark")
    assert_problem(await fetch_many(topics[node], ABOVE), "offset_above_high_watermark")
    refused = await topics[node].gateway.send("DELETE", path, before=ABOVE)
    assert_problem(refused, "offset_above_high_watermark")


async def test_reads_below_the_watermark_ask_nobody(topics, host):
    host.has_contact = False
    assert (await topics[1].fetch(0)).json["records"][0]["value"] == 1
    assert (await fetch_many(topics[1], 0)).status == 200
    assert (await topics[1].fetch(1)).json["records"] == []
    assert host.lookups == 0


async def test_the_end_is_not_reported_without_contact_to_the_store(topics, host):
    """It would be below what a reader has read at the new leader."""
    assert (await topics[1].positions())["high_watermark"] == 1
    host.has_contact = False
    assert_passes(await topics[1].fetch(**{"from": "latest"}))
    assert_passes(await topics[1].fetch(timestamp=1 << 42))
    assert_passes(await topics[1].gateway.send("GET", f"{topics[1].path}/partitions/0/offsets"))
    assert (await topics[1].fetch(**{"from": "earliest"})).status == 200


async def test_a_leader_without_contact_refuses_at_once_and_does_not_ask(topics, host):
    host.has_contact, host.confirms_it = False, True
    assert_passes(await topics[1].fetch(ABOVE))
    assert host.lookups == 0


async def test_an_expected_end_is_compared_for_good_only_by_a_confirmed_leader(topics, host):
    """The log of the new leader may end exactly there."""
    expected = {"Penstock-Expected-End": str(ABOVE)}
    assert_passes(await topics[1].post(b"2\n", "application/x-ndjson", expected, to=0, timeout_ms=2000))
    host.confirms_it = True
    refused = await topics[1].post(b"2\n", "application/x-ndjson", expected, to=0)
    assert_problem(refused, "log_end_mismatch", log_end=1)


async def test_a_fencing_token_is_compared_for_good_only_by_a_confirmed_leader(topics, host):
    """The new leader may have the token that is missing here."""
    token = {"Penstock-Fencing-Token": "mine"}
    path, body = f"{topics[1].path}/partitions/0/fence", b'{"token":"other"}'
    host.confirms_it = True
    assert (await topics[1].gateway.send("PUT", path, body, {"Content-Type": JSON})).status == 200
    host.confirms_it = False
    assert_passes(await topics[1].post(b"2\n", "application/x-ndjson", token, to=0, timeout_ms=2000))
    assert_passes(await topics[1].gateway.send("PUT", path, body, {"Content-Type": JSON}))
    host.confirms_it = True
    assert_problem(await topics[1].post(b"2\n", "application/x-ndjson", token, to=0), "fencing_token_mismatch")
    assert (await topics[1].gateway.send("PUT", path, body, {"Content-Type": JSON})).status == 200


async def test_an_event_stream_outlasts_a_leader_that_was_replaced(topics, host, cluster):
    """EventSource stops permanently at an event `problem` and at any status but 200."""
    url = topics[1].gateway.url("/v1/topics/t/partitions/0/records")
    async with topics[1].gateway.session.get(
        url, headers={"Accept": "text/event-stream", "Last-Event-ID": "2"}
    ) as stream:
        assert stream.status == 200
        await topics[2].post_lines("2")
        await topics[2].post_lines("3")
        host.confirms_it = True
        seen = b""
        while b'"value":3' not in seen:
            assert not stream.content.at_eof(), seen
            seen += await asyncio.wait_for(stream.content.readany(), 60)
        assert b"problem" not in seen
        assert b'"value":2' not in seen
        await cluster.members[1].node.drain()


async def test_a_deadline_does_not_give_out_the_rejection_of_a_replaced_leader(topics, host, monkeypatch):
    """The store answers after the time of the request: before the fix the rejection was its answer."""

    async def confirm_late(*_: object) -> bool:
        await asyncio.sleep(0.3)
        return False

    monkeypatch.setattr(host, "confirms", confirm_late)
    rejected = {"Penstock-Expected-End": "7", "Content-Type": "text/plain"}
    answer = await topics[2].post(b"x", "text/plain", rejected, timeout_ms=50, to=0)
    assert answer.json["code"] in ("not_leader", "no_leader"), answer
