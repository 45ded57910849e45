"""One story for each promise of a client, played by the Python client, TypeScript and Go, each against a real node.

`make clients-tests` runs them. A language whose tools are missing is skipped.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from penstock.producer.partitioners import partition_of_key
from tests.clients.runner import LANGUAGES, ORIGIN, Runner, RunnerError, produce_job, running
from tests.faults.rules import EVERY_FAULT, NO_FAULTS, Fault, Rules
from tests.faults.site import Site, running_site
from tests.faults.stories import Story, play

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("client stories"),
]
MORE = ("deno", "bun", "browser")
JUDGED = LANGUAGES + MORE
LINKS = Rules({**EVERY_FAULT, Fault.NONE: 20})  # every fault of the proxy, lost replies among them
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
NOW_S = 1_790_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with running_site(tmp_path_factory.mktemp("site"), cors_origins=ORIGIN) as site:
        yield site


async def steady(site: Site) -> str:
    """Return an address that stays while the node restarts."""
    return (await site.proxy.open_link(NO_FAULTS, 1)).url


@pytest.fixture(params=JUDGED)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture(loop_scope="module")
async def runner(site: Site, language: str) -> AsyncIterator[Runner]:
    async with running(language, await steady(site)) as runner:
        yield runner


@pytest_asyncio.fixture(loop_scope="module")
async def topic(site: Site, language: str, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions with the name of its test."""
    name = f"{request.node.originalname}-{language}"
    await site.create(name, 3)
    return name


def values_of(records: list[Any]) -> list[str]:
    return [record["value"] for record in records]


async def produce(runner: Runner, topic: str, values: range | list[Any], partition: int | None = None) -> None:
    records = [{"value": value} | ({} if partition is None else {"partition": partition}) for value in values]
    await runner.run("produce", topic=topic, records=records)


@pytest.mark.parametrize("seed", range(1, 6))
async def test_every_record_is_stored_once_and_in_order_over_bad_links_and_a_kill(
    seed: int, language: str, tmp_path: Path
) -> None:
    story = Story(seed, (language,), 2, lines=60, rules=LINKS, kill_after_s=0.3)
    async with running_site(tmp_path, cors_origins=ORIGIN) as site:
        await play(story, site, "t", {language: partial(produce_job, language)})
        assert site.kills == 1


async def test_a_producer_counts_what_was_acknowledged_for_the_audit(
    runner: Runner, topic: str, site: Site, language: str
) -> None:
    """By topic and ten minutes, each record once though answers are lost, as lines for `penstock ingest audit`."""
    link = await site.proxy.open_link(Rules({Fault.LOSE_REPLY: 1.0, Fault.NONE: 1.0}), 7)
    async with running(language, link.url) as lossy:
        counted = await lossy.run("count", topic=topic, records=[{"value": n} for n in range(60)])
    assert (counted["left"], counted["statistics"]) == ([], [60, 0, 0, 0])
    assert sum(count["records"] for count in counted["counts"]) == 60
    assert {(*count, count["topic"], count["from_ms"] % 600_000) for count in counted["counts"]} == {
        ("topic", "from_ms", "records", topic, 0)
    }


async def test_a_key_decides_the_partition_as_with_kafka(runner: Runner, topic: str) -> None:
    keys = ["", "a", "us-1", "eu-7", "ключ", "k" * 33]
    positions = await runner.run("produce", topic=topic, records=[{"key": key, "value": 1} for key in keys])
    assert [partition for partition, _ in positions] == [partition_of_key(key.encode(), 3) for key in keys]


async def test_a_bad_record_fails_alone_and_those_behind_it_are_stored(runner: Runner, topic: str, site: Site) -> None:
    values = ["a", "x" * 2_000_000, "b", "c"]  # a record has a megabyte at most
    with pytest.raises(RunnerError, match="too_large"):
        await produce(runner, topic, values, 0)
    assert (await site.read(topic, 1))["0"] == ["a", "b", "c"]


