"""The bytes of a replica fetch: round trips, and rejection of truncated or invalid bytes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Invalid
from engine.log.epochs import EpochEnd
from replication.cores.fetch import Diverging, FetchError, FollowerFetch, OutOfRange, Send
from replication.replica import fetch_wire
from replication.replica.fetch_wire import FetchReply, FetchRequest, as_fetch_partition, as_partition_response

OFFSETS = st.integers(0, 2**62)
EPOCHS = st.none() | st.integers(0, 2**31)
FETCHES = st.builds(
    FollowerFetch, st.just(2), st.just(7), OFFSETS, OFFSETS, OFFSETS, EPOCHS, OFFSETS, compacted_end=OFFSETS
)
ANSWERS = st.one_of(
    st.sampled_from(FetchError),
    st.builds(OutOfRange, OFFSETS, OFFSETS, OFFSETS),
    st.builds(Diverging, st.builds(EpochEnd, OFFSETS, OFFSETS)),
)


def request(asked: list[fetch_wire.FetchPartition], **others: object) -> FetchRequest:
    fields = {"session": "s", "session_epoch": 3, "is_full": True, "node_id": 2, "broker_epoch": 7, "shard": 1}
    limits = {"bytes_min": 1, "bytes_max": 1000, "wait_ms": 500}
    return FetchRequest(partitions=asked, **(fields | limits | others))


@given(st.dictionaries(st.text(min_size=1), FETCHES), st.lists(st.text()))
def test_a_request_says_what_each_replica_asked(fetches, forgotten):
    sent = request([as_fetch_partition(key, fetch) for key, fetch in fetches.items()], forgotten=forgotten)
    found = fetch_wire.decode_request(fetch_wire.encode_request(sent))
    assert found == sent
    assert dict(found.fetches()) == fetches


@given(st.lists(st.tuples(FETCHES, ANSWERS | st.tuples(OFFSETS, OFFSETS, st.binary()))))
def test_an_answer_says_what_the_leader_said_with_its_batches(given_):
    answered, batches, expected = [], [], []
    for number, (fetch, answer) in enumerate(given_):
        data = b""
        if isinstance(answer, tuple):
            high_watermark, log_start, data = answer
            answer = Send(fetch.log_end, high_watermark, log_start, fetch.compacted_end)
            batches += [data] if data else []
        answered.append(as_partition_response(str(number), answer, len(data)))
        expected.append((fetch, answer, data))
    body = b"".join(fetch_wire.encode_reply(FetchReply(True, answered), batches))
    reply, found = fetch_wire.decode_reply(body)
    assert reply.is_session_known
    for one, data, (fetch, answer, sent) in zip(reply.responses, found, expected, strict=True):
        assert one.answer_to(fetch) == answer
        assert bytes(data) == sent


@given(st.binary())
def test_strangers_bytes_are_refused(body):
    for decode in (fetch_wire.decode_request, fetch_wire.decode_reply):
        try:
            decode(body)
        except Invalid:
            continue


def test_an_answer_that_is_cut_off_or_continues_is_refused():
    pieces = fetch_wire.encode_reply(FetchReply(True, [as_partition_response("a", Send(0, 1, 0), 4)]), [b"1234"])
    body = b"".join(pieces)
    fetch_wire.decode_reply(body)
    for wrong in (body[:-1], body + b"5", body[:3], b"\xff\xff\xff\xff" + body[4:]):
        with pytest.raises(Invalid):
            fetch_wire.decode_reply(wrong)


def test_sizes_below_zero_are_refused():
    pieces = fetch_wire.encode_reply(FetchReply(True, [as_partition_response("a", Send(0, 1, 0), -4)]), [])
    with pytest.raises(Invalid, match="cut off"):
        fetch_wire.decode_reply(b"".join(pieces))


def test_another_version_is_refused():
    with pytest.raises(Invalid, match="version 9"):
        fetch_wire.decode_request(fetch_wire.encode_request(request([], version=9)))


def test_a_verdict_that_nobody_knows_is_refused():
    answered = fetch_wire.PartitionResponse("a", "perhaps")
    with pytest.raises(Invalid, match="perhaps"):
        answered.answer_to(FollowerFetch(1, 1, 1, 1, 1, None))


def test_a_first_fetch_of_many_partitions_stays_small():
    """The internal listener accepts at most 16 MiB: 100,000 partitions."""
    key = "0123456789abcdef0123456789abcdef/9999"
    one = msgspec.msgpack.encode(
        as_fetch_partition(key, FollowerFetch(1, 10**12, 10**6, 10**12, 10**12, 10**6, 10**12))
    )
    assert len(one) < 100
