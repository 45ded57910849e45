"""The wires find every reply however the stream is cut, and report errors as such."""

import pytest

from loadtests.generators.bodies import batch_body
from loadtests.generators.records import numbered_value
from loadtests.peers import kafka_codec, kafka_wires, nats_wires, redis_wires
from loadtests.peers.kafka_codec import FETCH, KNOWN, PRODUCE

VERSIONS = {api: highest for api, (_, highest) in KNOWN.items()}
PIECES = (1, 3, 17, 100_000)
VALUE = b'{"n":1}'


def cut(stream, piece):
    return [stream[at : at + piece] for at in range(0, len(stream), piece)]


def fed(wire, stream, piece):
    return [reply for part in cut(stream, piece) for reply in wire.take(part)]


def followed(tail, stream, piece):
    numbers, sent = [], b""
    for part in cut(stream, piece):
        found, answer = tail.take(part)
        numbers += found
        sent += answer
    return numbers, sent


# Kafka


def produce_answer(correlation, error=0):
    body = correlation.to_bytes(4, "big") + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0" + error.to_bytes(2, "big") + bytes(40)
    return len(body).to_bytes(4, "big") + body


def fetch_answer(records, high_watermark):
    body = bytes(14) + b"\0\0\0\1\0\1t\0\0\0\1" + bytes(6) + high_watermark.to_bytes(8, "big") + bytes(24)
    body += len(records).to_bytes(4, "big") + records
    return len(body).to_bytes(4, "big") + body


def batch(base_offset, numbers):
    data = batch_body([numbered_value(number) for number in numbers], 1).data
    return base_offset.to_bytes(8, "big") + data[8:]


def produce_wire(**options):
    return kafka_wires.Produce("t", VERSIONS, 5, lambda number: b"batch-%d" % number, **options)


@pytest.mark.parametrize("piece", PIECES)
def test_kafka_acknowledges_in_order(piece):
    wire = produce_wire(is_constant=True)
    requests = [wire.request(0), wire.request(1)]
    assert [int.from_bytes(request[8:12], "big") for request in requests] == [0, 1]
    assert fed(wire, produce_answer(0) + produce_answer(1), piece) == [(5, 61, ""), (5, 61, "")]


def test_an_answer_of_kafka_out_of_order_or_with_an_error_is_one():
    assert fed(produce_wire(is_constant=True), produce_answer(4), 100)[0].error == "answer 4 came instead of 0"
    assert fed(produce_wire(is_constant=True), produce_answer(0, 3), 100)[0].error == "Kafka's error 3"


def test_a_numbered_request_holds_its_number():
    assert b"batch-42" in produce_wire(is_constant=False).request(42)


def test_kafka_reads_to_the_end_and_begins_again():
    wire = kafka_wires.Read("t", VERSIONS, 1000)
    first, second = batch(0, [1, 2]), batch(2, [3])
    assert [reply.records for reply in fed(wire, fetch_answer(first, 3), 50)] == [2]
    assert wire.request(0)[-26:-18] == (2).to_bytes(8, "big")
    assert [reply.records for reply in fed(wire, fetch_answer(second, 3), 50)] == [1]
    assert wire.request(0)[-26:-18] == (0).to_bytes(8, "big")


def test_a_gap_in_what_kafka_answers_is_an_error():
    (reply,) = fed(kafka_wires.Read("t", VERSIONS, 1000), fetch_answer(batch(1, [1]), 2), 1000)
    assert reply.error == "offset 1 came instead of 0"


@pytest.mark.parametrize("piece", PIECES)
def test_kafkas_follower_asks_for_what_comes_next(piece):
    tail = kafka_wires.Follow("t", VERSIONS)
    numbers, sent = followed(tail, fetch_answer(batch(0, [1, 2]), 2) + fetch_answer(b"", 2), piece)
    assert numbers == [1, 2]
    asked = kafka_codec.fetch_body(VERSIONS[FETCH], b"t", 2, kafka_wires.TAIL_BYTES, kafka_wires.TAIL_WAIT_MS)
    assert sent.endswith(asked)
    assert PRODUCE in VERSIONS


# NATS

ACK = b'MSG _INBOX.s.0 1 28\r\n{"stream":"s", "seq":123456}\r\n'
INFO = b'INFO {"server_id":"x"}\r\n'


