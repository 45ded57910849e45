"""Nodes of two versions work together during an upgrade: an older one ignores the additions of a newer one.

Lists grow at their end, objects by names; existing elements keep their position and meaning. A change of meaning has a
new version number: of the link's protocol, of the fetch, of the cluster's format.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from engine.errors import Invalid
from engine.producers.appends import AppendConditions, Appended, conditions_of
from replication.cluster.values import (
    NodeInfo,
    TopicEntry,
    block_from_bytes,
    block_to_bytes,
    node_from_bytes,
    node_to_bytes,
    states_from_plain,
    states_to_plain,
    topic_from_bytes,
    topic_to_bytes,
)
from replication.cores.fetch import FollowerFetch, Send
from replication.cores.partition_state import Member, PartitionState, VersionedState
from replication.replica.fetch_wire import (
    FetchReply,
    FetchRequest,
    as_fetch_partition,
    as_partition_response,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)

STATE = VersionedState(PartitionState((1, 2), Member(1, 5), 3, (Member(1, 5), Member(2, 6))), 7)
UNKNOWN_FIELD = {"of a newer version": [1]}


def with_more(value: bytes) -> bytes:
    return orjson.dumps(orjson.loads(value) | UNKNOWN_FIELD)


def test_in_the_coordination_store():
    node = NodeInfo(1, 5, "http://n")
    assert node_from_bytes("/nodes/1", with_more(node_to_bytes(node)), 5) == node
    topic = TopicEntry("t", "id", 3, 2, {"min_insync_replicas": 1}, 9)
    assert topic_from_bytes("/topics/t", with_more(topic_to_bytes(topic))) == topic
    block = orjson.loads(block_to_bytes({4: STATE}))
    block["4"].append(UNKNOWN_FIELD)
    assert block_from_bytes("/states/id.0", orjson.dumps(block)) == {4: STATE}


def test_in_a_topic_with_a_setting_that_is_not_known():
    """It cannot be opened here, but its leader and its eligible replicas are known."""
    topic = topic_from_bytes("/topics/t", topic_to_bytes(TopicEntry("t", "id", 1, 3, {"of_a_newer_version": 1})))
    assert topic.rules.min_insync_replicas == 2


def test_in_messages_of_the_supervisor():
    (plain_state,) = states_to_plain([("id", 4, STATE)])
    assert states_from_plain([[*plain_state, UNKNOWN_FIELD]]) == [("id", 4, STATE)]


def test_in_a_replica_fetch():
    request = FetchRequest(
        session="s",
        session_epoch=0,
        is_full=True,
        node_id=2,
        broker_epoch=7,
        shard=0,
        bytes_min=1,
        bytes_max=9,
        wait_ms=1,
        partitions=[as_fetch_partition("id/4", FollowerFetch(2, 7, 3, 10, 10, 3, 9))],
    )
    plain: Any = msgspec.msgpack.decode(encode_request(request))
    plain[FetchRequest.__struct_fields__.index("partitions")][0].append(UNKNOWN_FIELD)
    assert decode_request(msgspec.msgpack.encode([*plain, UNKNOWN_FIELD])) == request


def test_in_the_answer_to_one():
    reply = FetchReply(is_session_known=True, responses=[as_partition_response("id/4", Send(10, 9, 0), 3, 12)])
    body = b"".join(encode_reply(reply, [b"abc"]))
    length = int.from_bytes(body[:4], "big")
    plain: Any = msgspec.msgpack.decode(body[4 : 4 + length])
    plain[1][0].append(UNKNOWN_FIELD)
    header = msgspec.msgpack.encode([*plain, UNKNOWN_FIELD])
    found, data = decode_reply(len(header).to_bytes(4, "big") + header + body[4 + length :])
    assert found == reply
    assert [bytes(one) for one in data] == [b"abc"]


def test_in_an_append_on_a_link_and_what_it_returns():
    assert Appended.of([*Appended(5, 2), UNKNOWN_FIELD]) == Appended(5, 2)
    conditions = AppendConditions(expected_end=3)
    assert conditions_of([*conditions, None]) == conditions


def test_but_a_demand_that_is_not_known_is_refused():
    """Storing it would promise a condition that this version does not check."""
    with pytest.raises(Invalid, match="does not support"):
        conditions_of([*AppendConditions(expected_end=3), "at full moon"])
