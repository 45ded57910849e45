"""The rights behind push: of the caller of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import AccessState, StoredToken
from gateway.access.tokens import digest_of, make_text
from gateway.http.rights import Operation, Resource
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, Answer, InProcess, in_process_only
from tests.scenarios.push.receiver import Receiver
from tests.scenarios.push.test_push import SECRET
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

    async def put(self, who: str, receiver: Receiver, name: str = "s", **fields: Any) -> Answer:
        request = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET], "start": "earliest"} | fields
        return await self.send(who, "PUT", f"/v1/subscriptions/{name}", request)


@pytest.fixture
async def receiver():
    receiver = Receiver([SECRET])
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def ruled(tmp_path: Path, start_gateway: Any) -> Ruled:
    """Has the topics t, other and dead, and the token shop: it may create and see s and read t."""
    path = tmp_path / "tokens.toml"
    boss = add_token(path, "boss", read=[""], write=[""], admin=[""])
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
