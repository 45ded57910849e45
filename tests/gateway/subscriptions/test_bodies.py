"""What a PATCH makes of a subscription, and what it refuses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.values import PushCall
from gateway.http.problems import Problem
from gateway.subscriptions.bodies import PatchSubscription, apply_patch
from gateway.subscriptions.core.definition import Definition, Delivery
from tests.gateway.groups.core.coordinators import Stage

GROUP = "push:s"
BEFORE = Definition("https://a.example/", ("t",), Delivery(form="batch", timeout_ms=500), ("key=a",), ("one",), True)


def test_what_is_not_given_stays():
    delivery = {"timeout_ms": 700, "rate_per_second_max": 9}
    expected = Delivery(form="batch", timeout_ms=700, rate_per_second_max=9)
    changed = apply_patch(BEFORE, PatchSubscription(delivery=delivery))
    assert changed == replace(BEFORE, delivery=expected)
    unlimited = apply_patch(changed, PatchSubscription(delivery={"rate_per_second_max": None}))
    assert unlimited.delivery.rate_per_second_max is None
    assert apply_patch(
        BEFORE, PatchSubscription(url="https://b.example/", filter=(), secrets=("two", "one"))
    ) == replace(BEFORE, url="https://b.example/", filters=(), secrets=("two", "one"))


@pytest.mark.parametrize(
    ("delivery", "code", "text"),
    [
        ({"timeout": 1}, "unknown_field", "there is an unknown field `timeout`; delivery has order, form, "),
        ({"timeout_ms": 1}, "invalid_body", "`$.delivery.timeout_ms`"),
        ({"timeout_ms": None}, "invalid_body", "`$.delivery.timeout_ms`"),
        ({"timeout_ms": "700"}, "invalid_body", "`$.delivery.timeout_ms`"),
        ({"backoff_ms_max": 999}, "invalid_body", "backoff_ms_min is above backoff_ms_max"),
        (
            {"form": "binary", "batch_records_max": 5},
            "invalid_body",
            "batch_records_max has no effect with form binary",
        ),
        ({"deliveries_max": 5}, "invalid_body", "give both deliveries_max and dead_letter_topic"),
    ],
)
def test_the_settings_together_are_checked_as_those_of_a_put(delivery, code, text):
    with pytest.raises(Problem) as raised:
        apply_patch(BEFORE, PatchSubscription(delivery=delivery))
    assert raised.value.code == code
    assert text in str(raised.value)


@pytest.mark.parametrize("wish", [PatchSubscription(), PatchSubscription(filter=("nonsense",))])
def test_no_change_and_a_wrong_filter_are_refused(wish):
    with pytest.raises(Problem) as raised:
        apply_patch(BEFORE, wish)
    assert raised.value.code == "invalid_body"


def test_a_change_of_what_was_changed_meanwhile_changes_nothing():
    stage = Stage(t=1)
    position = stage.position(0, 7)
    assert stage.call(Coordinator.push, PushCall(GROUP, "first", (position,))) is True
    assert stage.call(Coordinator.push, PushCall(GROUP, "second", (), "first")) is False
    assert stage.call(Coordinator.push, PushCall(GROUP, "third", (), "first")) is None
    stage.fail_over()
    group = stage.core.groups[GROUP]
    assert (group.definition, [one.offset for one in group.offsets.values()]) == ("second", [7])
    stage.call(Coordinator.delete, GROUP)
    assert stage.call(Coordinator.push, PushCall(GROUP, "third", (), "second")) is None
    assert GROUP not in stage.core.groups, "a deleted subscription stays deleted"
