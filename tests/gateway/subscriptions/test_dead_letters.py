"""The dead letters of push go to topics of clients only."""

from __future__ import annotations

from typing import Any, cast

from engine.format.paths import GROUPS_TOPIC
from engine.runtime.clock import SystemClock
from gateway.groups.model.values import Slot
from gateway.subscriptions.dead_letters import DeadLetters, Reason


async def test_a_stored_definition_that_names_an_internal_topic_gets_an_error():
    """Definitions of earlier releases were not checked."""
    nothing_is_appended = cast(Any, None)
    letters = DeadLetters(nothing_is_appended, SystemClock())
    error = await letters.store(GROUPS_TOPIC, [], Reason("s", 1, "", Slot("t", 0), "id"))
    assert "is an internal topic" in error
