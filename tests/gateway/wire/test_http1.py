"""HTTP/1.1 as bytes: the requests found in any pieces of input, and the bytes of answers."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.http1 import Http1
from gateway.wire.messages import BodyCut, BodyPart, RequestHead, StreamReset
from tests.gateway.wire.conversations import LIMITS, fed, sent, summary

POST = b"POST /a%2Fb?x=%20 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-Sum: 1\r\n\r\n"
UPGRADE = (
    b"POST /u HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AA\r\nContent-Length: 3\r\n\r\nabc"
)
GET = b"GET /g HTTP/1.1\r\nHost: h\r\n\r\n"
CUTS = st.lists(st.integers(1, 400), max_size=20)
OK = [("Content-Length", "2")]


@given(st.permutations([POST, CHUNKED, UPGRADE, GET]), CUTS)
def test_requests_are_the_same_whatever_pieces_they_come_in(requests, cuts):
    data = b"".join(requests)
    complete = summary(fed(Http1(LIMITS), data))
    assert summary(fed(Http1(LIMITS), data, cuts)) == complete
    assert len(complete) == 4
    assert all(one[5] == "whole" for one in complete.values())


@given(st.lists(st.sampled_from([POST, POST.replace(b"abc", b"xyz"), CHUNKED, UPGRADE, GET]), max_size=12), CUTS)
def test_repeated_requests_are_the_same_whatever_pieces_they_come_in(requests, cuts):
    """Heads that were seen before are looked up where a request comes in one piece."""
    data, ends = b"".join(requests), list(accumulate(map(len, requests)))
    assert summary(fed(Http1(LIMITS), data, ends)) == summary(fed(Http1(LIMITS), data))
    assert summary(fed(Http1(LIMITS), data, [*ends, *cuts])) == summary(fed(Http1(LIMITS), data))


def test_requests_with_the_same_head_share_it():
    core = Http1(LIMITS)
    heads = [fed(core, one)[0].head for one in (POST, POST, GET, POST)]
    assert heads[0] is heads[1] is heads[3]
    longer = POST.replace(b"Length: 3", b"Length: 4")
    assert fed(core, longer + b"d")[0].head.content_length == 4


VALUES = st.one_of(
    st.sampled_from([b"1", b"2", b"0002", b"two words", b" padded ", b"", b"a\tb", b"+1", b"1\r", b"1\n", b"\xc3\xa4"]),
    st.from_regex(rb"[!-~]{1,5}", fullmatch=True),
    st.integers(0, 12).map(lambda number: b"%d" % number),
)
VARIED = st.sampled_from([b"Content-Length", b"Idempotency-Key", b"producer-seq", b"X-Request-Id", b"Host", b"Upgrade"])
OPTIONS = st.sampled_from([b"%b: %b\r\n", b"%b:%b\r\n", b"%b:  %b\r\n"])
BODY = b"0123456789"


@given(st.lists(st.tuples(VARIED, OPTIONS), max_size=4), st.lists(st.tuples(st.lists(VALUES, min_size=4, max_size=4),
       st.integers(0, 10)), min_size=2, max_size=5))  # fmt: skip
def test_requests_that_differ_in_values_are_what_a_new_connection_makes_of_them(names, requests):
    """A known head is found by its other bytes; the values of keys, sequences and lengths are then its own."""
    kept = Http1(LIMITS)
    for values, size in requests:
        lines = b"".join(form % (name, value) for (name, form), value in zip(names, values, strict=False))
        data = b"POST /a?b HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n%b" % (lines, size, BODY[:size])
        expected = list(summary(fed(Http1(LIMITS), data)).values())
        assert list(summary(fed(kept, data)).values()) == expected
        if len(expected) != 1 or expected[0][-1] != "whole":
            return


QUERIES = st.lists(
    st.sampled_from(
        [
            b"offset=%d",
            b"xoffset=%d",
            b"offset=0%d",
            b"offset=%dx",
            b"wait_ms=1",
            b"offset=",
            b"#offset=%d",
            b"?offset=%d",
        ]
    ),
    max_size=3,
)


@given(QUERIES, st.booleans(), st.lists(st.integers(0, 10**20), min_size=2, max_size=4))
def test_fetches_that_differ_in_offsets_are_what_a_new_connection_makes_of_them(parts, has_header, offsets):
    kept = Http1(LIMITS)
    for offset in offsets:
        query = b"&".join(part % offset if b"%d" in part else part for part in parts)
        data = b"GET /a?%b HTTP/1.1\r\n%bHost: h\r\n\r\n" % (
            query,
            b"X-Request-Id: %d\r\n" % offset if has_header else b"",
        )
        expected = list(summary(fed(Http1(LIMITS), data)).values())
        assert list(summary(fed(kept, data)).values()) == expected


def test_a_fetch_with_another_offset_is_like_the_known_one():
    core, text = Http1(LIMITS), b"GET /t?a=1&offset=%d&b=2 HTTP/1.1\r\nHost: h\r\n\r\n"
    first, second, third = (fed(core, text % offset)[0].head for offset in (1, 23, 10**18))
    assert second.like is first
    assert (second.query, second.own) == ("a=1&offset=23&b=2", [])
    assert type(third) is RequestHead


def test_a_head_with_another_key_or_length_is_like_the_known_one():
    core, text = Http1(LIMITS), b"POST / HTTP/1.1\r\nIdempotency-Key: %b\r\nContent-Length: %d\r\n\r\n%b"
    first, second, third = (
        fed(core, text % one)[0].head for one in ((b"a", 1, b"x"), (b"b", 2, b"xy"), (b"a", 0, b""))
    )
    assert second.like is third.like is first
    assert second.own == [("Idempotency-Key", "b"), ("Content-Length", "2")]
    assert (first.content_length, second.content_length, third.content_length) == (1, 2, 0)
    assert type(fed(core, text % (b"two words", 1, b"x"))[0].head) is RequestHead


@pytest.mark.parametrize(
    ("data", "is_kept"),
    [(POST, True), (POST[:-1], False), (POST + GET, False), (POST.replace(b"Host: h", b"Host: " + b"h" * 1024), False),
     (POST.replace(b"Host: h", b"Host: h\r\nExpect: 100-continue"), False)],
)  # fmt: skip
def test_a_head_is_kept_only_if_its_request_came_alone_and_whole(data, is_kept):
    core = Http1(LIMITS)
    fed(core, data)
    assert bool(core._known) is is_kept


def test_paths_and_queries_come_as_they_were_sent():
    assert summary(fed(Http1(LIMITS), POST))[1][:3] == ("POST", "/a%2Fb", "x=%20")


def test_trailers_are_let_go_and_a_cut_body_has_no_end():
    assert summary(fed(Http1(LIMITS), CHUNKED))[1][4:] == (b"abc", "whole")
    for end in range(CHUNKED.index(b"\r\n\r\n") + 4, len(CHUNKED)):
        core = Http1(LIMITS)
        events = fed(core, CHUNKED[:end])
        assert summary(events)[1][5] == "open"
        assert core.end_of_input() == [StreamReset(1)]


def test_an_upgrade_is_declined_and_its_request_answered():
    """curl --http2 requests an upgrade with each cleartext request, also with a body."""
    head = summary(fed(Http1(LIMITS), UPGRADE))[1]
    assert head[3] == (("Host", "h"), ("Content-Length", "3"))
    assert head[4:] == (b"abc", "whole")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00", 501),
        (b"GET / HTTP/1.1\nHost: h\n\n", 400),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"GET / RTSP/1.0\r\nHost: h\r\n\r\n", 400),
        (b"GET / ICE/1.0\r\nHost: h\r\n\r\n", 400),
        (b"SOURCE / HTTP/1.1 \r\nHost: h\r\n\r\n", 400),
        (b"\r\nGET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /  HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nx", 400),
        (b"CONNECT h:1 HTTP/1.1\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * 101 + b"\r\n", 431),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
def test_an_invalid_request_gets_a_status_and_ends_the_connection(data, status):
    for cuts in ([], list(range(1, len(data), 7))):
        core = Http1(LIMITS)
        assert summary(fed(core, data, cuts)) == {1: (status,)}
        assert core.receive(GET, 0.0) == []
        core.answer(1, status, [("Content-Length", "0")], b"")
        assert sent(core).endswith(b"connection: close\r\n\r\n")
        assert core.is_closing


@pytest.mark.parametrize("bad", [b"GET / RTSP/1.0", b"GET  / HTTP/1.1"])
@pytest.mark.parametrize("before", [GET, POST, CHUNKED, UPGRADE])
def test_the_request_line_of_each_request_of_a_pipeline_is_checked(before, bad):
    """llhttp takes both. Before the fix both were answered with 200."""
    data = before + bad + b"\r\nHost: h\r\n\r\n"
    for cuts in ([], list(range(1, len(data), 5)), [len(before) + 5]):
        assert summary(fed(Http1(LIMITS), data, cuts))[2] == (400,)


def test_trailers_are_bounded_too():
    head = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    trailers = b"X: " + b"x" * 200 + b"\r\n" + b"".join(b"X: %d\r\n" % n for n in range(5000))
    for many in (trailers, b"X: 1\r\n" * 101 + b"\r\n"):  # too many bytes, and too many of them
        core = Http1(LIMITS)
        assert [type(one).__name__ for one in [*fed(core, head), *fed(core, many)]] == ["RequestBegan", "BodyCut"]
        assert summary(fed(Http1(LIMITS), head + many))[1] == (431,)


@given(st.binary(max_size=300), CUTS)
def test_bytes_of_any_kind_never_raise(data, cuts):
    fed(Http1(LIMITS), data, cuts)


@given(st.integers(0, 2000), st.binary(min_size=1, max_size=20), CUTS)
def test_changed_requests_never_raise(place, change, cuts):
    data = POST + CHUNKED + UPGRADE + GET
    fed(Http1(LIMITS), data[: place % len(data)] + change + data[place % len(data) :], cuts)


def test_a_connection_stays_open_unless_one_side_wants_its_end():
    core = Http1(LIMITS)
    fed(core, GET)
    core.answer(1, 200, OK, b"ab")
    assert sent(core) == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"
    assert not core.is_closing
    core.announce_leave()
    fed(core, GET)
    core.answer(2, 200, OK, b"ab")
    assert b"connection: close\r\n" in sent(core)
    assert core.is_closing


def test_http10_is_answered_and_closed_and_pieces_end_with_the_connection():
    core = Http1(LIMITS)
    fed(core, b"GET / HTTP/1.0\r\n\r\n")
    core.begin(1, 200, [])
    core.write(1, b"abc")
    core.finish(1)
    assert sent(core) == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc"
    assert core.is_closing


def test_an_answer_in_pieces_of_a_known_length_is_not_chunked():
    core = Http1(LIMITS)
    fed(core, GET)
    core.begin(1, 200, [("Content-Length", "3")])
    core.write(1, b"ab")
    core.write(1, b"c")
    core.finish(1)
    assert sent(core) == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"
    assert not core.is_closing


def test_an_answer_in_pieces_is_chunked():
    core = Http1(LIMITS)
    fed(core, GET)
    core.begin(1, 200, [])
    core.write(1, b"abc")
    core.finish(1)
    assert sent(core) == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


def test_100_continue_is_sent_once_and_not_after_the_body_has_begun():
    head = b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    core = Http1(LIMITS)
    fed(core, head)
    core.send_continue(1)
    core.send_continue(1)
    assert sent(core) == b"HTTP/1.1 100 Continue\r\n\r\n"
    core = Http1(LIMITS)
    fed(core, head + b"a")
    core.send_continue(1)
    assert sent(core) == b""
    core = Http1(LIMITS)
    fed(core, head)
    core.answer(1, 413, OK, b"ab")
    assert core.is_closing, "the client may send its body or not, so the next bytes are ambiguous"


def test_an_early_answer_leaves_the_connection_open_until_the_rest_is_not_wanted():
    core = Http1(LIMITS)
    fed(core, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
    core.answer(1, 413, OK, b"ab")
    assert not core.is_closing
    fed(core, b"def" + GET)
    core.answer(2, 200, OK, b"ab")
    assert not core.is_closing
    fed(core, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
    core.answer(3, 413, OK, b"ab")
    core.stop_body(3)
    assert core.is_closing


def test_large_answers_go_out_in_pieces():
    core = Http1(LIMITS)
    fed(core, GET)
    body = bytes(range(256)) * 4096
    core.answer(1, 200, [("Content-Length", str(len(body)))], body)
    assert core.pending_bytes > len(body)
    first = b"".join(core.take_output(100_000))
    assert len(first) <= 200_000
    assert (first + sent(core)).endswith(b"\r\n\r\n" + body)
    assert core.pending_bytes == 0


@pytest.mark.parametrize("start", [b"1\r\na\r\n0\r\nX: ", b"1\r\na\r\n2;x="])
def test_a_trailer_or_a_chunk_extension_without_end_is_cut_off(start):
    """llhttp keeps an unfinished trailer; it grew without a bound."""
    core = Http1(LIMITS)
    fed(core, b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    events = fed(core, start)
    for _ in range(1 + LIMITS.header_bytes_max // 1000):
        events += fed(core, b"x" * 1000)
    assert events == [BodyPart(1, b"a"), BodyCut(1)]


def test_a_head_within_the_limit_is_taken_in_small_pieces_too():
    """Before the fix the bytes of complete headers were counted twice."""
    lines = [b"X%d: " % number + b"a" * 1000 for number in range(15)]
    data = b"\r\n".join([b"GET / HTTP/1.1", *lines, b"", b""])
    core = Http1(LIMITS)
    assert summary(fed(core, data, list(range(1, len(data), 100))))[1][5] == "whole"


@pytest.mark.parametrize("cuts", [[], [len(GET)]])
def test_a_whole_request_is_not_refused_for_what_follows_it(cuts):
    found = summary(fed(Http1(LIMITS), GET + b"\x16\x03", cuts))
    assert found[1][5] == "whole"
    assert found[2] == (501,)


def test_what_follows_the_last_request_of_a_connection_is_ignored():
    found = summary(fed(Http1(LIMITS), b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nx"))
    assert found[1][5] == "whole"
    assert len(found) == 1


@pytest.mark.parametrize(
    "data",
    [
        # RFC 9112 6.1: a proxy of HTTP/1.0 may have found another end of this body.
        b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n",
    ],
)
def test_no_request_follows_a_doubtful_body_or_a_close_beside_an_upgrade(data):
    core = Http1(LIMITS)
    fed(core, data)
    core.answer(1, 200, OK, b"ab")
    assert b"connection: close" in sent(core)
    assert core.is_closing


def test_a_client_that_waits_for_100_is_let_finish_what_it_may_have_begun():
    """A connection that is closed with unread bytes is reset, and the answer is lost."""
    core = Http1(LIMITS)
    fed(core, b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
    core.answer(1, 413, OK, b"ab")
    assert core.is_closing
    assert core.has_fault
