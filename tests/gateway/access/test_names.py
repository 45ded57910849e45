"""The names of a tenant: every name that comes in gets the prefix, and none leaves with it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from random import Random
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

import gateway
from engine.format.paths import is_topic_name
from gateway.access.evaluator import Evaluator
from gateway.access.identity import Identity
from gateway.access.names import TenantNames, names_in
from gateway.access.rules import Effect, Pattern, Rule
from gateway.fetch.fetch_many import Entry, MultiFetchRequest
from gateway.groups.core.expressions import compile_expression
from gateway.groups.model.values import Position, Token
from gateway.groups.poll import PollRequest
from gateway.http.problems import Problem
from gateway.http.rights import OPERATIONS, Operation, Resource
from gateway.quotas.charges import Policy, Verdict
from gateway.quotas.quota import Dimension, Owner
from gateway.server.quota_answers import quota_problem
from gateway.subscriptions.bodies import GivenDelivery, PatchSubscription, PutSubscription

ACME = TenantNames("acme")
# Fields of bodies that have these names, but do not name topics. The value says why.
OTHERS = {
    ("EventsQuery", "topics"): "names joined by commas, which its handler gives to Subscribing",
    ("GroupsQuery", "topic"): "the same as of HistoryQuery",
    ("HistoryQuery", "topic"): "a name whose stored form its handler takes, as it does for a group",
}
texts = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=220)


def rule(operation: Operation, resource: Resource, effect: Effect = Effect.ALLOW, **of: Any) -> Rule:
    fields = {"pattern": Pattern.ALL} | of
    return Rule(id="r", effect=effect, principals=("token:a",), operations=(operation,), resource=resource, **fields)


EVERYTHING = Evaluator(rule(one, resource) for resource, some in OPERATIONS.items() for one in some)


def identity(evaluator: Evaluator = EVERYTHING, **fields: Any) -> Identity:
    return Identity("token", "a", evaluator, 1, tenants=("acme", "acme-eu"), **fields)


@given(texts)
@example("acme.orders")
@example("..")
@example("__groups")
@example("__x")
@example("x" * 244)
@example("x" * 245)
@example("")
def test_a_visible_name_is_stored_below_the_prefix_and_comes_back_or_is_refused(name: str) -> None:
    if not is_topic_name(name) or len(name) > 244:
        with pytest.raises(Problem, match="invalid_topic_name"):
            ACME.stored(name)
        return
    stored = ACME.stored(name)
    assert stored.startswith("acme.")
    assert is_topic_name(stored)
    assert ACME.visible(stored) == name


@given(st.text(alphabet="acme.-eu_", max_size=12), st.sampled_from(list(Resource)), st.sampled_from(list(Operation)))
def test_a_caller_of_a_tenant_has_no_right_outside_of_it(name: str, resource: Resource, operation: Operation) -> None:
    inside = identity(tenant="acme", space=ACME)
    operator = identity(is_superuser=True).inside(ACME)
    if resource is Resource.CLUSTER:
        assert not inside.allows(operation, name, resource)
    elif not (name.startswith("acme.") or (resource is Resource.TENANT and name == "acme")):
        assert not inside.allows(operation, name, resource)
        assert not operator.allows(operation, name, resource)
    elif operation in OPERATIONS[resource]:
        assert inside.allows(operation, name, resource)


def test_rules_inside_of_a_tenant_name_visible_names_and_those_of_an_operator_stored_ones() -> None:
    visible = Evaluator([rule(Operation.READ, Resource.TOPIC, pattern=Pattern.PREFIX, name="o")])
    inside = identity(visible, tenant="acme", space=ACME)
    assert inside.allows(Operation.READ, "acme.orders")
    assert not inside.allows(Operation.READ, "acme.x")
    assert inside.prefixes(Operation.READ) == ("acme.o",)
    for prefix, found in (("acme.o", ("acme.o",)), ("ac", ("acme.",)), ("acme-eu.", ())):
        stored = Evaluator([rule(Operation.READ, Resource.TOPIC, pattern=Pattern.PREFIX, name=prefix)])
        assert identity(stored).inside(ACME).prefixes(Operation.READ) == found


def test_without_a_tenant_nothing_is_made_below_a_registered_prefix() -> None:
    operator = identity(is_superuser=True)
    for resource, operation in (
        (Resource.TOPIC, Operation.CREATE),
        (Resource.TOPIC, Operation.AUTO_CREATE),
        (Resource.GROUP, Operation.READ),
        (Resource.GROUP, Operation.ALTER),
        (Resource.SUBSCRIPTION, Operation.CREATE),
    ):
        assert operator.decide(operation, "acme.x", resource) == (False, "names-of-tenants")
        assert operator.allows(operation, "acme", resource)
        assert operator.allows(operation, "acmes.x", resource)
        assert operator.inside(ACME).allows(operation, "acme.x", resource)
    assert operator.allows(Operation.DELETE, "acme.x")


def test_bodies_get_stored_names_wherever_they_name_topics() -> None:
    fetch = MultiFetchRequest([Entry("a", 0, 0), Entry("acme.b", 1, 2)])
    assert [one.topic for one in ACME.stored_in(fetch).partitions] == ["acme.a", "acme.acme.b"]
    assert [one.topic for one in fetch.partitions] == ["a", "acme.b"], "the body itself stays as it is"
    poll = ACME.stored_in(PollRequest(topics=["a"], topics_pattern=".*"))
    assert (poll.topics, poll.topics_pattern) == (["acme.a"], ".*")
    put = PutSubscription("http://acme.example", ["a"], GivenDelivery(deliveries_max=1, dead_letter_topic="d"))
    stored = ACME.stored_in(put)
    assert (stored.topics, stored.delivery.dead_letter_topic, stored.url) == (["acme.a"], "acme.d", put.url)
    patch = ACME.stored_in(PatchSubscription(delivery={"dead_letter_topic": "d", "order": "key"}))
    assert patch.delivery == {"dead_letter_topic": "acme.d", "order": "key"}
    with pytest.raises(Problem, match="invalid_topic_name"):
        ACME.stored_in(PollRequest(topics=["__groups"]))


def test_positions_in_tokens_have_visible_names() -> None:
    token = Token("m", 1, 0, (Position("acme.a", "id", 0, 5),))
    shown = ACME.visible_in(token)
    assert shown.positions[0].topic == "a"
    assert ACME.stored_in(shown) == token


def test_every_body_that_names_topics_is_marked() -> None:
    """A field of a request's body or query whose name says that it has topics, without a mark, would name any topic."""
    found = []
    for module in pkgutil.walk_packages(gateway.__path__, "gateway."):
        for shape in vars(importlib.import_module(module.name)).values():
            if isinstance(shape, type) and issubclass(shape, Struct) and shape.__module__ == module.name:
                is_body = shape.__struct_config__.forbid_unknown_fields or shape.__name__.endswith("Query")
                named = [one for one in shape.__struct_fields__ if re.search(r"topics?$|^config$|^delivery$", one)]
                named = [one for one in named if (shape.__name__, one) not in OTHERS]
                if is_body and named and not names_in(shape):
                    found.append(f"{module.name}.{shape.__name__}: {', '.join(named)}")
    assert set(found) == {
        "gateway.access.state.TenantLimits: topics",  # a number
        "gateway.admin.topics._Create: config",  # no setting of a topic names one
        "gateway.admin.topics._Alter: config",
        "gateway.admin.cluster_operations._Reassign: topic",  # of operators alone
        "gateway.admin.disk_routes._Move: topic",
        "gateway.produce.json_records._TopicObject: topic",  # produce_many maps what the decoder returns
        "gateway.produce.json_records._FetchedTopicObject: topic",
    }


