"""The rights of routes: every route has one, and an unknown one requires the strongest."""

import os
from datetime import UTC, datetime

import pytest

from gateway.access.access import Access
from gateway.access.tokens_file import make_token, parse_tokens
from gateway.http.problems import Problem
from gateway.http.rights import Requirement, Right
from gateway.server.routes import ROUTES
from openapi import load_contract, operations
from tests.gateway.requests import request_of

READER = make_token("reader", {Right.READ: [""], Right.WRITE: [""]}, datetime(2026, 1, 1, tzinfo=UTC), os.urandom)


def test_routes_about_one_topic_or_group_need_a_right_to_it_and_only_they():
    for _, path, need, _ in ROUTES:
        assert (need is Right.GROUP) == ("{group}" in path), path
        if need is Requirement.OPERATES:
            assert path.startswith("/v1/cluster/"), path
        else:
            is_of_one = "{topic}" in path or "{group}" in path
            assert (isinstance(need, Right) or need is Requirement.SEES) == is_of_one, path


def test_routes_without_a_token_are_those_of_the_contract():
    is_open = {(one.method, one.path): one.spec.get("security") == [] for one in operations(load_contract())}
    for method, path, need, _ in ROUTES:
        assert is_open[method, path] == (need is Requirement.NONE), path


def request_with(token, need, topic=None):
    names = {} if topic is None else {"topic": topic}
    return request_of({"Authorization": f"Bearer {token}"}, names=names, need=need)


def test_a_token_has_the_rights_that_it_names_and_no_other():
    access = Access(parse_tokens(READER.entry))
    with pytest.raises(Problem) as refusal:
        access.check(request_with(READER.text, Right.ADMIN, "t"))
    assert (refusal.value.code, refusal.value.members["right"]) == ("forbidden", "admin")
    request = request_with(READER.text, Requirement.AUTHENTICATED)
    access.check(request)
    assert request.caller.name == "reader"
    with pytest.raises(Problem, match="unauthorized"):
        access.check(request_with("x", Requirement.AUTHENTICATED))


def test_without_a_tokens_file_everybody_may_do_everything():
    request = request_with("x", Right.ADMIN, "t")
    Access().check(request)
    assert all(request.caller.allows(right, "t") for right in Right)
