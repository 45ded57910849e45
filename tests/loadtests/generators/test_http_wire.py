import pytest

from loadtests.generators.bodies import raw_body
from loadtests.generators.http_wire import HttpProduce
from loadtests.peer_bench.entrants.keyed_session import key_header, sequence_headers

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nserver: x\r\n\r\n{}"
REPEAT = b"HTTP/1.1 200 OK\r\nPenstock-Duplicate: true\r\nContent-Length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\n\r\ngap"


def wire(headers_of=lambda number: b"Number: %d\r\n" % number):
    return HttpProduce("host:1", "/t", raw_body(b"x"), headers_of)


def test_each_request_has_headers_of_its_own():
    one = wire()
    first, second = one.request(7), one.request(9)
    assert first.endswith(b"Number: 0\r\nContent-Length: 1\r\n\r\nx")
    assert b"\r\nNumber: 1\r\n" in second
    assert first.startswith(b"POST /t HTTP/1.1\r\nHost: host:1\r\nContent-Type: application/octet-stream\r\n")


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_answers_are_found_however_the_stream_is_cut(piece):
    one, stream = wire(), GOOD + REFUSED + GOOD
    replies = [reply for at in range(0, len(stream), piece) for reply in one.take(stream[at : at + piece])]
    assert [(reply.records, reply.error) for reply in replies] == [(1, ""), (0, "409: gap"), (1, "")]


def test_a_new_request_taken_for_a_repeat_is_an_error():
    assert wire().take(REPEAT)[0].error == "the node took a new request for a repeat"


def test_keys_differ_and_sequences_count_records():
    assert key_header(1, 2, 3) == b"Idempotency-Key: 1-2-3\r\n"
    assert sequence_headers(5, 1000, 2).endswith(b"Producer-Seq: 2000\r\n")
