"""A copy has the records of its topic, exactly and once, however often and from where it is made."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from penstock.admin.single_request import SingleRequestClient
from penstock.cli.commands import topic_copy
from penstock.errors import ConnectionFailed
from penstock.transport.exchange import Request
from tests.penstock.cli.conftest import Run

JSON = {"Content-Type": "application/json"}


def produce(once: SingleRequestClient, topic: str, *records: dict[str, Any], partition: int = 0) -> None:
    path = f"/v1/topics/{topic}/partitions/{partition}/records"
    once.send(Request("POST", path, {}, orjson.dumps({"records": records}), JSON)).check()


def stored(once: SingleRequestClient, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    query = {"from": "earliest", "value": "base64"}
    path = f"/v1/topics/{topic}/partitions/{partition}/records"
    return [one | {"offset": None} for one in once.send(Request("GET", path, query)).json()["records"]]


def test_a_copy_is_exact_and_goes_on_where_it_was(on_node: Run, node_url: str) -> None:
    once = SingleRequestClient(node_url)
    on_node("topic", "create", "from", "-p", 2, "-c", "retention_ms=3600000", "-c", "segment_bytes=1048576")
    produce(
        once, "from",
        {"key": "k", "value": {"n": 1}, "timestamp": 1_700_000_000_123, "headers": {"a": "1", "b": ["2", "3"]}},
        {"key": None, "value": None},
        {"key_base64": "/w==", "value_base64": "AP8="},
        {"value_base64": "", "headers": {"content-type": "text/plain", "x": {"base64": "/w=="}, "null": None}},
    )  # fmt: skip
    assert on_node("topic", "copy", "from", "to").code == 0
    assert once.describe_topic("to")["config"]["retention_ms"] == 3_600_000
    assert stored(once, "to") == stored(once, "from")
    produce(once, "from", {"value": "late"})
    produce(once, "from", {"value": "other"}, partition=1)
    again = on_node("topic", "copy", "from", "to", "--json").json()
    assert [(row["records"], row["next_offset"]) for row in again["partitions"]] == [(1, 5), (1, 1)]  # type: ignore[index]
    assert on_node("topic", "copy", "from", "to").out.split()[-3:] == ["1", "0", "1"]
    for partition in (0, 1):
        assert stored(once, "to", partition) == stored(once, "from", partition)


def test_a_copy_has_the_records_from_before_the_schema_and_then_the_schema(on_node: Run, node_url: str) -> None:
    once = SingleRequestClient(node_url)
    on_node("topic", "create", "old")
    produce(once, "old", {"value": "any"})
    once.alter_topic("old", {"value_schema": '{"type":"integer"}'})
    assert on_node("topic", "copy", "old", "checked").code == 0
    assert stored(once, "checked") == stored(once, "old")
    assert once.describe_topic("checked")["config"] == once.describe_topic("old")["config"]
    produce(once, "old", {"value": 1})
    assert on_node("topic", "copy", "old", "checked").code == 0
    assert stored(once, "checked") == stored(once, "old")


def test_an_interrupted_copy_stores_each_record_once(
    on_node: Run, node_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = SingleRequestClient(node_url)
    on_node("topic", "create", "long")
    for begin in range(0, 300, 100):
        produce(once, "long", *({"value": f"{n} {'x' * 1000}"} for n in range(begin, begin + 100)))
    monkeypatch.setattr(topic_copy, "FETCH_BYTES", 50_000)
    send, sent = SingleRequestClient.send, 0

    def lose(client: SingleRequestClient, request: Request) -> Any:
        """Lose each second answer to a produce, after it is stored."""
        nonlocal sent
        answer = send(client, request)
        if request.method == "POST":
            sent += 1
            if sent % 2 == 0:
                raise ConnectionFailed("the answer is lost", no_side_effects=False)
        return answer

    monkeypatch.setattr(SingleRequestClient, "send", lose)
    codes = [on_node("topic", "copy", "long", "short").code for _ in range(4)]
    assert codes[0] != 0
    assert codes[-1] == 0
    monkeypatch.undo()
    assert stored(SingleRequestClient(node_url), "short") == stored(SingleRequestClient(node_url), "long")


def test_what_was_deleted_is_not_copied_and_a_new_topic_is_another_one(on_node: Run, node_url: str) -> None:
    once = SingleRequestClient(node_url)
    on_node("topic", "create", "cut-from")
    for value in ("a", "b", "c"):
        produce(once, "cut-from", {"value": value})
    on_node("topic", "copy", "cut-from", "cut-to", "--partition", 0)
    on_node("topic", "delete", "cut-from", "--yes")
    on_node("topic", "create", "cut-from")
    for value in ("d", "e"):
        produce(once, "cut-from", {"value": value})
    on_node("topic", "delete-records", "cut-from", "--before", 1, "--partition", 0, "--yes")
    assert on_node("topic", "copy", "cut-from", "cut-to").code == 0
    assert [len(stored(once, "cut-to"))] == [4]


def test_a_copy_that_cannot_be_is_refused(on_node: Run, node_url: str) -> None:
    on_node("topic", "create", "wide", "-p", 3)
    on_node("topic", "create", "narrow")
    refused = on_node("topic", "copy", "wide", "narrow")
    assert (refused.code, "has 1 partitions" in refused.err) == (1, True)
    assert on_node("topic", "copy", "wide", "wide").code == 2
    assert on_node("topic", "copy", "wide", "new", "--partition", 7).code == 1
    assert on_node("topic", "describe", "new").code == 4, "a refused copy makes no topic"
    assert on_node("topic", "copy", "absent", "new").code != 0
