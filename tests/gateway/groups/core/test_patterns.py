"""Topics of members by regular expression."""

from __future__ import annotations

import pytest

from gateway.groups.core import expressions, patterns
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.expressions import compile_expression
from gateway.groups.model.errors import InvalidPattern, PatternsUnavailable
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.values import (
    START_EARLIEST,
    START_POLICY,
    ConfigCall,
    Grant,
    PollCall,
    Slot,
    TopicPattern,
    TopicSize,
)
from tests.gateway.groups.core.coordinators import GROUP, Stage

pytest.importorskip("re2")

EU = TopicPattern(r"orders\..*", r".*\.test")


def a_stage(*names: str, limits: CoordinatorLimits | None = None) -> Stage:
    stage = Stage(limits)
    for name in names:
        add(stage, name)
    return stage


def add(stage: Stage, name: str) -> None:
    stage.topics[name] = TopicSize(f"id-{name}", 1)


def poll(stage: Stage, member: str = "a", pattern: TopicPattern | None = EU, topics: tuple[str, ...] = ()) -> Grant:
    found: Grant = stage.call(Coordinator.poll, PollCall(GROUP, member, topics, pattern=pattern))
    return found


def topics_of(stage: Stage, member: str = "a") -> list[str]:
    return sorted(stage.core.groups[GROUP].members[member].topics)


def test_a_member_reads_what_matches_and_what_it_names():
    stage = a_stage("orders.eu", "orders.eu.test", "my.orders.us", "visits")
    grant = poll(stage, topics=("visits",))
    assert [one.topic for one in grant.assignment] == ["orders.eu", "visits"]


def test_a_new_topic_is_found_and_begins_at_its_first_record():
    stage = a_stage("orders.eu")
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"start": "latest"}))
    poll(stage)
    add(stage, "orders.us")
    add(stage, "orders.us.test")
    stage.sweep(1_000)
    assert topics_of(stage) == ["orders.eu", "orders.us"]
    starts = {one.topic: one.offset for one in poll(stage).assignment}
    assert starts == {"orders.eu": START_POLICY, "orders.us": START_EARLIEST}


def test_a_later_member_begins_by_the_setting_at_topics_that_were_there():
    stage = a_stage("orders.eu")
    poll(stage)
    add(stage, "visits")
    stage.sweep(1_000)
    grant = poll(stage, "b", TopicPattern("visits"))
    assert [(one.topic, one.offset) for one in grant.assignment] == [("visits", START_POLICY)]


def test_a_deleted_topic_leaves_the_subscription():
    stage = a_stage("orders.eu", "orders.us")
    poll(stage)
    del stage.topics["orders.us"]
    stage.sweep(1_000)
    assert topics_of(stage) == ["orders.eu"]
    add(stage, "orders.us")
    stage.sweep(1_000)
    assert topics_of(stage) == ["orders.eu", "orders.us"]


def test_only_readable_topics_count():
    stage = a_stage("orders.eu", "orders.us")
    poll(stage, pattern=TopicPattern(".*", readable=("orders.e", "visits")))
    assert topics_of(stage) == ["orders.eu"]


def test_a_failover_keeps_the_expression_and_its_topics():
    stage = a_stage("orders.eu")
    poll(stage)
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"start": "latest"}))
    add(stage, "orders.us")
    stage.fail_over()
    assert topics_of(stage) == ["orders.eu", "orders.us"]
    assert {one.topic: one.offset for one in poll(stage).assignment}["orders.us"] == START_EARLIEST


def test_a_coordinator_without_an_engine_keeps_the_topics_of_before(monkeypatch: pytest.MonkeyPatch):
    stage = a_stage("orders.eu")
    poll(stage)
    add(stage, "orders.us")
    monkeypatch.setattr(expressions, "re2", None)
    stage.fail_over()
    stage.sweep(1_000)
    assert topics_of(stage) == ["orders.eu"]
    with pytest.raises(PatternsUnavailable):
        poll(stage, "b", TopicPattern("new"))


def test_the_matches_of_a_look_are_bounded_and_the_next_looks_go_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patterns, "MATCHES_AT_ONCE", 105)
    stage = a_stage(*(f"orders.{number:03}" for number in range(250)))
    poll(stage)
    counts = [len(topics_of(stage))]
    for _ in range(3):
        stage.sweep(1_000)
        counts.append(len(topics_of(stage)))
    assert counts == [100, 200, 250, 250]
    slot = Slot("orders.249", 0)
    assert {one.slot: one.offset for one in poll(stage).assignment}[slot] == START_POLICY


def test_the_topics_of_a_member_are_bounded_and_stay():
    stage = a_stage("orders.b", "orders.c", limits=CoordinatorLimits(topics_max=2))
    poll(stage)
    add(stage, "orders.a")
    stage.sweep(1_000)
    assert topics_of(stage) == ["orders.b", "orders.c"]


def test_another_expression_replaces_the_first():
    stage = a_stage("orders.eu", "visits")
    poll(stage)
    assert [one.topic for one in poll(stage, pattern=TopicPattern("vis.*")).assignment] == ["visits"]
    assert [one.topic for one in poll(stage, pattern=None, topics=("orders.eu",)).assignment] == ["orders.eu"]
    assert stage.core.groups[GROUP].members["a"].pattern is None


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a(b", 1),
        ("ab*+*c", 2),
        ("x[z-a]", 2),
        ("x)", 1),
        ("ab(?=c)", 2),
        (r"a\8", 1),
        ("a{5000}", 1),
        ("(a{999}){999}", 2),
    ],
)
def test_a_wrong_expression_has_its_position_and_changes_nothing(text: str, position: int):
    with pytest.raises(InvalidPattern) as caught:
        compile_expression(text)
    assert caught.value.members["position"] == position
    stage = a_stage("orders.eu")
    with pytest.raises(InvalidPattern):
        poll(stage, pattern=TopicPattern(text))
    assert GROUP not in stage.core.groups


def test_an_expression_that_backtracking_could_not_finish_takes_linear_time():
    assert compile_expression("(x+x+)+y")("x" * 200) is None
