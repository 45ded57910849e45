"""Push while its receiver is slow, answers 429 and 500 and is stopped, and its node is killed: all comes, in order."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession, web

from tests.e2e.node_process import running_process
from tests.scenarios.push.receiver import Receiver
from tests.waiting import until

pytestmark = pytest.mark.e2e

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEYS, RECORDS = 7, 400
LONG_S = 90


async def call(session: ClientSession, method: str, url: str, document: object) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.request(method, url, data=orjson.dumps(document), headers=headers) as answer:
        assert answer.status in (200, 201), await answer.text()


def busy() -> web.Response:
    return web.Response(status=429, headers={"Retry-After": "0"})


async def test_nothing_is_missed_and_each_key_is_in_order(tmp_path: Path) -> None:
    receiver, dice = Receiver([SECRET]), random.Random(1)
    receiver.answer = lambda events: dice.choice([None, None, None, busy(), web.Response(status=500)])
    await receiver.start()
    settings = {"push_targets": "127.0.0.0/8", "push_http": True}
    async with ClientSession() as session:
        with running_process(tmp_path, **settings) as node:
            await call(session, "PUT", f"{node.url}/v1/topics/t", {"partitions": 2})
            delivery = {"backoff_ms_min": 10, "backoff_ms_max": 20, "concurrency_max": 4}
            wish = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET], "delivery": delivery}
            await call(session, "PUT", f"{node.url}/v1/subscriptions/s", wish)
            records = [{"key": f"k{at % KEYS}", "value": at} for at in range(RECORDS)]
            await call(session, "POST", f"{node.url}/v1/topics/t/records", {"records": records})
            await until(lambda: len({event["data"] for event in receiver.taken}) >= RECORDS // 4, LONG_S)
            node.kill()
        with running_process(tmp_path, **settings) as node:
            await until(lambda: len({event["data"] for event in receiver.taken}) >= RECORDS // 2, LONG_S)
            port = receiver.port
            await receiver.stop()
            await receiver.start(port)
            await until(lambda: len({event["data"] for event in receiver.taken}) >= RECORDS, LONG_S)
            assert node.stop() == 0
    await receiver.stop()
    for key in range(KEYS):
        seen = [event["data"] for event in receiver.taken if event["partitionkey"] == f"k{key}"]
        first = list(dict.fromkeys(seen))
        assert first == list(range(key, RECORDS, KEYS)), "a key is out of order, or lacks a record"