async def test_an_append_that_is_repeated_with_its_key_is_stored_once(
    runner: Runner, topic: str, site: Site, language: str
) -> None:
    records = [{"value": str(n), "partition": 1} for n in range(3)]
    first = await runner.run("append", topic=topic, records=records, key="order-1")
    await site.kill_and_start()
    async with running(language, await steady(site)) as again:
        second = await again.run("append", topic=topic, records=records, key="order-1")
        with pytest.raises(RunnerError) as reused:
            await again.run("append", topic=topic, records=records[:1], key="order-1")
    assert [(one["baseOffset"], one["isDuplicate"]) for one in first + second] == [(0, False), (0, True)]
    assert reused.value.error == {
        "code": "idempotency_key_reused",
        "status": 422,
        "retryable": False,
        "maybe_done": False,
    }
    assert (await site.read(topic, 2))["1"] == ["0", "1", "2"]


async def test_an_append_whose_answers_are_lost_is_stored_once(
    runner: Runner, topic: str, site: Site, language: str
) -> None:
    link = await site.proxy.open_link(Rules({Fault.LOSE_REPLY: 2.0, Fault.CUT_REPLY: 1.0, Fault.NONE: 1.0}), 5)
    async with running(language, link.url) as lossy:
        for n in range(10):
            await lossy.run("append", topic=topic, records=[{"value": str(n), "partition": 0}])
    await link.wait_settled()
    assert link.happened[Fault.LOSE_REPLY] > 0
    assert (await site.read(topic, 1))["0"] == [str(n) for n in range(10)]


async def test_a_consumer_continues_at_its_positions(runner: Runner, topic: str) -> None:
    await produce(runner, topic, range(10), 2)
    number = await runner.begin("consume", topic=topic, count=4)
    first = await runner.records(number, 4)
    positions = await runner.done(number)
    number = await runner.begin("consume", topic=topic, **{"from": positions})
    rest = await runner.records(number, 6)
    assert await runner.done(number) == {"topicId": positions["topicId"], "offsets": {"0": 0, "1": 0, "2": 10}}
    assert values_of(first + rest) == [str(n) for n in range(10)]


async def test_positions_of_a_deleted_topic_are_refused(runner: Runner, topic: str, site: Site) -> None:
    await produce(runner, topic, range(3), 0)
    number = await runner.begin("consume", topic=topic)
    positions = await runner.done(number)
    await site.delete(topic)
    await site.create(topic, 3)
    await produce(runner, topic, range(5), 0)
    with pytest.raises(RunnerError) as refused:
        await runner.run("consume", topic=topic, **{"from": positions})
    assert refused.value.code == "topic_id_mismatch"


async def test_a_follower_sees_what_comes_through_a_restart_and_a_filter(
    runner: Runner, topic: str, site: Site, language: str
) -> None:
    link = await site.proxy.open_link(LINKS, 3)
    async with running(language, link.url) as follower:
        number = await follower.begin("consume", topic=topic, follow=True, filter=['value/kind="a"'])
        await produce(runner, topic, [{"kind": "a", "n": 1}, {"kind": "b", "n": 2}], 0)
        [first] = await follower.records(number, 1)
        await site.kill_and_start()
        async with running(language, await steady(site)) as after:
            await produce(after, topic, [{"kind": "b", "n": 3}, {"kind": "a", "n": 4}], 1)
        [second] = await follower.records(number, 1)
    assert [(first["partition"], first["offset"]), (second["partition"], second["offset"])] == [(0, 0), (1, 1)]


async def test_two_workers_share_a_topic_and_a_revocation_repeats_nothing(
    runner: Runner, topic: str, site: Site, language: str
) -> None:
    """The second joins while the first works, and gets everything once the first has left."""
    first = await runner.begin("work", group=topic, topic=topic, member="one")
    await produce(runner, topic, range(30), 0)
    got = {"one": await runner.records(first, 30), "two": []}
    count = 30
    async with running(language, await steady(site)) as other:
        second = await other.begin("work", group=topic, topic=topic, member="two")
        async with asyncio.timeout(120):
            while not got["two"]:
                for partition in range(3):
                    await produce(runner, topic, [count + partition], partition)
                count += 3
                while len(got["one"]) + len(got["two"]) < count:
                    got["one"] += runner.available(first)
                    got["two"] += other.available(second)
                    await asyncio.sleep(0.01)
        runner.stop(first)
        await runner.done(first)
        for partition in range(3):
            await produce(runner, topic, [count + partition], partition)
        got["two"] += await other.records(second, 3)
    assert sorted(int(value) for records in got.values() for value in values_of(records)) == [*range(count + 3)]


