"""The bytes of an event stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fetch.event_stream import events, is_of, opening, parse_id, position, problem_event
from gateway.http.problems import Problem

OFFSETS = st.integers(0, 2**63 - 1)
TOPIC_ID = "0f3c5a7e9b1d4f6a8c0e2b4d6f8a1c3e"


@given(st.lists(OFFSETS, min_size=1, max_size=20))
def test_an_id_holds_every_position(positions):
    line = position(TOPIC_ID, positions).decode()
    assert parse_id(line.removeprefix("id: ").removesuffix("\n\n"), len(positions)) == positions


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1--2", "1-2-3", "٣-1", "1-9223372036854775808", " 1-2"])
def test_what_is_no_id_of_this_stream_is_refused(text):
    with pytest.raises(Problem, match="invalid_header"):
        parse_id(text, 2)


def test_an_id_from_before_the_topic_grew_holds_the_partitions_of_then():
    assert parse_id("5-7", 4) == [5, 7]


def test_an_id_is_of_its_topic_only_and_one_of_an_earlier_release_may_be_of_any():
    line = position(TOPIC_ID, [5, 7]).decode().removeprefix("id: ").strip()
    assert line == "0f3c5a7e.5-7"
    assert (is_of(line, TOPIC_ID), is_of(line, "1" + TOPIC_ID[1:]), is_of("5-7", TOPIC_ID)) == (True, False, True)


def test_an_event_moves_its_own_partition_only():
    lines = b'{"offset":4}\n{"offset":7}\n'
    for index, ids in ((0, [b"x.5-2-3", b"x.8-2-3"]), (1, [b"x.1-5-3", b"x.1-8-3"]), (2, [b"x.1-2-5", b"x.1-2-8"])):
        made = events("x", lines, [5, 8], [1, 2, 3], index, b'"partition":9,')
        expected = [b'id: %b\ndata: {"partition":9,"offset":%d}\n\n' % pair for pair in zip(ids, (4, 7), strict=True)]
        assert made == b"".join(expected)
    assert events("x", b'{"offset":4}\n', [5], [1], 0, b"") == b'id: x.5\ndata: {"offset":4}\n\n'


def test_a_stream_begins_with_where_it_stands():
    assert opening("x", [3, 4]) == b"retry: 1000\nid: x.3-4\n\n"


def test_a_problem_is_one_line_of_data():
    assert problem_event({"detail": "a\nb"}) == b'event: problem\ndata: {"detail":"a\\nb"}\n\n'