def test_a_refusal_by_the_quota_of_a_topic_names_the_visible_one() -> None:
    used_up = Policy(Dimension.REQUESTS, Owner.TOPIC, "acme.orders", 1, 1, -1, 2)
    problem = quota_problem(Verdict(2, True, (used_up,), (used_up,)), Random(1))
    request: Any = SimpleNamespace(route=SimpleNamespace(operation="produce"))
    document = orjson.loads(ACME.leave(request, problem.response("r")).join())
    assert (document["owner"], document["quota"]) == ("topic:orders", "requests")
    assert "the topic orders may use 1 request" in document["detail"]


def test_documents_leave_without_the_prefix_and_with_the_text_of_their_clients() -> None:
    shown = ACME.shown(
        {
            "topic": "acme.orders",
            "topics": ["acme.acme.x", "acme-eu.y"],
            "topic_ids": {"acme.a": "1"},
            "detail": "there is no topic 'acme.a'; see /v1/topics/acme.a, acme.b and acme\\.(?:o.*), not my-acme.a",
            "topics_pattern": "acme\\.(?:o.*|p)",
            "url": "http://acme.example/acme.",
            "last_error": "https://acme.example answered 500",
            "member_id": "acme.1",
            "prefixes": ["acme."],
        }
    )
    assert shown == {
        "topic": "orders",
        "topics": ["acme.x", "acme-eu.y"],
        "topic_ids": {"a": "1"},
        "detail": "there is no topic 'a'; see /v1/topics/a, b and o.*), not my-acme.a",
        "topics_pattern": "o.*|p",
        "url": "http://acme.example/acme.",
        "last_error": "https://acme.example answered 500",
        "member_id": "acme.1",
        "prefixes": [""],
    }


def test_records_are_the_clients_own() -> None:
    document = b'{"topic":"acme.orders","partition":0,"records":[{"value":{"topic":"acme.orders"}}]}'
    shown = orjson.loads(ACME.shown_records(document))
    assert shown == {"topic": "orders", "partition": 0, "records": [{"value": {"topic": "acme.orders"}}]}
    assert ACME.shown_records(b'{"topic":"acme"') == b'{"topic":"acme"'


@pytest.mark.parametrize("text", [".*", "o.*", "(?i)ORDERS", "a|.*", "", "(x)|.*"])
def test_an_expression_matches_visible_names_and_nothing_outside(text: str) -> None:
    visible, stored = compile_expression(text), compile_expression(ACME.expression(text))
    for name in ("orders", "a", "x", "acme.b", "acme"):
        assert bool(stored(f"acme.{name}")) == bool(visible(name))
        assert not stored(f"acme-eu.{name}")
        assert not stored(f"acmeX{name}")
