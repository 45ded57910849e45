"""Names of topics: the rule is that of the contract, and none meets what nodes store beside topics."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.format.paths import (
    GROUPS_TOPIC,
    TOPIC_CHARS_MAX,
    is_stored_topic_name,
    is_topic_name,
    store_accepted_key,
    store_deleted_topic_key,
    store_registration_key,
    store_topic_prefix,
    topic_dir,
)
from openapi import load_contract

PATTERN = re.compile(load_contract()["components"]["schemas"]["TopicName"]["pattern"].replace("$", r"\Z"))
RESERVED = ["__groups", "__deleted", "__jobs", "__accepted"]
PIECES = st.sampled_from([*RESERVED, "__penstock", "__consumer_offsets", "_", ".", "-", "x", "é", "/", "\n", "\0", "%"])
NAMES = st.lists(PIECES, max_size=4).map("".join) | st.text(max_size=5) | st.integers(0, 260).map("y".__mul__)


@given(NAMES)
@example("__debezium-heartbeat.shop")
@example("__groups.x")
@example("__penstock")
@example("x" * TOPIC_CHARS_MAX)
@example("x" * (TOPIC_CHARS_MAX + 1))
@example("x\n")
def test_the_rule_is_that_of_the_contract(name: str) -> None:
    assert is_topic_name(name) == bool(PATTERN.match(name))


@pytest.mark.parametrize("name", [*RESERVED, "__penstock", "__penstock-x", ".", "..", ""])
def test_names_of_nodes_are_no_clients(name: str) -> None:
    assert not is_topic_name(name)
    assert is_stored_topic_name(name) == (name == GROUPS_TOPIC)


@given(NAMES.filter(is_topic_name))
@example("__deleted.x")
@example("__job")
def test_no_topic_has_files_or_objects_where_others_have_theirs(name: str) -> None:
    prefix = store_topic_prefix("c", name, "id")
    for key in (
        store_deleted_topic_key("c", name, "id"),
        store_registration_key("c", name[:9], "id"),
        store_accepted_key("c", 1, "ab"),
    ):
        assert key.split("/")[1] != prefix.split("/")[1]
    assert all(0 < len(part.encode()) <= 255 for part in topic_dir("data", name, "id").split("/"))
