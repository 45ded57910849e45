"""The mapping from errors to HTTP: every kind of error has its code, and none claims more than is known."""

import json

import pytest

from engine import errors
from engine.errors import EngineError
from gateway.http.problems import KINDS, Problem, from_engine
from replication import errors as replication_errors
from tests.cells import each_cell


def all_kinds(kind):
    for one in kind.__subclasses__():
        yield one
        yield from all_kinds(one)


def engine_kinds():
    """Return the errors that engine/errors.py and replication/errors.py declare."""
    declaring = (errors.__name__, replication_errors.__name__)
    return [kind for kind in all_kinds(EngineError) if kind.__module__ in declaring]


NEVER_ANSWERED = {"start_refused"}


@each_cell("kind", engine_kinds(), ids=lambda kind: kind.__name__)
def test_every_failure_of_the_engine_and_of_replication_is_known_to_http(kind):
    if kind.code in NEVER_ANSWERED:
        return
    assert kind.code in KINDS
    problem = from_engine(kind("what happened", hint="what to do", topic="t"))
    assert problem.code == kind.code
    assert (problem.detail, problem.members["topic"]) == ("what happened (what to do)", "t")


@each_cell("kind", engine_kinds(), ids=lambda kind: kind.__name__)
def test_no_side_effects_is_never_promised_for_a_failure_that_may_have_some(kind):
    document = from_engine(kind("x")).document()
    assert document["no_side_effects"] == kind.no_side_effects


def test_a_failure_that_http_does_not_know_is_internal():
    class Strange(EngineError):
        code = "strange"

    assert from_engine(Strange("x")).status == 500


def test_a_code_that_is_not_in_the_table_cannot_be_raised():
    with pytest.raises(AssertionError):
        Problem("no_such_code", "x")


@each_cell("code", KINDS)
def test_an_answer_says_everything_a_client_needs(code):
    response = Problem(code, "a detail", headers={"X-Extra": "1"}, limit=5).response("request-1")
    assert response.status == KINDS[code].status
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.headers["X-Extra"] == "1"
    assert ("Retry-After" in response.headers) == (response.status in (429, 503))
    assert json.loads(response.body) == {
        "type": f"/docs#problem-{code}",
        "title": KINDS[code].title,
        "status": response.status,
        "code": code,
        "detail": "a detail",
        "retryable": KINDS[code].retryable,
        "no_side_effects": KINDS[code].no_side_effects,
        "request_id": "request-1",
        "limit": 5,
    }


def test_what_may_be_tried_again_after_a_wait_says_how_long():
    assert Problem("overloaded", "x", headers={"Retry-After": "7"}).response("r").headers["Retry-After"] == "7"
