"""The answer's claims when every part of a request has failed."""

import pytest

from engine.producers.appends import Appended
from gateway.http.problems import Problem
from gateway.produce.answer import check_one_success

FULL = Problem("storage_full", "no space")
UNKNOWN = Problem("unknown_topic", "no such topic")
TIMEOUT = Problem("ack_timeout", "late")
HALF = Problem("overloaded", "busy", no_side_effects=False)


def test_one_success_is_enough_for_an_answer():
    check_one_success([UNKNOWN, Appended(0, 1)])
    check_one_success([UNKNOWN, None])


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [([FULL, UNKNOWN], FULL), ([FULL, TIMEOUT], TIMEOUT), ([TIMEOUT, FULL], TIMEOUT), ([UNKNOWN, HALF, FULL], HALF)],
)
def test_when_all_failed_an_indeterminate_outcome_is_reported_first(outcomes, expected):
    """A producer that reads no_side_effects may retry the complete request."""
    with pytest.raises(Problem) as raised:
        check_one_success(outcomes)
    assert raised.value is expected
