"""A request's body, read within limits and decompressed: exactly the original bytes, or a problem, in bounded
memory.
"""

import asyncio
import gzip
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.problems import Problem
from gateway.http.request import RequestBodies
from tests.gateway.refusals import refusal_of
from tests.gateway.requests import request_of

PACK = {"gzip": lambda data: gzip.compress(data, 1), "zstd": zstandard.ZstdCompressor(level=1).compress}


class InThisThread:
    """Runs thread calls inline."""

    async def in_thread(self, work):
        return work()


class Pieces:
    """A body that arrives in pieces."""

    def __init__(self, pieces):
        self._pieces = [piece for piece in pieces if piece]
        self.was_read = 0

    async def readany(self):
        if not self._pieces:
            return b""
        self.was_read += len(self._pieces[0])
        return self._pieces.pop(0)

    def is_eof(self):
        return not self._pieces


def of_pieces(pieces, encoding=None, announced=None):
    headers = {} if encoding is None else {"Content-Encoding": encoding}
    return request_of(headers, content=Pieces(pieces), content_length=announced)


def read(request, limit=10_000):
    return asyncio.run(RequestBodies(2**40, 2**40, InThisThread(), lambda _: None).read(request, limit))


def refused(request, limit=10_000):
    with pytest.raises(Problem) as problem:
        read(request, limit)
    return problem.value


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_a_body_is_its_pieces(pieces):
    assert read(of_pieces(pieces)) == b"".join(pieces)


@pytest.mark.parametrize("encoding", PACK)
@given(members=st.lists(st.binary(max_size=200), min_size=1, max_size=4), cut=st.integers(1, 100))
def test_what_was_packed_comes_out_however_it_arrives(encoding, members, cut):
    packed = b"".join(PACK[encoding](member) for member in members)
    pieces = [packed[at : at + cut] for at in range(0, len(packed), cut)]
    assert read(of_pieces(pieces, encoding)) == b"".join(members)


@pytest.mark.parametrize("encoding", PACK)
@given(data=st.binary(min_size=1, max_size=300), limit=st.integers(1, 300))
def test_the_limit_is_exact(encoding, data, limit):
    for body, code in ((data, None), (PACK[encoding](data), encoding)):
        if len(data) <= limit and len(body) <= limit:
            assert read(of_pieces([body], code), limit) == data
        else:
            problem = refused(of_pieces([body], code), limit)
            assert (problem.code, problem.members["limit"]) == ("body_too_large", limit)


@pytest.mark.parametrize("encoding", PACK)
@given(data=st.binary(min_size=1, max_size=100), keep=st.integers(0, 200))
def test_a_packed_body_that_is_cut_off_is_refused(encoding, data, keep):
    packed = PACK[encoding](data)
    if not 0 < keep < len(packed):
        return
    assert refused(of_pieces([packed[:keep]], encoding)).code == "invalid_body"


@pytest.mark.parametrize("encoding", PACK)
@given(garbage=st.binary(min_size=1, max_size=100))
def test_any_bytes_are_a_body_or_a_problem(encoding, garbage):
    problem = refusal_of(read, of_pieces([garbage], encoding))
    assert problem is None or problem.status in (400, 413)


@pytest.mark.parametrize("encoding", PACK)
def test_a_bomb_takes_no_more_memory_than_the_limit_says(encoding):
    bomb = PACK[encoding](bytes(50_000_000))
    tracemalloc.start()
    try:
        assert refused(of_pieces([bomb], encoding), limit=1_000_000).code == "body_too_large"
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_an_announced_length_over_the_limit_is_refused_unread():
    request = of_pieces([b"x" * 100], announced=100)
    assert refused(request, limit=99).code == "body_too_large"
    assert request.content.was_read == 0


def test_a_body_that_says_nothing_of_its_length_is_read_no_further_than_the_limit():
    request = of_pieces([b"x" * 10] * 100)
    assert refused(request, limit=25).code == "body_too_large"
    assert request.content.was_read == 30


def test_x_gzip_is_gzip():
    """RFC 9110 8.4.1.3: a recipient takes both names for the same."""
    assert read(of_pieces([gzip.compress(b"x")], "X-Gzip")) == b"x"


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip,gzip", "x-zstd", "*", " "])
def test_an_encoding_that_is_not_known_is_refused_unread(encoding):
    request = of_pieces([zlib.compress(b"x")], encoding)
    problem = refused(request)
    assert problem.code == "unsupported_encoding"
    assert problem.headers["Accept-Encoding"] == "gzip, zstd"
    assert request.content.was_read == 0
