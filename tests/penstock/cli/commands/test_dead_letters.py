"""`replay-dead-letters`: every dead letter goes back once, also if a run is cut; and what its headers were before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.admin.single_request import SingleRequestClient
from penstock.cli.commands.dead_letters import Maker, _headers_before, _maker
from penstock.transport.exchange import Request
from tests.e2e.node_process import running_process
from tests.penstock.cli.conftest import Run
from tests.waiting import wait_until

DISCARD = "http://127.0.0.1:9/"  # nothing listens there


class Cut(BaseException):
    """The end of a run that is killed."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SingleRequestClient]:
    with running_process(tmp_path, push_targets="127.0.0.0/8", push_http=True, push_unconfirmed=True) as node:
        yield SingleRequestClient(node.url)


@pytest.fixture
def command(run: Run, client: SingleRequestClient, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PENSTOCK_URL", str(client._addresses[0]))
    return run


def records_of(client: SingleRequestClient, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    path = f"/v1/topics/{topic}/partitions/{partition}/records?from=earliest"
    return list(client.send(Request("GET", path)).json()["records"])


def dead_letters(command: Run, client: SingleRequestClient) -> None:
    """Make two dead letters of the subscription pager in alerts.dead: of partition 1 of alerts."""
    assert command("topic", "create", "alerts", "--partitions", 2).code == 0
    assert command("topic", "create", "alerts.dead").code == 0
    settings = ("--config", "deliveries_max=1", "--config", "dead_letter_topic=alerts.dead")
    assert command("subscription", "create", "pager", "--to", DISCARD, "--topic", "alerts", *settings).code == 0
    records = [{"key": "door", "value": value, "headers": {"room": "7"}} for value in ("open", "ajar")]
    sent = {"Content-Type": "application/json"}
    path = "/v1/topics/alerts/partitions/1/records"
    client.send(Request("POST", path, body=orjson.dumps({"records": records}), headers=sent)).check()
    wait_until(lambda: len(records_of(client, "alerts.dead")) == 2)
    assert command("subscription", "pause", "pager").code == 0


@pytest.mark.e2e
def test_dead_letters_of_a_subscription_go_back_where_they_came_from_once(
    command: Run, client: SingleRequestClient
) -> None:
    dead_letters(command, client)
    ran = command("subscription", "replay-dead-letters", "pager")
    assert (ran.code, ran.out) == (0, "Replayed 2 records from alerts.dead.\n")
    found = records_of(client, "alerts", 1)
    assert [(one["key"], one["value"]) for one in found] == [("door", "open"), ("door", "ajar")] * 2
    assert [one["headers"].get("room") for one in found] == ["7"] * 4
    assert not [name for one in found for name in one["headers"] if name.startswith("dead-letter-")]
    again = command("subscription", "replay-dead-letters", "pager", "--json")
    assert again.json() == {
        "subscription": "pager",
        "topic": "alerts.dead",
        "replayed": 0,
        "superseded": 0,
        "rejected": 0,
    }
    others = command("group", "replay-dead-letters", "pager", "--topic", "alerts.dead")
    assert others.out == "Replayed 0 records from alerts.dead.\n", "a group of the same name made none"
    none = command("subscription", "replay-dead-letters", "nope")
    assert none.code == 4


@pytest.mark.e2e
def test_a_run_that_is_cut_loses_no_dead_letter_and_doubles_none(
    command: Run, client: SingleRequestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters(command, client)
    client.configure_group("pager.replay-push-dead-letters", {"kind": "share", "lock_ms": 2000})

    def cut(*_: object) -> None:
        raise Cut

    with monkeypatch.context() as killed:
        killed.setattr(SingleRequestClient, "acknowledge_records", cut)
        with pytest.raises(Cut):
            command("subscription", "replay-dead-letters", "pager")
    assert len(records_of(client, "alerts", 1)) == 4, "it had produced them"
    ran = command("subscription", "replay-dead-letters", "pager")
    assert (ran.code, ran.out) == (0, "Replayed 2 records from alerts.dead.\n"), "it waits for the locks of the other"
    assert len(records_of(client, "alerts", 1)) == 4


@pytest.mark.e2e
def test_a_dead_letter_of_a_topic_that_was_created_again_stays_where_it_is(
    command: Run, client: SingleRequestClient
) -> None:
    dead_letters(command, client)
    assert command("topic", "delete", "alerts", "--yes").code == 0
    assert command("topic", "create", "alerts", "--partitions", "2").code == 0
    ran = command("subscription", "replay-dead-letters", "pager")
    assert ran.code == 4
    assert "the node rejected 2 of alerts.dead" in ran.err
    assert "topic alerts was deleted and created again since" in ran.err
    assert records_of(client, "alerts", 1) == []


@pytest.mark.e2e
def test_an_old_value_never_takes_the_place_of_a_newer_one_of_a_compacted_topic(
    command: Run, client: SingleRequestClient
) -> None:
    assert command("topic", "create", "prices", "--config", "cleanup_policy=compact").code == 0
    assert command("topic", "create", "prices.dead").code == 0
    client.configure_group("buyers", {"kind": "share", "deliveries_max": 1, "dead_letter_topic": "prices.dead"})
    sent = {"Content-Type": "application/json"}

    def produce(*records: tuple[str, Any]) -> None:
        body = orjson.dumps({"records": [{"key": key, "value": value} for key, value in records]})
        client.send(Request("POST", "/v1/topics/prices/partitions/0/records", body=body, headers=sent)).check()

    produce(("a/%", 1), ("b", 1), ("c", 1), ("d", 1), ("d", None))
    taken = client.acquire_records("buyers", {"topics": ["prices"], "max_records": 100})
    entries = [{name: one[name] for name in ("topic", "partition", "offset")} for one in taken["records"]]
    assert len(entries) == 5
    client.acknowledge_records("buyers", {"lock": taken["lock"], "outcome": "reject", "records": entries})
    wait_until(lambda: len(records_of(client, "prices.dead")) == 5)
    produce(("a/%", 2), ("c", None))
    ran = command("group", "replay-dead-letters", "buyers")
    left = "Left 3 whose key has a later record in its compacted topic, or is deleted.\n"
    assert (ran.code, ran.out) == (0, f"Replayed 2 records from prices.dead.\n{left}")
    rows = {row["key"]: row["value"] for row in client.table("prices").items()}
    assert rows == {"a/%": 2, "b": 1}, "nothing old comes back"
    assert len(records_of(client, "prices")) == 9


def test_a_dead_letter_that_was_one_before_keeps_the_headers_of_its_first_time() -> None:
    first = {"room": "7", "dead-letter-group": "g", "dead-letter-topic": "t", "dead-letter-error": "no"}
    assert _maker({"headers": first}) == Maker("group", "g")
    assert _headers_before({"headers": first}) == {"room": ["7"]}
    second = {**first, "dead-letter-topic": ["t", "t.dead"], "dead-letter-subscription": "s"}
    assert _maker({"headers": second}) == Maker("subscription", "s")
    assert _headers_before({"headers": second}) == {name: [value] for name, value in first.items()}
    assert _maker({"headers": {"room": "7"}}) is None
    assert _maker({}) is None