@pytest.mark.parametrize("piece", PIECES)
def test_nats_acknowledges_a_request_with_its_last_message(piece):
    wire = nats_wires.Publish("s", 0, 2, lambda _: [VALUE, VALUE], is_constant=True)
    assert wire.request(0) == 2 * b'PUB s _INBOX.s.0 7\r\n{"n":1}\r\n'
    assert fed(wire, INFO + ACK * 3 + b"PING\r\n" + ACK, piece) == [(2, 0, "")] * 2


def test_an_error_of_nats_is_one():
    wire = nats_wires.Publish("s", 0, 1, lambda _: [VALUE], is_constant=True)
    (reply,) = fed(wire, INFO + b'MSG i 1 30\r\n{"error":{"code":503},"seq":0}\r\n', 100)
    assert "503" in reply.error


def test_an_atomic_batch_has_an_id_of_its_own_and_is_acknowledged_once():
    wire = nats_wires.PublishAtomic("s", 7, [VALUE, VALUE])
    first, second = wire.request(1), wire.request(2)
    assert first.count(b"Nats-Batch-Id: 0007-00000000001\r\n") == 2
    assert len(first) == len(second)
    assert first.count(b"Nats-Batch-Commit: 1") == first.count(b" _INBOX.s.7 ") == 1
    head_bytes, total_bytes = map(int, first.split(b"\r\n", 1)[0].split()[-2:])
    assert total_bytes - head_bytes == len(VALUE)
    assert first.partition(b"\r\n")[2][head_bytes:total_bytes] == VALUE
    assert fed(wire, INFO + ACK, 5) == [(2, 0, "")]


@pytest.mark.parametrize("piece", PIECES)
def test_a_pull_is_complete_with_its_messages(piece):
    wire = nats_wires.Pull("s", "reader", 3, 2)
    assert b"$JS.API.CONSUMER.MSG.NEXT.s.reader-3 _INBOX.reader.3 " in wire.request(0)
    message = b'MSG s 1 $JS.ACK.s.reader-3.1.1.1.1.0 7\r\n{"n":1}\r\n'
    assert [reply.records for reply in fed(wire, INFO + message * 4, piece)] == [2, 2]


def test_nats_follower_answers_pings():
    message = b"MSG tail 1 100\r\n%b\r\n" % numbered_value(9)
    assert followed(nats_wires.Follow("tail"), INFO + message + b"PING\r\n", 1000) == ([9], b"PONG\r\n")


# Redis


def entry(name, value):
    return b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nv\r\n$%d\r\n%b\r\n" % (len(name), name, len(value), value)


@pytest.mark.parametrize("piece", PIECES)
def test_redis_acknowledges_a_request_with_its_last_id(piece):
    wire = redis_wires.Add("s", 2, lambda _: [VALUE, VALUE], is_constant=True)
    assert wire.request(0) == 2 * b'*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nv\r\n$7\r\n{"n":1}\r\n'
    assert fed(wire, b"$5\r\n12-34\r\n" * 4, piece) == [(2, 0, "")] * 2


def test_an_error_of_redis_is_one():
    wire = redis_wires.Add("s", 1, lambda _: [VALUE], is_constant=True)
    (reply,) = fed(wire, b"-OOM command not allowed\r\n", 100)
    assert reply.error.startswith("-OOM")


@pytest.mark.parametrize("piece", PIECES)
def test_redis_reads_on_behind_the_last_entry_and_begins_again_at_the_end(piece):
    wire = redis_wires.Range("s", 2)
    assert b"$1\r\n-\r\n$1\r\n+\r\n" in wire.request(0)
    replies = fed(wire, b"*2\r\n" + entry(b"5-0", VALUE) + entry(b"5-1", VALUE), piece)
    assert [reply.records for reply in replies] == [2]
    assert b"$4\r\n(5-1\r\n" in wire.request(0)
    assert [reply.records for reply in fed(wire, b"*1\r\n" + entry(b"6-0", VALUE), piece)] == [1]
    assert b"$1\r\n-\r\n" in wire.request(0)


@pytest.mark.parametrize("piece", PIECES)
def test_redis_follower_reads_on_behind_what_came(piece):
    tail = redis_wires.Follow("s")
    assert followed(tail, b"*-1\r\n", piece) == ([], tail.hello())
    head = b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n"
    numbers, sent = followed(tail, head + entry(b"5-0", numbered_value(1)) + entry(b"5-1", numbered_value(2)), piece)
    assert numbers == [1, 2]
    assert sent == tail.hello()
    assert sent.endswith(b"$1\r\ns\r\n$3\r\n5-1\r\n")


def test_an_error_ends_the_follower_of_redis():
    with pytest.raises(ValueError, match="-ERR"):
        redis_wires.Follow("s").take(b"-ERR no\r\n")
