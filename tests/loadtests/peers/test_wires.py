"""The wires find every reply however the stream is cut, and report errors as such."""

import pytest

from loadtests.generators.records import numbered_value
from loadtests.peers import nats_wires, redis_wires

PIECES = (1, 3, 17, 100_000)


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


# NATS

ACK = b'MSG _INBOX.s.0 1 28\r\n{"stream":"s", "seq":123456}\r\n'
INFO = b'INFO {"server_id":"x"}\r\n'


@pytest.mark.parametrize("piece", PIECES)
def test_nats_acknowledges_each_message(piece):
    wire = nats_wires.Publish("s", 0)
    assert wire.request(1) == b"PUB s _INBOX.s.0 100\r\n%b\r\n" % numbered_value(1)
    assert fed(wire, INFO + ACK + b"PING\r\n" + ACK, piece) == [("",)] * 2


def test_an_error_of_nats_is_one():
    (reply,) = fed(nats_wires.Publish("s", 0), INFO + b'MSG i 1 30\r\n{"error":{"code":503},"seq":0}\r\n', 100)
    assert "503" in reply.error


def test_nats_follower_answers_pings():
    message = b"MSG tail 1 100\r\n%b\r\n" % numbered_value(9)
    assert followed(nats_wires.Follow("tail"), INFO + message + b"PING\r\n", 1000) == ([9], b"PONG\r\n")


# Redis


def entry(name, value):
    return b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nv\r\n$%d\r\n%b\r\n" % (len(name), name, len(value), value)


@pytest.mark.parametrize("piece", PIECES)
def test_redis_acknowledges_each_entry_with_its_id(piece):
    wire = redis_wires.Add("s")
    assert wire.request(1) == b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nv\r\n$100\r\n%b\r\n" % numbered_value(1)
    assert fed(wire, b"$5\r\n12-34\r\n" * 2, piece) == [("",)] * 2


def test_an_error_of_redis_is_one():
    (reply,) = fed(redis_wires.Add("s"), b"-OOM command not allowed\r\n", 100)
    assert reply.error.startswith("-OOM")


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
