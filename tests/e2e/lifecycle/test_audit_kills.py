"""A crash loses no line of a change that was answered, and none of a change that was made."""

from __future__ import annotations

import asyncio
import http.client
import threading
from pathlib import Path

import orjson
import pytest

from tests.e2e.node_process import NodeProcess, running_process
from tests.scenarios.gateways import over_http2
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FORMS = [pytest.param({}, id="one process", marks=pytest.mark.long), pytest.param({"shards": 2}, id="two shards")]


def trail_of(directory: Path) -> tuple[set[str], set[str]]:
    """Return the topics whose creation was intended, and those whose creation has ended."""
    found: dict[str, set[str]] = {"change.intended": set(), "change.ended": set()}
    for file in sorted((directory / "data" / "audit").glob("audit-*.jsonl")):
        whole, _, _ = file.read_bytes().rpartition(b"\n")
        for event in map(orjson.loads, whole.splitlines()):
            kind = event["type"].removeprefix("penstock.audit.v1.")
            if kind in found and event["data"]["operation"] == "create_topic":
                found[kind].add(event["data"]["resource"]["name"])
    return found["change.intended"], found["change.ended"]


def create(node: NodeProcess, name: str, partitions: int = 1) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    body = orjson.dumps({"partitions": partitions})
    connection.request("PUT", f"/v1/topics/{name}", body, {"Content-Type": "application/json"})
    return connection.getresponse().status


def create_unanswered(node: NodeProcess, name: str) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        create(node, name, 2000)


@pytest.mark.parametrize("form", FORMS)
def test_a_kill_between_the_intention_and_the_answer_leaves_the_intention(tmp_path, form):
    with running_process(tmp_path, audit="on", **form) as node:
        sender = threading.Thread(target=create_unanswered, args=(node, "large"))
        sender.start()
        wait_until(lambda: "large" in trail_of(tmp_path)[0])
        node.kill_all()
        sender.join()
    intended, ended = trail_of(tmp_path)
    assert ("large" in intended, "large" in ended) == (True, False), "there was no answer"
    with running_process(tmp_path, audit="on", **form) as node:
        assert create(node, "next") == 201
        assert node.stop() == 0
    intended, ended = trail_of(tmp_path)
    assert ("large" in intended, "large" in ended, "next" in ended) == (True, False, True)


@pytest.mark.parametrize("form", FORMS)
async def test_what_was_answered_has_both_lines_and_what_was_made_its_first(tmp_path, form):
    answered: set[str] = set()
    for round_number in range(4):
        with running_process(tmp_path, audit="on", **form) as node:
            if round_number:
                async with over_http2(node.port) as gateway:
                    made = {row["topic"] for row in (await gateway.send("GET", "/v1/topics")).json["topics"]}
                assert answered <= made
                intended, ended = trail_of(tmp_path)
                assert answered <= ended <= intended
                assert made <= intended
            stopping = threading.Event()

            def send(sender: int, node=node, round_number=round_number, stopping=stopping) -> None:
                for number in range(10_000):
                    name = f"t{round_number}-{sender}-{number}"
                    try:
                        if create(node, name) == 201:
                            answered.add(name)
                    except (OSError, http.client.HTTPException):
                        return
                    if stopping.is_set():
                        return

            senders = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
            for sender in senders:
                sender.start()
            await asyncio.sleep(1.0 + 0.1 * round_number)
            node.kill_all()
            stopping.set()
            for sender in senders:
                sender.join()
    assert len(answered) > 20
