"""Fetch and Produce by hand mean what the tables mean, in both directions, and refuse what is not whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.kafka.codec import fetch, produce
from gateway.kafka.codec.fetch import FetchAnswer, FetchRow
from gateway.kafka.codec.messages import Malformed, Message, Output, direction, read_message, write_message
from gateway.kafka.codec.produce import ProduceAnswer, ProduceRow
from gateway.kafka.codec.tables import TABLES
from tests.gateway.kafka.random_messages import messages

ORDERS = settings(max_examples=25, deadline=None, derandomize=True, database=None)
VERSIONS = [
    (api, version) for api in ("Fetch", "Produce") for version in range(TABLES[api].first, TABLES[api].last + 1)
]

READ = {"Fetch": fetch.read_request, "Produce": produce.read_request}
NUMBERS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=12)
ENDPOINTS = st.lists(st.tuples(NUMBERS, TEXTS, NUMBERS, TEXTS | st.none()), max_size=2)
RECORDS = st.binary(max_size=6000)


def keys(version: int, first_with_ids: int) -> st.SearchStrategy[str | bytes]:
    return st.binary(min_size=16, max_size=16) if version >= first_with_ids else TEXTS


def plain(api: str, version: int, message: Message) -> tuple[Any, ...]:
    """Returns a request of the tables as the one that is read by hand."""
    has_ids = version >= 13
    if api == "Produce":
        topics = [
            (one.topic_id if has_ids else one.name, [(of.index, of.records) for of in one.partition_data])
            for one in message.topic_data
        ]
        return message.transactional_id, message.acks, message.timeout_ms, topics
    state = message.replica_state
    asked = [
        (
            one.topic_id if has_ids else one.topic,
            [
                (of.partition, of.current_leader_epoch, of.fetch_offset, of.last_fetched_epoch, of.partition_max_bytes)
                for of in one.partitions
            ],
        )
        for one in message.topics
    ]
    forgotten = [
        (one.topic_id if has_ids else one.topic, list(one.partitions)) for one in message.forgotten_topics_data
    ]
    return (
        message.replica_id if state is None else state.replica_id,
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        message.isolation_level == 1,
        message.session_id,
        message.session_epoch,
        asked,
        forgotten,
        message.rack_id,
    )


def written(api: str, version: int, message: Message) -> bytes:
    out = Output()
    write_message(api, version, message, out, is_request=True)
    return b"".join(out.finished())


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_request_means_what_its_table_means(api: str, version: int) -> None:
    way = direction(api, is_request=True)

    @ORDERS
    @given(messages(way.fields, version, way.types))
    def check(message: Message) -> None:
        data = written(api, version, message)
        expected = plain(api, version, read_message(api, version, memoryview(data)))
        assert tuple(READ[api](version, memoryview(b"head" + data), 4)) == expected

    check()


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_bytes_that_are_no_request_are_refused(api: str, version: int) -> None:
    way = direction(api, is_request=True)

    @ORDERS
    @given(messages(way.fields, version, way.types), st.data())
    def check(message: Message, draw: st.DataObject) -> None:
        data = bytearray(written(api, version, message))
        assume(data)
        at = draw.draw(st.integers(0, len(data) - 1))
        if draw.draw(st.booleans()):
            del data[at:]
        else:
            data[at] = draw.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        try:
            read = tuple(READ[api](version, memoryview(data), 0))
        except Malformed:
            with pytest.raises(Malformed):
                read_message(api, version, memoryview(data))
            return
        try:
            expected = plain(api, version, read_message(api, version, memoryview(data)))
        except Malformed:  # within tagged fields, which are skipped by hand
            return
        assert read == expected

    check()


@pytest.mark.parametrize("version", range(4, 19))
def test_an_answer_to_a_fetch_is_read_by_its_table(version: int) -> None:
    pairs = st.none() | st.tuples(NUMBERS, NUMBERS)
    rows = st.builds(FetchRow, NUMBERS, st.integers(-1, 100), LONGS, LONGS, RECORDS, pairs, pairs, NUMBERS)
    topics = st.lists(st.tuples(keys(version, 13), st.lists(rows, max_size=3)), max_size=3)

    @ORDERS
    @given(topics, st.booleans(), NUMBERS, st.integers(-1, 100), ENDPOINTS)
    def check(given_topics: Any, is_committed: bool, session_id: int, error: int, endpoints: Any) -> None:
        answer = FetchAnswer(
            given_topics, is_committed=is_committed, session_id=session_id, error=error, endpoints=endpoints
        )
        out = Output()
        fetch.write_answer(version, answer, out)
        read = read_message("Fetch", version, memoryview(b"".join(out.finished())), is_request=False)
        if version >= 7:
            assert (read.error_code, read.session_id) == (error, session_id)
        names = [one.topic_id if version >= 13 else one.topic for one in read.responses]
        assert names == [key for key, _ in given_topics]
        for one, (_, expected) in zip(read.responses, given_topics, strict=True):
            for of, row in zip(one.partitions, expected, strict=True):
                assert (of.partition_index, of.error_code, of.high_watermark) == row[:3]
                assert (of.last_stable_offset, bytes(of.records)) == (row.high_watermark, row.data)
                assert of.aborted_transactions == ([] if is_committed else None)
                assert of.log_start_offset == (row.log_start if version >= 5 else -1)
                assert of.preferred_read_replica == (row.preferred if version >= 11 else -1)
                if version >= 12:
                    assert (of.diverging_epoch is None) == (row.diverging is None)
                    assert (
                        row.diverging is None
                        or (of.diverging_epoch.epoch, of.diverging_epoch.end_offset) == row.diverging
                    )
                    assert (
                        row.leader is None
                        or (of.current_leader.leader_id, of.current_leader.leader_epoch) == row.leader
                    )
        if version >= 16:
            assert [(one.node_id, one.host, one.port, one.rack) for one in read.node_endpoints] == endpoints

    check()


@pytest.mark.parametrize("version", range(3, 14))
def test_an_answer_to_a_produce_is_read_by_its_table(version: int) -> None:
    pairs = st.none() | st.tuples(NUMBERS, NUMBERS)
    errors = st.lists(st.tuples(NUMBERS, TEXTS | st.none()), max_size=2)
    rows = st.builds(ProduceRow, NUMBERS, st.integers(-1, 100), LONGS, LONGS, LONGS, errors, TEXTS | st.none(), pairs)
    topics = st.lists(st.tuples(keys(version, 13), st.lists(rows, max_size=3)), max_size=3)

    @ORDERS
    @given(topics, NUMBERS, ENDPOINTS)
    def check(given_topics: Any, throttle_ms: int, endpoints: Any) -> None:
        out = Output()
        produce.write_answer(version, ProduceAnswer(given_topics, throttle_ms, endpoints), out)
        read = read_message("Produce", version, memoryview(b"".join(out.finished())), is_request=False)
        assert read.throttle_time_ms == throttle_ms
        names = [one.topic_id if version >= 13 else one.name for one in read.responses]
        assert names == [key for key, _ in given_topics]
        for one, (_, expected) in zip(read.responses, given_topics, strict=True):
            for of, row in zip(one.partition_responses, expected, strict=True):
                assert (of.index, of.error_code, of.base_offset, of.log_append_time_ms) == row[:4]
                assert of.log_start_offset == (row.log_start if version >= 5 else -1)
                if version >= 8:
                    found = [(each.batch_index, each.batch_index_error_message) for each in of.record_errors]
                    assert (found, of.error_message) == (row.record_errors, row.text)
                if version >= 10:
                    assert (
                        row.leader is None
                        or (of.current_leader.leader_id, of.current_leader.leader_epoch) == row.leader
                    )
        if version >= 10:
            assert [(one.node_id, one.host, one.port, one.rack) for one in read.node_endpoints] == endpoints

    check()
