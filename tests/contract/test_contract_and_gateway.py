"""The gateway's tables match the contract: routes, query parameters, problems."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.admin.access_routes import ForceQuery
from gateway.admin.operations import ReadyQuery
from gateway.fetch import fetch_many, tail
from gateway.fetch.fetch import OffsetsQuery
from gateway.fetch.request import FetchQuery
from gateway.filters.record_filter import CONDITIONS_MAX
from gateway.groups.member_stream import EventsQuery
from gateway.http import content_encoding
from gateway.http.content_encoding import check_encoding
from gateway.http.page import PageQuery
from gateway.http.problems import KINDS
from gateway.http.query import Number, Rule, Text, Texts, Word, rules_of
from gateway.http.rights import OPEN
from gateway.produce.produce_many import ManyQuery
from gateway.produce.request import PartitionQuery, TopicQuery
from gateway.server.routes import ROUTES
from gateway.status.group_list import GroupsQuery
from gateway.status.history_route import HistoryQuery
from gateway.status.topic_list import TopicsQuery
from gateway.tables.table_route import TableQuery
from openapi import load_contract, operations, resolve

CONTRACT = load_contract()
OPERATIONS = {operation.operation_id: operation for operation in operations(CONTRACT)}
PAGED = (
    "list_jobs", "list_subscriptions", "list_rules", "list_tokens", "list_quotas", "list_url_keys", "list_tenants",
)  # fmt: skip
QUERIES: Mapping[str, type[msgspec.Struct]] = {
    "produce": TopicQuery,
    "produce_to_partition": PartitionQuery,
    "produce_many": ManyQuery,
    "fetch": FetchQuery,
    "find_offsets": OffsetsQuery,
    "tail_topic": tail.TopicQuery,
    "group_events": EventsQuery,
    "read_table": TableQuery,
    "list_topics": TopicsQuery,
    "list_groups": GroupsQuery,
    **dict.fromkeys(PAGED, PageQuery),
    "read_history": HistoryQuery,
    "readyz": ReadyQuery,
    "add_rule": ForceQuery,
    "remove_rule": ForceQuery,
    "revoke_token": ForceQuery,
}


def test_routes_are_the_operations_of_the_contract() -> None:
    routes = [(method, path) for method, path, _, _ in ROUTES]
    assert sorted(routes) == sorted((one.method, one.path) for one in OPERATIONS.values())


def test_handlers_have_the_names_of_the_contract() -> None:
    """So that metrics, logs and the contract use the same name for an operation."""
    names = {(one.method, one.path): one.operation_id for one in OPERATIONS.values()}
    for method, path, _, handler in ROUTES:
        assert handler.__name__ == names[method, path]


def test_what_each_route_needs_is_that_of_the_contract() -> None:
    declared = {(one.method, one.path): one.spec["x-penstock-access"] for one in OPERATIONS.values()}
    for method, path, need, _ in ROUTES:
        expected = {"where": "open"} if need is OPEN else need._asdict()
        assert declared[method, path] == expected, (method, path)


@pytest.mark.parametrize("operation_id", QUERIES)
def test_query_parameters_are_those_of_the_contract(operation_id: str) -> None:
    parameters = [resolve(CONTRACT, parameter) for parameter in OPERATIONS[operation_id].spec["parameters"]]
    declared = {parameter["name"]: parameter["schema"] for parameter in parameters if parameter["in"] == "query"}
    shape = QUERIES[operation_id]
    rules = rules_of(shape)
    assert set(rules) == set(declared)
    for name, (field, rule) in rules.items():
        assert _as_json(getattr(shape(), field)) == declared[name].get("default"), name
        _assert_same(name, rule, declared[name])


def _assert_same(name: str, rule: Rule, schema: dict[str, Any]) -> None:
    match rule:
        case Number():
            assert (rule.minimum, rule.maximum) == (schema["minimum"], schema["maximum"]), name
        case Word():
            assert set(rule.choices) == set(schema["enum"]), name
        case Text():
            assert rule.length_max == schema.get("maxLength", rule.length_max), name
        case Texts():
            assert (schema["type"], schema["maxItems"]) == ("array", CONDITIONS_MAX), name


def _as_json(default: object) -> object:
    return list(default) if isinstance(default, tuple) else default


def test_the_wish_of_a_fetch_over_many_partitions_is_that_of_the_contract() -> None:
    declared = resolve(CONTRACT, CONTRACT["components"]["schemas"]["FetchMany"])
    accepted = msgspec.json.schema_components([fetch_many.MultiFetchRequest, fetch_many.Entry])[1]
    _assert_same_members(accepted["MultiFetchRequest"], declared)
    _assert_same_members(accepted["Entry"], declared["properties"]["partitions"]["items"])


def _assert_same_members(accepted: dict[str, Any], declared: dict[str, Any]) -> None:
    assert accepted["required"] == declared["required"]
    assert set(accepted["properties"]) == set(declared["properties"])
    for name, schema in accepted["properties"].items():
        expected = declared["properties"][name]
        for keyword in ("minimum", "maximum", "default", "minItems"):
            assert _as_json(schema.get(keyword)) == expected.get(keyword), (name, keyword)
        assert set(schema.get("enum", ())) == set(expected.get("enum", ())), name


def test_problems_are_those_of_the_contract() -> None:
    declared = CONTRACT["x-penstock-problems"]
    assert set(KINDS) == set(declared)
    for code, kind in KINDS.items():
        expected = {name: declared[code][name] for name in ("status", "title", "retryable", "no_side_effects")}
        assert kind._asdict() == expected, code


def test_the_encodings_of_bodies_are_those_of_the_contract() -> None:
    """A synonym is listed too: a generated client refuses what an enumeration lacks."""
    given = CONTRACT["components"]["parameters"]["ContentEncoding"]["schema"]["enum"]
    assert {check_encoding(name) for name in given} == {content_encoding.IDENTITY, *content_encoding.ENCODINGS}
    assert set(content_encoding._SYNONYMS) <= set(given)
