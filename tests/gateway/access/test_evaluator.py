"""The evaluator gives the answers of a loop over the rules, and those of Cedar, whose policies mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import cedarpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.access.evaluator import Evaluator
from gateway.access.rules import Effect, InvalidRule, Pattern, Rule, address_of, check_rule
from gateway.http.rights import OPERATIONS, Decision, Operation, Resource

PRINCIPALS = ["token:shop", "token:shop2", "group:corp:payments", "cert:shop", "node:3", "anonymous", "*"]
NAMES = ["a", "a.", "a.b", "a.bc", "ab", "b"]
ADDRESSES = ["10.0.0.1", "10.1.0.1", "::1", "fd00::1"]
NETWORKS = ["10.0.0.0/16", "10.0.0.0/8", "::1/128", "fd00::/8"]

Question = tuple[list[str], Operation, Resource, str, str | None]


def rule(effect: str = "allow", **fields: Any) -> Rule:
    given = {
        "id": "r",
        "effect": Effect(effect),
        "principals": ("token:shop",),
        "operations": (Operation.READ,),
        "resource": Resource.TOPIC,
        "pattern": Pattern.PREFIX,
        "name": "a",
    }
    made = Rule(**{**given, **fields})
    check_rule(made)
    return made


@st.composite
def rules_of(draw: st.DrawFn) -> list[Rule]:
    made = []
    for number in range(draw(st.integers(0, 6))):
        resource = draw(st.sampled_from([Resource.TOPIC, Resource.GROUP, Resource.CLUSTER]))
        pattern = Pattern.ALL if resource is Resource.CLUSTER else draw(st.sampled_from(Pattern))
        made.append(
            rule(
                draw(st.sampled_from(Effect)),
                id=f"r{number}",
                principals=tuple(draw(st.lists(st.sampled_from(PRINCIPALS), min_size=1, max_size=2, unique=True))),
                operations=tuple(
                    draw(st.lists(st.sampled_from(sorted(OPERATIONS[resource])), min_size=1, max_size=3, unique=True))
                ),
                resource=resource,
                pattern=pattern,
                name="" if pattern is Pattern.ALL else draw(st.sampled_from(NAMES)),
                sources=tuple(draw(st.lists(st.sampled_from(NETWORKS), max_size=2, unique=True))),
            )
        )
    return made


@st.composite
def questions(draw: st.DrawFn) -> Question:
    resource = draw(st.sampled_from([Resource.TOPIC, Resource.GROUP, Resource.CLUSTER]))
    principals = draw(st.lists(st.sampled_from(PRINCIPALS), min_size=1, max_size=3, unique=True))
    name = "" if resource is Resource.CLUSTER else draw(st.sampled_from(NAMES))
    operation = draw(st.sampled_from(sorted(OPERATIONS[resource])))
    return principals, operation, resource, name, draw(st.sampled_from([*ADDRESSES, None]))


def matches(rule: Rule, question: Question) -> bool:
    """The rule read word by word."""
    principals, operation, resource, name, address = question
    implied = rule.effect is Effect.ALLOW and {*rule.operations} & {"read", "write", "create", "alter", "delete"}
    of_operation = operation in rule.operations or (operation is Operation.DESCRIBE and implied)
    of_name = {
        Pattern.ALL: True,
        Pattern.LITERAL: name == rule.name,
        Pattern.PREFIX: name.startswith(rule.name),
    }[rule.pattern]
    of_source = not rule.sources or (
        address is not None and any(ip_address(address) in ip_network(source) for source in rule.sources)
    )
    of_caller = not {*principals}.isdisjoint(rule.principals)
    return of_caller and rule.resource is resource and bool(of_operation) and of_name and of_source


def by_loop(rules: Sequence[Rule], question: Question) -> bool:
    matching = [rule.effect for rule in rules if matches(rule, question)]
    return bool(matching) and Effect.DENY not in matching


def policy_of(rule: Rule) -> str:
    """The rule as a policy of Cedar."""
    operations = {*rule.operations}
    if rule.effect is Effect.ALLOW and operations & {"read", "write", "create", "alter", "delete"}:
        operations.add(Operation.DESCRIBE)
    conditions = [
        " || ".join(f'context.principals.contains("{one}")' for one in rule.principals),
        " || ".join(f'action == Action::"{one}"' for one in sorted(operations)),
        f'resource.kind == "{rule.resource}"',
    ]
    if rule.pattern is Pattern.LITERAL:
        conditions.append(f'resource.name == "{rule.name}"')
    elif rule.pattern is Pattern.PREFIX:
        conditions.append(f'resource.name like "{rule.name}*"')
    if rule.sources:
        ranges = " || ".join(f'context.address.isInRange(ip("{source}"))' for source in rule.sources)
        conditions.append(f"context has address && ({ranges})")
    effect = "permit" if rule.effect is Effect.ALLOW else "forbid"
    return f"{effect}(principal, action, resource) when {{ {' && '.join(f'({one})' for one in conditions)} }};"


def by_cedar(rules: Sequence[Rule], question: Question) -> bool:
    principals, operation, resource, name, address = question
    source = {} if address is None else {"address": {"__extn": {"fn": "ip", "arg": address}}}
    request = {
        "principal": 'Caller::"it"',
        "action": f'Action::"{operation}"',
        "resource": 'Thing::"it"',
        "context": {"principals": principals, **source},
    }
    entities = [
        {"uid": {"type": "Thing", "id": "it"}, "attrs": {"kind": str(resource), "name": name}, "parents": []},
        {"uid": {"type": "Caller", "id": "it"}, "attrs": {}, "parents": []},
    ]
    answer = cedarpy.is_authorized(request, "\n".join(map(policy_of, rules)), entities)
    assert not answer.diagnostics.errors, answer.diagnostics.errors
    return answer.decision is cedarpy.Decision.Allow


def answer(rules: Sequence[Rule], question: Question) -> Decision:
    principals, operation, resource, name, address = question
    where = None if address is None else ip_address(address)
    return Evaluator(rules).answers(principals, operation, resource, where).decide(name)


@settings(max_examples=300)
@given(rules_of(), questions())
@example([rule("deny", id="no"), rule(id="yes")], (["token:shop"], Operation.READ, Resource.TOPIC, "a", None))
def test_compiled_rules_a_loop_and_cedar_agree(rules: list[Rule], question: Question) -> None:
    found = answer(rules, question)
    assert found.is_allowed == by_loop(rules, question) == by_cedar(rules, question)
    named = next((rule for rule in rules if rule.id == found.rule), None)
    if found.rule is None:
        assert not any(matches(rule, question) for rule in rules)
    else:
        assert named is not None
        assert matches(named, question)
        assert (named.effect is Effect.ALLOW) == found.is_allowed


@given(rules_of(), questions())
def test_prefixes_that_are_whole_have_no_name_that_is_denied(rules: list[Rule], question: Question) -> None:
    principals, operation, resource, _, address = question
    where = None if address is None else ip_address(address)
    answers = Evaluator(rules).answers(principals, operation, resource, where)
    for prefix in answers.prefixes():
        for name in [name for name in NAMES if name.startswith(prefix)]:
            assert by_loop(rules, (principals, operation, resource, name, address)), (prefix, name)
    if not answers.decide_any().is_allowed:
        assert not any(by_loop(rules, (principals, operation, resource, name, address)) for name in NAMES)


def test_the_order_of_rules_means_nothing() -> None:
    rules = [rule("deny", id="no", name="a.b", pattern=Pattern.LITERAL), rule(id="yes")]
    for order in (rules, rules[::-1]):
        assert answer(order, (["token:shop"], Operation.READ, Resource.TOPIC, "a.b", None)) == Decision(False, "no")
        assert answer(order, (["token:shop"], Operation.READ, Resource.TOPIC, "a.c", None)) == Decision(True, "yes")


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("id", "a b", "id:"),
        ("principals", (), "principals:"),
        ("principals", ("shop",), "'shop' is not a principal"),
        ("principals", ("token:",), "'token:' is not a principal"),
        ("principals", ("user:shop",), "'user:shop' is not a principal"),
        ("operations", (), "operations:"),
        ("operations", (Operation.METRICS,), "a topic has no metrics"),
        ("operations", (Operation.AUTO_CREATE,), "a topic has no auto_create"),
        ("name", "*", "'*' is not a name"),
        ("name", "", "'' is not a name"),
        ("name", "a/b", "'a/b' is not a name"),
        ("name", "a\n", "is not a name"),
        ("pattern", Pattern.ALL, "the pattern all takes no name"),
        ("sources", ("10.0.0.1/8",), "sources:"),
        ("sources", ("everywhere",), "sources:"),
        ("note", "x" * 201, "note:"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_its_field(field: str, value: object, part: str) -> None:
    with pytest.raises(InvalidRule) as refusal:
        check_rule(replace(rule(), **{field: value}))
    assert part in str(refusal.value)


def test_the_address_of_a_client_is_that_of_its_socket() -> None:
    assert address_of("10.0.0.1:5000") == ip_address("10.0.0.1")
    assert address_of("[fd00::1]:5000") == ip_address("fd00::1")
    assert address_of("[::ffff:10.0.0.1]:5000") == ip_address("10.0.0.1"), "an IPv4 client of an IPv6 socket"
    assert address_of("[fe80::1%eth0]:5000") == ip_address("fe80::1")
    assert address_of("unix") is address_of("") is address_of(None) is None


@pytest.mark.parametrize(
    ("source", "ours", "other"),
    [
        ("::ffff:10.0.0.0/104", "10.1.2.3:1", "11.0.0.1:1"),
        ("::ffff:a00:0/104", "[::ffff:10.1.2.3]:1", "11.0.0.1:1"),
        ("::ffff:10.1.2.3", "10.1.2.3:1", "10.1.2.4:1"),
        ("::ffff:0.0.0.0/96", "10.1.2.3:1", "[fd00::1]:1"),
        ("fd00::/8", "[fd00::1]:1", "10.1.2.3:1"),
        ("::/0", "[fd00::1]:1", "10.1.2.3:1"),
    ],
)
def test_a_network_of_ipv4_addresses_in_ipv6_is_that_of_ipv4(source: str, ours: str, other: str) -> None:
    """The address of a caller is mapped likewise, whichever of the two its listener sees."""
    rule = Rule(
        id="r",
        effect=Effect.ALLOW,
        principals=("*",),
        operations=(Operation.READ,),
        resource=Resource.TOPIC,
        pattern=Pattern.ALL,
        sources=(source,),
    )
    check_rule(rule)
    found = [
        Evaluator([rule]).answers(("*",), Operation.READ, Resource.TOPIC, address_of(client)).decide("t").is_allowed
        for client in (ours, other)
    ]
    assert found == [True, False]
