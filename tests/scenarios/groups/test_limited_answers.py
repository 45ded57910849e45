"""Answers about a group name no topic that their caller may not describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs

from gateway.groups.model.history import Event
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.rights import ANONYMOUS, Decision, Operation, Resource
from tests.scenarios.gateways import JSON, Answer, Gateway, in_process_only
from tests.scenarios.groups.group_client import GroupClient, problem
from tests.tokens import add_token, bearer

HIDDEN, SHOWN = "payroll", "orders"
LIMITED_TO = {"right": "read", "prefixes": ["orders"]}


class Clients:
    """A node with the topics orders and payroll, a token for both, and one without payroll."""

    def __init__(self, gateway: Gateway, tokens: dict[str, str]) -> None:
        self.gateway = gateway
        self.tokens = tokens

    def group(self, who: str, name: str) -> GroupClient:
        return GroupClient(self.gateway, name, bearer(self.tokens[who]))

    async def send(self, who: str, method: str, path: str, document: object = None, **query: object) -> Answer:
        body = b"" if document is None else orjson.dumps(document)
        headers = bearer(self.tokens[who]) | ({} if document is None else {"Content-Type": JSON})
        return await self.gateway.send(method, path, body, headers, **query)

    async def seen(self, who: str, path: str) -> Any:
        """Returns what a caller sees. One with all rights sees the hidden topic, and one without does not."""
        answer = await self.send(who, "GET", f"/v1/groups{path}")
        assert answer.status == 200, answer.body
        assert (HIDDEN.encode() in answer.body) is (who == "all"), answer.body.decode()[-700:]
        assert answer.json.get("limited_to") == (LIMITED_TO if who == "some" else None)
        return answer.json


@pytest.fixture
async def clients(start_gateway: Any, tmp_path: Path) -> Clients:
    path = tmp_path / "tokens.toml"
    tokens = {
        "all": add_token(path, "all", admin=[""], read=[""], write=[""], group=[""]),
        "some": add_token(path, "some", read=[SHOWN], group=[""]),
    }
    clients = Clients(await start_gateway(tokens_file=str(path)), tokens)
    for topic in (HIDDEN, SHOWN):
        assert (await clients.send("all", "PUT", f"/v1/topics/{topic}", {"partitions": 1})).status == 201
        await clients.send("all", "POST", f"/v1/topics/{topic}/records", {"records": [{"value": 1}]})
    return clients


@in_process_only
async def test_a_consumer_group_is_shown_without_its_other_topics(clients):
    config = {"config": {"deliveries_max": 3, "dead_letter_topic": HIDDEN, "start": "earliest"}}
    assert (await clients.send("all", "PUT", "/v1/groups/g", config)).status == 201
    await clients.group("all", "g").polled("a", topics=[HIDDEN, SHOWN])
    await clients.group("all", "g").polled("p", topics_pattern="pay.*", topics=[SHOWN])
    rows = [{"topic": topic, "partition": 0, "offset": 0} for topic in (HIDDEN, SHOWN)]
    body = {"offsets": rows, "force": True}
    assert (await clients.send("all", "PUT", "/v1/groups/g/offsets", body)).status == 200
    for who, topics in (("all", [SHOWN, HIDDEN]), ("some", [SHOWN])):
        described = await clients.seen(who, "/g")
        assert [row["topic"] for row in described["partitions"]] == topics
        assert sorted(len(member["topics"]) for member in described["members"]) == [len(topics)] * 2
        assert ("dead_letter_topic" in described["config"]) is (who == "all")
        assert [member["topics_pattern"] for member in described["members"]] == [
            None,
            "pay.*" if who == "all" else None,
        ]
        assert [row["topic"] for row in (await clients.seen(who, "/g/offsets"))["offsets"]] == topics
    answers = [
        await clients.send("some", "PUT", "/v1/groups/g/offsets", {"offsets": rows[1:], "force": True}),
        await clients.send("some", "PATCH", "/v1/groups/g", {"config": {"lock_ms": 1000}}),
        await clients.send("some", "POST", "/v1/groups/g/reset", {"to": "earliest", "force": True}),
        await clients.send("some", "DELETE", "/v1/groups/g/offsets", topic="none"),
        await clients.group("some", "g").poll("a"),
    ]
    assert not [answer.body for answer in answers if HIDDEN.encode() in answer.body]


@in_process_only
async def test_a_diagnosis_is_shown_without_its_other_topics(clients):
    config = {"config": {"start": "earliest"}}
    assert (await clients.send("all", "PUT", "/v1/groups/g", config)).status == 201
    await clients.group("all", "g").polled("a", topics=[HIDDEN, SHOWN])
    rows = [{"topic": topic, "partition": 0, "offset": 0} for topic in (HIDDEN, SHOWN)]
    await clients.send("all", "PUT", "/v1/groups/g/offsets", {"offsets": rows, "force": True})
    assert (await clients.seen("all", "/g/explanation"))["lag"] == 2
    assert (await clients.send("some", "GET", "/v1/groups/g/explanation")).json["lag"] == 1
    assert (await clients.send("all", "DELETE", f"/v1/topics/{HIDDEN}")).status == 204
    found = await clients.seen("all", "/g/explanation")
    assert "topic_missing" in [finding["cause"] for finding in found["findings"]]
    found = await clients.seen("some", "/g/explanation")
    assert "topic_missing" not in [finding["cause"] for finding in found["findings"]]
    assert [event["detail"] for event in found["events"] if event["cause"] == "joined"] == [SHOWN]


@in_process_only
async def test_a_share_group_is_shown_without_its_other_topics(clients):
    config = {"config": {"kind": "share", "start": "earliest"}}
    assert (await clients.send("all", "PUT", "/v1/groups/s", config)).status == 201
    for topic in (HIDDEN, SHOWN):
        acquired = await clients.send("all", "POST", "/v1/groups/s/acquire", {"topics": [topic]})
        assert acquired.status == 200, acquired.body
    for who, count in (("all", 2), ("some", 1)):
        assert len((await clients.seen(who, "/s"))["partitions"]) == count
        assert (await clients.send(who, "GET", "/v1/groups/s/explanation")).json["lag"] == count


@in_process_only
async def test_a_heartbeat_names_no_topic_that_its_caller_may_not_know(clients):
    joined = await clients.send("all", "POST", "/v1/groups/h/heartbeat", {"member_id": "m", "topics": [HIDDEN, SHOWN]})
    beat = {"member_id": "m", "member_epoch": joined.json["member_epoch"]}
    for who, topics in (("all", [HIDDEN, SHOWN]), ("some", [SHOWN])):
        answer = await clients.send(who, "POST", "/v1/groups/h/heartbeat", beat)
        assert sorted(row["topic"] for row in answer.json["assignment"]) == sorted(topics)
        assert answer.json.get("limited_to") == (LIMITED_TO if who == "some" else None)


@in_process_only
async def test_a_member_without_its_rights_is_refused_with_its_own_names_only(clients):
    await clients.group("all", "g").polled("a", topics=[HIDDEN])
    refused = await clients.group("some", "g").poll("a")
    assert problem(refused) == (403, "forbidden")
    assert HIDDEN not in refused.body.decode()
    named = await clients.group("some", "g").poll("a", topics=[HIDDEN])
    assert HIDDEN in named.body.decode(), "the caller has named it"


ALL = VisibleTopics(ANONYMOUS)


class OnlyOrders:
    """A caller that may describe the topics orders and -eu."""

    name = principal = "token:some"

    def allows(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> bool:
        return name in (SHOWN, "-eu")

    def decide(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> Decision:
        return Decision(self.allows(operation, name), None)

    def prefixes(self, operation: Operation, resource: Resource = Resource.TOPIC) -> tuple[str, ...]:
        return (SHOWN,)


@pytest.mark.parametrize(
    ("cause", "member_id", "detail", "seen"),
    [
        ("joined", "a", "orders, payroll", "orders"),
        ("joined", "a", "payroll", ""),
        ("subscription_changed", "a", "payroll, orders", "orders"),
        ("topics_changed", "", "payroll", None),
        ("topics_changed", "", "-eu", "-eu"),
        ("topics_changed", "a", "+payroll, --eu, -orders …", "--eu, -orders …"),
        ("topics_changed", "a", "-payroll, +payroll2 …", None),
        ("dead_lettered", "a", "payroll", None),
        ("dead_lettered", "", "orders", "orders"),
        ("dead_letters_failed", "", "payroll: storage_full: topic payroll", None),
        ("dead_letters_failed", "", "orders: storage_full", "orders: storage_full"),
        ("dead_letters_failed", "", "", ""),
        ("left", "payroll", "", ""),  # the name of a member
        ("settings_changed", "", "start", "start"),
    ],
)
def test_events_keep_what_is_not_of_other_topics(cause, member_id, detail, seen):
    event = Event(1, cause, member_id, detail)
    expected = [] if seen is None else [structs.replace(event, detail=seen)]
    assert list(VisibleTopics(OnlyOrders()).events([event])) == expected
    assert list(ALL.events([event])) == [event]


@in_process_only
async def test_a_list_adds_up_the_lag_in_topics_that_the_caller_may_describe(clients: Clients):
    await clients.group("all", "g").polled("m", topics=[HIDDEN, SHOWN])
    groups, observer = clients.gateway.node.groups, clients.gateway.node.observer
    document = (await clients.send("all", "GET", "/v1/groups")).json
    assert [row["lag_records"] for row in document["groups"]] == [None], "not measured yet"
    await groups._lags.measure(groups._groups())
    await observer.sample()
    rows = {}
    for who in ("all", "some"):
        [rows[who]] = (await clients.send(who, "GET", "/v1/groups", include="trend")).json["groups"]
    assert (rows["all"]["lag_records"], rows["some"]["lag_records"]) == (2, 1)
    assert (rows["all"]["lag_trend_s"][-1], rows["some"]["lag_trend_s"]) == (rows["all"]["lag_s"], [])
    [row] = (await clients.send("some", "GET", "/v1/groups", topic=SHOWN)).json["groups"]
    assert (row["group"], row["lag_records"]) == ("g", 1)
    assert (await clients.send("some", "GET", "/v1/groups", topic=HIDDEN)).status == 403
    assert (await clients.send("some", "GET", "/v1/groups", topic="orders.none")).json["groups"] == []
