"""The rights behind push: of the caller of a request, and of the owner while records are delivered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import AccessState, StoredToken
from gateway.access.tokens import digest_of, make_text
from gateway.access.tokens_file import parse_tokens, remove_token
from gateway.groups.model.values import PushCall
from gateway.http.rights import Operation, Resource
from gateway.subscriptions.calls import DESCRIBE, PUT, View
from gateway.subscriptions.hosting import LOOK_S
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, Answer, InProcess, in_process_only
from tests.scenarios.push.receiver import SECRET, Receiver
from tests.tokens import add_token, bearer

pytestmark = in_process_only

TOPIC, PUSH = Resource.TOPIC, Resource.SUBSCRIPTION


class Ruled:
    """A node whose rules and tokens of the store a test sets, as the keeper of the store does."""

    def __init__(self, gateway: InProcess, boss: str) -> None:
        self.gateway = gateway
        self.texts = {"boss": boss}
        self._rules: dict[str, Rule] = {}
        self._tokens: dict[str, StoredToken] = {}
        self._generation = 0

    def _use(self) -> None:
        self._generation += 1
        state = AccessState(self._generation, tuple(self._rules.values()), tuple(self._tokens.values()))
        self.gateway.node.access.use_state(state)

    def new_token(self, name: str, expires_ms: int = 0) -> None:
        number = len(self.texts)
        token_id, self.texts[name] = make_text(lambda count: bytes([number] * count))
        digest = digest_of(self.texts[name]).hex()
        self._tokens[name] = StoredToken(id=token_id, name=name, sha256=digest, created_ms=0, expires_ms=expires_ms)
        self._use()

    def revoke(self, name: str) -> None:
        del self._tokens[name]
        self._use()

    def rule(
        self, rule_id: str, who: str, operation: Operation, resource: Resource, name: str, sources: Sequence[str] = ()
    ) -> None:
        self._rules[rule_id] = Rule(
            id=rule_id,
            effect=Effect.DENY if rule_id.startswith("no") else Effect.ALLOW,
            principals=(f"token:{who}",),
            operations=(operation,),
            resource=resource,
            pattern=Pattern.LITERAL,
            name=name,
            sources=tuple(sources),
        )
        self._use()

    def remove_rule(self, rule_id: str) -> None:
        del self._rules[rule_id]
        self._use()

    async def send(self, who: str, method: str, path: str, document: object = None) -> Answer:
        body = b"" if document is None else orjson.dumps(document)
        return await self.gateway.send(method, path, body, bearer(self.texts[who]) | {"Content-Type": JSON})

    async def state(self) -> tuple[str, str]:
        seen = (await self.send("boss", "GET", "/v1/subscriptions/s")).json
        return seen["state"], seen["last_error"]

    async def wait_state(self, state: str) -> str:
        """Waits until the subscription has this state, and returns its last error."""
        async with asyncio.timeout(10):
            while True:
                found, error = await self.state()
                if found == state:
                    return error
                await asyncio.sleep(0.02)

    async def produce(self, value: str) -> None:
        answer = await self.send("boss", "POST", "/v1/topics/t/records", {"records": [{"value": value}]})
        assert answer.status == 200, answer.body

    async def metrics(self) -> str:
        return (await self.send("boss", "GET", "/metrics")).body.decode()

    async def put(self, who: str, receiver: Receiver, name: str = "s", **fields: Any) -> Answer:
        request = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET], "start": "earliest"} | fields
        return await self.send(who, "PUT", f"/v1/subscriptions/{name}", request)


@pytest.fixture
async def ruled(tmp_path: Path, start_gateway: Any) -> Ruled:
    """Has the topics t, other and dead, and the token shop: it may create and see s and read t."""
    path = tmp_path / "tokens.toml"
    boss = add_token(path, "boss", read=[""], write=[""], admin=[""], metrics=True)
    gateway = await start_gateway(push_targets="127.0.0.0/8", push_http=True, tokens_file=str(path))
    ruled = Ruled(gateway, boss)
    for topic in ("t", "other", "dead"):
        assert (await ruled.send("boss", "PUT", f"/v1/topics/{topic}", {"partitions": 1})).status == 201
    ruled.new_token("shop")
    ruled.rule("create", "shop", Operation.CREATE, PUSH, "s")
    ruled.rule("read", "shop", Operation.READ, TOPIC, "t")
    return ruled


async def test_replacing_a_subscription_needs_alter_and_creating_it_does_not(ruled, receiver):
    assert (await ruled.put("shop", receiver)).status == 201
    refused = await ruled.put("shop", receiver, filter=["key=a"])
    assert_problem(refused, "forbidden", operation="alter", resource="subscription", subscription="s")
    assert (await ruled.send("shop", "GET", "/v1/subscriptions/s")).json["filter"] == []
    assert (await ruled.put("shop", receiver)).status == 200, "the repeat of a PUT whose answer was lost"
    ruled.rule("alter", "shop", Operation.ALTER, PUSH, "s")
    replaced = await ruled.put("shop", receiver, filter=["key=a"])
    assert (replaced.status, replaced.json["filter"]) == (200, ["key=a"])
    ruled.rule("no-create", "shop", Operation.CREATE, PUSH, "s")
    assert_problem(await ruled.put("shop", receiver), "forbidden", operation="create")


class Meanwhile(Receiver):
    """Does something while it is asked whether it wants deliveries."""

    def __init__(self, do: Callable[[], Awaitable[object]]) -> None:
        super().__init__([SECRET])
        self._do = do

    async def _options(self, request: web.Request) -> web.Response:
        await self._do()
        return await super()._options(request)


async def test_a_subscription_that_another_makes_meanwhile_is_not_replaced_without_alter(ruled, receiver):
    made = []

    async def make() -> None:
        made.append((await ruled.put("boss", receiver)).status)

    slow = Meanwhile(make)
    await slow.start()
    assert_problem(await ruled.put("shop", slow), "forbidden", operation="alter")
    assert made == [201]
    assert (await ruled.send("boss", "GET", "/v1/subscriptions/s")).json["url"] == receiver.url
    await slow.stop()


async def delivered(ruled: Ruled, receiver: Receiver, value: str) -> bool:
    """Produces a record and returns whether it is delivered; the next look is waited for."""
    await ruled.produce(value)
    with suppress(TimeoutError):
        async with asyncio.timeout(2 * LOOK_S):
            while all(event["data"] != value for event in receiver.taken):
                await asyncio.sleep(0.01)
    return any(event["data"] == value for event in receiver.taken)


async def test_a_push_does_not_outlive_the_token_of_its_owner(ruled, receiver):
    made = await ruled.put("shop", receiver)
    assert (made.json["owner"], made.json["state"]) == ("token:shop", "running")
    assert await delivered(ruled, receiver, "before")
    ruled.revoke("shop")
    assert "token:shop" in await ruled.wait_state("forbidden")
    assert not await delivered(ruled, receiver, "after")
    assert "penstock_subscriptions_forbidden 1" in (await ruled.metrics())
    ruled.new_token("shop")
    await ruled.wait_state("running")
    assert await delivered(ruled, receiver, "again")
    in_order = dict.fromkeys(event["data"] for event in receiver.taken)  # one may be repeated
    assert list(in_order) == ["before", "after", "again"]


async def test_a_push_stops_when_its_token_expires(ruled, receiver):
    ruled.revoke("shop")
    ruled.new_token("shop", expires_ms=int(time.time() * 1000) + 700)
    assert (await ruled.put("shop", receiver)).json["state"] == "running"
    assert "expired" in await ruled.wait_state("forbidden")


@pytest.mark.parametrize(
    ("rule", "lost"),
    [
        (("no", Operation.READ, TOPIC, "t"), "topic 't'"),
        (("no", Operation.WRITE, TOPIC, "dead"), "topic 'dead'"),
        (("no", Operation.DESCRIBE, PUSH, "s"), "subscription 's'"),
    ],
)
async def test_a_push_waits_for_each_right_that_its_owner_lost_and_goes_on_with_it(ruled, receiver, rule, lost):
    ruled.rule("write", "shop", Operation.WRITE, TOPIC, "dead")
    letters = {"deliveries_max": 1, "dead_letter_topic": "dead"}
    assert (await ruled.put("shop", receiver, delivery=letters)).json["state"] == "running"
    rule_id, operation, resource, name = rule
    ruled.rule(rule_id, "shop", operation, resource, name)
    reason = await ruled.wait_state("forbidden")
    assert lost in reason
    assert "rule no denies it" in reason
    assert not await delivered(ruled, receiver, "meanwhile")
    ruled.rule("no-other", "shop", Operation.READ, TOPIC, "other")  # a generation that changes nothing here
    assert not await delivered(ruled, receiver, "still")
    assert (await ruled.state())[0] == "forbidden"
    ruled.remove_rule("no")
    await ruled.wait_state("running")
    assert await delivered(ruled, receiver, "after")


async def test_a_token_of_the_file_is_asked_again_with_the_rights_of_the_file(ruled, receiver, tmp_path):
    path, access = tmp_path / "tokens.toml", ruled.gateway.node.access
    ruled.texts["local"] = add_token(path, "local", read=["t"])
    access.use_tokens(parse_tokens(path.read_text()))
    assert (await ruled.put("local", receiver)).json["state"] == "running"
    remove_token(str(path), "local")
    access.use_tokens(parse_tokens(path.read_text()))
    await ruled.wait_state("forbidden")
    ruled.new_token("local")  # of the store: another principal, though its name is the same
    await asyncio.sleep(2 * LOOK_S)
    assert (await ruled.state())[0] == "forbidden"
    add_token(path, "local", read=["other"])
    access.use_tokens(parse_tokens(path.read_text()))
    await asyncio.sleep(2 * LOOK_S)
    assert "lacks the right read" in (await ruled.state())[1]
    remove_token(str(path), "local")
    add_token(path, "local", read=["t"])
    access.use_tokens(parse_tokens(path.read_text()))
    await ruled.wait_state("running")


async def test_a_rule_for_networks_is_asked_with_the_address_of_the_request(ruled, receiver):
    ruled.rule("read", "shop", Operation.READ, TOPIC, "t", sources=["127.0.0.0/8"])
    assert (await ruled.put("shop", receiver)).json["state"] == "running"
    assert await delivered(ruled, receiver, "here")
    ruled.rule("read", "shop", Operation.READ, TOPIC, "t", sources=["10.0.0.0/8"])
    await ruled.wait_state("forbidden")


async def test_the_owner_is_the_principal_that_last_named_the_target(ruled, receiver):
    assert (await ruled.put("shop", receiver)).json["owner"] == "token:shop"
    for document, owner in (
        ({"filter": ["key=a"]}, "token:shop"),
        ({"delivery": {"timeout_ms": 1000}}, "token:shop"),
        ({"url": receiver.url}, "token:boss"),
    ):
        assert (await ruled.send("boss", "PATCH", "/v1/subscriptions/s", document)).json["owner"] == owner
    ruled.rule("alter", "shop", Operation.ALTER, PUSH, "s")
    letters = {"delivery": {"deliveries_max": 1, "dead_letter_topic": "dead"}}
    assert (await ruled.send("boss", "PATCH", "/v1/subscriptions/s", letters)).json["owner"] == "token:boss"
    taken = await ruled.send("shop", "PATCH", "/v1/subscriptions/s", {"url": receiver.url})
    assert_problem(taken, "forbidden", right="write", topic="dead")
    ruled.revoke("shop")
    assert (await ruled.state())[0] == "running"


async def test_a_subscription_that_was_stored_before_owners_goes_on(ruled, receiver):
    assert (await ruled.put("shop", receiver)).status == 201
    groups = ruled.gateway.node.server.push.groups
    stored = (await groups.coordinators.call(DESCRIBE, View, "push:s", "push:s")).definition
    before = orjson.loads(stored)
    assert before.pop("owner")
    call = PushCall("push:s", orjson.dumps(before).decode())
    await groups.coordinators.call(PUT, None, "push:s", call)
    ruled.revoke("shop")
    assert await delivered(ruled, receiver, "on")
    seen = (await ruled.send("boss", "GET", "/v1/subscriptions/s")).json
    assert (seen["state"], "owner" in seen) == ("running", False)


async def test_a_process_that_has_not_read_the_rules_starts_no_push_and_stops_none(ruled, receiver):
    assert (await ruled.put("shop", receiver)).json["state"] == "running"
    ruled.gateway.node.access.use_state(None)
    await asyncio.sleep(2 * LOOK_S)
    ruled.rule("other", "shop", Operation.READ, TOPIC, "other")
    assert (await ruled.state())[0] == "running"
    ruled.revoke("shop")
    await ruled.wait_state("forbidden")
    await ruled.produce("unread")
    ruled.gateway.node.access.use_state(None)
    await asyncio.sleep(2 * LOOK_S)
    assert receiver.taken == []