async def test_a_queue_delivers_what_was_released_again_and_what_was_rejected_never(runner: Runner, topic: str) -> None:
    await produce(runner, topic, range(4), 0)
    outcomes = {"1": "release", "2": "reject"}
    number = await runner.begin("queue", group=topic, topic=topic, count=5, outcomes=outcomes)
    got = await runner.records(number, 5)
    await runner.done(number)
    assert sorted((record["value"], record["count"]) for record in got) == [
        ("0", 1),
        ("1", 1),
        ("1", 2),
        ("2", 1),
        ("3", 1),
    ]


async def test_a_table_has_the_last_value_of_each_key(runner: Runner, site: Site, language: str) -> None:
    topic = f"prices-{language}"
    await site.create(topic, 2, cleanup_policy="compact")
    rows = [("a", 1), ("b/ö", 1), ("a", 2)]
    positions = await runner.run("produce", topic=topic, records=[{"key": key, "value": value} for key, value in rows])
    found = await runner.run("look_up", topic=topic, key="b/ö", at_least=positions[1][1])
    assert (found["key"], found["value"]) == ("b/ö", "1")
    assert await runner.run("look_up", topic=topic, key="c") is None
    assert await runner.run("table", topic=topic) == {"a": "2", "b/ö": "1"}


def signed(secret: str, body: str, at: int) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"msg_1.{at}.{body}".encode(), hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": "msg_1", "Webhook-Timestamp": str(at), "webhook-signature": signature}


def part_of(signature: str) -> dict[str, str]:
    """A signature that begins as the good one and has its length."""
    return {"webhook-signature": signature[:11] + "A" * (len(signature) - 12) + "="}


WEBHOOKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another body": lambda given: given | {"body": given["body"] + " "},
    "another secret": lambda given: given | {"secrets": [OTHER]},
    "no secret": lambda given: given | {"secrets": []},
    "too old": lambda given: given | {"now_ms": (NOW_S + 301) * 1000},
    "too new": lambda given: given | {"now_ms": (NOW_S - 301) * 1000},
    "no header": lambda given: given | {"headers": {}},
    "no number": lambda given: given | {"headers": given["headers"] | {"Webhook-Timestamp": "x"}},
    "a part": lambda given: given | {"headers": given["headers"] | part_of(given["headers"]["webhook-signature"])},
    "no base64": lambda given: given | {"headers": given["headers"] | {"webhook-signature": "v1,é v1, v2,AA=="}},
}


@pytest.mark.parametrize("language", ["typescript", "go", *MORE])
async def test_a_webhook_is_verified_with_either_secret_and_nothing_else_passes(runner: Runner) -> None:
    """The Python client has no receiver: docs/push.md has its ten lines."""
    given = {"body": '{"data":"é"}', "secrets": [OTHER, SECRET], "now_ms": NOW_S * 1000}
    given["headers"] = signed(SECRET, str(given["body"]), NOW_S - 200)
    assert await runner.run("verify", **given) == "msg_1"
    for name, change in WEBHOOKS.items():
        changed = change(given | {"headers": signed(SECRET, str(given["body"]), NOW_S)})
        with pytest.raises(RunnerError) as refused:
            await runner.run("verify", **changed)
        assert (name, refused.value.code) == (name, "webhook_invalid")


async def test_an_error_has_the_code_and_the_promises_of_the_contract(
    runner: Runner, site: Site, language: str
) -> None:
    with pytest.raises(RunnerError) as unknown:
        await runner.run("call", operation="describe_topic", path={"topic": "nothing"})
    assert unknown.value.error == {"code": "unknown_topic", "status": 404, "retryable": False, "maybe_done": False}
    with pytest.raises(RunnerError, match="unknown_topic"):  # and not a path of its own
        await runner.run("call", operation="describe_topic", path={"topic": "a/../b?c"})
