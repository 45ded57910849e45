"""The rights of routes: every route has one, and an unknown one requires the strongest."""

import os
from datetime import UTC, datetime

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.access.access import NEEDS, Access, Requirement, caller_of
from gateway.access.tokens_file import Right, make_token, parse_tokens
from gateway.http.problems import Problem
from gateway.server.app import ROUTES
from openapi import load_contract, operations

READER = make_token("reader", {Right.READ: [""], Right.WRITE: [""]}, datetime(2026, 1, 1, tzinfo=UTC), os.urandom)


def test_every_route_has_its_need_and_every_need_a_route():
    assert {handler.__name__ for _, _, handler in ROUTES} == NEEDS.keys()


def test_routes_about_one_topic_or_group_need_a_right_to_it_and_only_they():
    for _, path, handler in ROUTES:
        assert (NEEDS[handler.__name__] is Right.GROUP) == ("{group}" in path), path
        if NEEDS[handler.__name__] is Requirement.OPERATES:
            assert path.startswith("/v1/cluster/"), path
        else:
            assert (isinstance(NEEDS[handler.__name__], Right) or NEEDS[handler.__name__] is Requirement.SEES) == (
                "{topic}" in path or "{group}" in path
            ), path


def test_routes_without_a_token_are_those_of_the_contract():
    is_open = {(one.method, one.path): one.spec.get("security") == [] for one in operations(load_contract())}
    for method, path, handler in ROUTES:
        assert is_open[method, path] == (NEEDS[handler.__name__] is Requirement.NONE), path


def request_with(token, topic=None):
    match_info = {} if topic is None else {"topic": topic}
    return make_mocked_request("GET", "/", {"Authorization": f"Bearer {token}"}, match_info=match_info)


def test_a_route_that_nobody_has_thought_of_needs_the_most():
    access = Access(parse_tokens(READER.entry))
    with pytest.raises(Problem) as refusal:
        access.check(request_with(READER.text, "t"), "brand_new_route")
    assert (refusal.value.code, refusal.value.members["right"]) == ("forbidden", "admin")
    request = request_with(READER.text)
    access.check(request, "brand_new_route")
    assert caller_of(request).name == "reader"
    with pytest.raises(Problem, match="unauthorized"):
        access.check(request_with("x"), "brand_new_route")


def test_without_a_tokens_file_everybody_may_do_everything():
    request = request_with("x", "t")
    Access().check(request, "delete_topic")
    assert all(caller_of(request).allows(right, "t") for right in Right)
