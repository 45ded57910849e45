"""Stories of faults that are exact: what a client does about one answer, one clock, one process that is gone.

As tests/clients/test_stories.py, for the Python client, TypeScript in Node, and Go. tests/clients/stories.py has the
table of all stories.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import ClientSession
from yarl import URL

from gateway.access.tokens_file import remove_token
from penstock import Client
from penstock.admin import api
from tests.clients import front as fronts
from tests.clients.front import Front
from tests.clients.runner import JUMPING, LANGUAGES, Runner, RunnerError, produce_job, running
from tests.faults.rules import EVERY_FAULT, Fault, Rules
from tests.faults.site import Site, running_site
from tests.faults.stories import Story, play
from tests.tokens import add_token

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("client stories"),
    pytest.mark.parametrize("language", LANGUAGES),
]
ATTEMPT_MS = "1000"
RETRY_AFTER_S = 1
SESSION_MS, LOCK_MS = 3000, 1000
STORY_S = 120


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with running_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def front(site: Site) -> AsyncIterator[Front]:
    async with Front(lambda: site.url).running() as front:
        yield front


@pytest_asyncio.fixture(loop_scope="module")
async def runner(front: Front, language: str) -> AsyncIterator[Runner]:
    async with running(language, front.url, PENSTOCK_ATTEMPT_MS=ATTEMPT_MS) as runner:
        yield runner


@pytest_asyncio.fixture(loop_scope="module")
async def admin(site: Site) -> AsyncIterator[Client]:
    async with Client(site.url) as admin:
        yield admin


@pytest_asyncio.fixture(loop_scope="module")
async def topic(site: Site, language: str, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with the name of its test."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:190]
    await site.create(name, 2)
    return name


def read_of(language: str) -> tuple[str, str]:
    """Return the method and a part of the path of what the client reads records with."""
    return ("GET", "/records") if language == "python" else ("POST", "/v1/fetch")


async def produce(runner: Runner, topic: str, values: range | list[Any], partition: int = 0, **given: Any) -> None:
    records = [{"value": value, "partition": partition} for value in values]
    await runner.run("produce", topic=topic, records=records, **given)


async def consume(runner: Runner, topic: str, **given: Any) -> list[str]:
    number = await runner.begin("consume", topic=topic, **given)
    await runner.done(number, records := [])
    return [record["value"] for record in records]


async def is_stored(runner: Runner, topic: str, value: str, codes: set[str]) -> bool:
    """Produce by the producer that stays. False after an error with one of the codes."""
    try:
        await produce(runner, topic, [value], keep="p")
    except RunnerError as error:
        if error.code not in codes:
            raise
        return False
    return True


def texts(values: range) -> list[str]:
    return [str(value) for value in values]


@pytest.mark.parametrize(("status", "code"), [(429, "too_many_requests"), (503, "overloaded")])
async def test_a_pause_that_the_node_asks_for_is_kept(
    status: int, code: str, runner: Runner, topic: str, front: Front, language: str
) -> None:
    """By producers, readers and members."""
    busy = fronts.answers(status, code, RETRY_AFTER_S, retryable=True)
    asked = [("POST", "/records"), read_of(language), ("POST", "/poll")]
    for method, path in asked:
        front.plan(busy, method, path)
    await produce(runner, topic, range(3))
    assert await consume(runner, topic) == texts(range(3))
    work = await runner.begin("work", group=topic, topic=topic, member="one")
    assert [record["value"] for record in await runner.records(work, 3)] == texts(range(3))
    for method, path in asked:
        first, second, *_ = [seen.at for seen in front.asked(method, path)]
        assert second - first >= RETRY_AFTER_S, (method, path)
    runner.stop(work)


async def test_an_answer_that_is_lost_changes_nothing(
    runner: Runner, topic: str, front: Front, admin: Client, site: Site
) -> None:
    """The node has carried the request out, and the client does not know."""
    for method, path in [("POST", "/v1/producers"), ("POST", "/records"), ("POST", "/poll"), ("DELETE", "/members/")]:
        front.plan(fronts.loses, method, path)
    front.plan(fronts.loses, times=2)  # in all three times: Go's own transport repeats the first by itself
    await produce(runner, topic, range(5))
    await produce(runner, topic, range(5, 10))
    assert (await site.read(topic, 1))["0"] == [*range(10)]
    work = await runner.begin("work", group=topic, topic=topic, member="one")
    assert [record["value"] for record in await runner.records(work, 10)] == texts(range(10))
    front.plan(fronts.loses, "POST", "/poll")
    await produce(runner, topic, ["last"])
    assert [record["value"] for record in await runner.records(work, 1)] == ['"last"']
    runner.stop(work)
    await runner.done(work)
    committed = {slot["partition"]: slot["offset"] for slot in (await admin.group_offsets(topic))["offsets"]}
    assert committed[0] in (10, 11), "the last one is committed if the loop asked for another before it was stopped"


async def test_an_outcome_whose_answer_is_lost_is_stored_once(
    runner: Runner, topic: str, front: Front, admin: Client
) -> None:
    """A lost delivery comes again when its lock is over."""
    await admin.configure_group(topic, {"kind": "share", "lock_ms": LOCK_MS})
    await produce(runner, topic, range(3))
    front.plan(fronts.loses, "POST", "/acknowledge")
    front.plan(fronts.loses, "POST", "/acquire")
    number = await runner.begin("queue", group=topic, topic=topic, count=3, outcomes={})
    records = await runner.records(number, 3)
    await runner.done(number)
    assert sorted(record["value"] for record in records) == texts(range(3))
    assert not front.plans


@pytest.mark.parametrize("fault", ["cuts", "stalls", "drips"])
async def test_an_answer_that_is_cut_or_stalls_is_asked_for_again_and_a_slow_one_is_read(
    fault: str, runner: Runner, topic: str, front: Front, site: Site, language: str
) -> None:
    act = getattr(fronts, fault)
    method, path = read_of(language)
    front.plan(act)
    front.plan(act, method, path)
    await produce(runner, topic, range(20))
    assert await consume(runner, topic) == texts(range(20))
    assert (await site.read(topic, 1))["0"] == [*range(20)]
    attempts = len([seen for seen in front.asked("POST", "/records") if "consume" not in seen.path])
    assert attempts >= 1 if fault == "drips" else attempts >= 2
    assert not front.plans


async def test_a_token_goes_to_no_other_host(site: Site, topic: str, front: Front, language: str) -> None:
    """Not to a leader that an answer names, and not to where a redirect leads."""
    async with Front(lambda: site.url).running() as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        async with running(language, front.url, PENSTOCK_TOKEN="secret-token") as runner:
            front.always = fronts.names_leader(elsewhere)
            await produce(runner, topic, range(3))
            assert await consume(runner, topic) == texts(range(3))
            front.plan(fronts.redirects(elsewhere), times=100)
            with pytest.raises(RunnerError):
                await produce(runner, topic, range(3))
        assert other.seen == []
    assert {seen.headers.get("Authorization") for seen in front.seen} == {"Bearer secret-token"}


async def test_a_newer_node_is_understood(runner: Runner, topic: str, front: Front, site: Site, admin: Client) -> None:
    """Members that are not known are ignored, and a code that is not known is judged by its own promises."""
    front.always = fronts.is_newer
    await produce(runner, topic, range(3))
    assert await consume(runner, topic) == texts(range(3))
    work = await runner.begin("work", group=topic, topic=topic, member="one")
    assert [record["value"] for record in await runner.records(work, 3)] == texts(range(3))
    runner.stop(work)
    await admin.configure_group(f"{topic}-q", {"kind": "share"})
    queue = await runner.begin("queue", group=f"{topic}-q", topic=topic, count=3, outcomes={})
    assert sorted(record["value"] for record in await runner.records(queue, 3)) == texts(range(3))
    front.plan(fronts.answers(409, "of_a_later_release", retryable=True))
    await produce(runner, topic, [3])
    front.plan(fronts.answers(409, "of_a_later_release"))
    with pytest.raises(RunnerError) as refused:
        await produce(runner, topic, [4])
    assert refused.value.error == {
        "code": "of_a_later_release", "status": 409, "retryable": False, "maybe_done": False,
    }  # fmt: skip
    assert (await site.read(topic, 1))["0"] == [*range(4)]


async def test_a_page_of_a_proxy_is_no_answer_of_a_node(
    runner: Runner, topic: str, front: Front, site: Site, language: str
) -> None:
    front.plan(fronts.page(502))
    method, path = read_of(language)
    front.plan(fronts.page(502), method, path)
    await produce(runner, topic, range(3))
    assert await consume(runner, topic) == texts(range(3))
    assert (await site.read(topic, 1))["0"] == [*range(3)]
    front.plan(fronts.page(200), "GET", f"/v1/topics/{topic}")
    with pytest.raises(RunnerError, match="not_a_node"):
        await runner.run("call", operation="describe_topic", path={"topic": topic})


async def test_a_revoked_token_ends_everything_and_the_next_one_goes_on(language: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    rights = {"read": [""], "write": [""], "group": [""]}
    first, admin_token = add_token(path, "first", **rights), add_token(path, "admin", admin=[""], **rights)
    async with running_site(tmp_path / "node", tokens_file=path) as site, Client(site.url, token=admin_token) as admin:
        await admin.create_topic("t", partitions=1)
        async with running(language, site.url, PENSTOCK_TOKEN=first) as runner:
            await produce(runner, "t", range(2), keep="p")
            begun = {
                "follow": await runner.begin("consume", topic="t", follow=True),
                "work": await runner.begin("work", group="g", topic="t", member="one"),
                "queue": await runner.begin("queue", group="q", topic="t", count=10**9, outcomes={}),
            }
            for number in begun.values():
                await runner.records(number, 2)
            remove_token(str(path), "first")
            async with asyncio.timeout(STORY_S):
                while await is_stored(runner, "t", "late", {"unauthorized"}):
                    pass  # until the node has read its file again
            with pytest.raises(RunnerError) as refusal:
                await produce(runner, "t", ["late"], keep="p")
            assert refusal.value.error == {
                "code": "unauthorized",
                "status": 401,
                "retryable": False,
                "maybe_done": False,
            }
            await admin.post_records(
                "t", orjson.dumps({"records": [{"value": "wakes the long polls"}]}), "application/json"
            )
            for name, number in begun.items():
                with pytest.raises(RunnerError) as ended:
                    await runner.done(number)
                assert (name, ended.value.code) == (name, "unauthorized")
            await runner.run("set_token", value=add_token(path, "second", **rights))
            async with asyncio.timeout(STORY_S):
                while not await is_stored(runner, "t", "after", {"unauthorized"}):
                    pass  # until the node has read its file again
            assert (await consume(runner, "t"))[-1] == '"after"'


async def test_a_topic_that_is_made_again_is_read_from_its_start_and_written(
    runner: Runner, topic: str, site: Site
) -> None:
    """By a member and a producer that are at work, and by a reader that has saved its positions and may go on."""
    await produce(runner, topic, range(3), keep="p")
    positions = await runner.run("consume", topic=topic)
    work = await runner.begin("work", group=topic, topic=topic, member="one")
    await runner.records(work, 3)
    await site.delete(topic)
    await site.create(topic, 2)
    again = [f"again {n}" for n in range(5)]
    async with asyncio.timeout(STORY_S):
        while not await is_stored(runner, topic, again[0], {"unknown_topic", "unknown_partition"}):
            pass
    await produce(runner, topic, again[1:], keep="p")
    stored = [orjson.dumps(value).decode() for value in again]
    assert (await site.read(topic, 1))["0"] == again
    assert await consume(runner, topic, outOfRange="earliest", **{"from": positions}) == stored
    assert [record["value"] for record in await runner.records(work, 5)] == stored
    runner.stop(work)


async def test_a_member_that_is_killed_at_work_loses_nothing(
    runner: Runner, topic: str, admin: Client, front: Front, language: str
) -> None:
    """What it had not finished goes to the other one, and what it had finished and committed does not."""
    await admin.configure_group(topic, {"session_timeout_ms": SESSION_MS})
    async with running(language, front.url) as doomed:
        work = await doomed.begin("work", group=topic, topic=topic, member="doomed", hold=3)
        await produce(runner, topic, [0])
        await doomed.records(work, 1)
        await produce(runner, topic, [1, 2, 3])  # the poll for them commits the first
        await doomed.records(work, 2)
    rest = await runner.begin("work", group=topic, topic=topic, member="other")
    got = [record["value"] for record in await runner.records(rest, 3)]
    assert got == texts(range(1, 4))
    runner.stop(rest)


async def test_a_job_of_a_caller_that_is_killed_comes_again_and_a_late_outcome_is_refused(
    runner: Runner, topic: str, admin: Client, front: Front, language: str
) -> None:
    await admin.configure_group(topic, {"kind": "share", "lock_ms": LOCK_MS})
    await produce(runner, topic, ["held"])
    async with running(language, front.url) as doomed:
        number = await doomed.begin("queue", group=topic, topic=topic, count=9, outcomes={'"held"': "hold"})
        [held] = await doomed.records(number, 1)
        assert (held["value"], held["count"]) == ('"held"', 1)
    await produce(runner, topic, ["late"])
    late = await runner.begin("queue", group=topic, topic=topic, count=9, outcomes={'"late"': "late"})
    with pytest.raises(RunnerError) as refused:
        await runner.done(late)
    assert refused.value.code in ("lock_expired", "lock_unknown")
    number = await runner.begin("queue", group=topic, topic=topic, count=1, outcomes={})
    [again] = await runner.records(number, 1)
    assert again["count"] == 2


async def test_a_clock_that_jumps_changes_nothing(language: str, tmp_path: Path) -> None:
    """The client's and the node's, an hour to and fro, over bad links and a kill."""
    rules = Rules({**EVERY_FAULT, Fault.NONE: 20})
    story = Story(3, (language,), 2, lines=150, rules=rules, kill_after_s=0.1)
    jumping = {"environment": {"PYTHONPATH": str(JUMPING), "PATH": "/usr/bin:/bin"}}
    async with running_site(tmp_path, **jumping) as site, Client(site.url) as admin:
        await play(story, site, "t", {language: partial(produce_job, f"{language}-jumping")})
        await site.create("jobs", 1)
    async with running_site(tmp_path, **jumping) as site, Client(site.url) as admin:
        await admin.configure_group("q", {"kind": "share", "lock_ms": LOCK_MS})
        async with running(f"{language}-jumping", site.url) as runner:
            front_began = monotonic()
            await produce(runner, "jobs", ["a", "b", "held"])
            work = await runner.begin("work", group="g", topic="jobs", member="one")
            await runner.records(work, 3)
            held = await runner.begin("queue", group="q", topic="jobs", count=9, outcomes={'"held"': "hold"})
            await runner.records(held, 3)
            other = await runner.begin("queue", group="q", topic="jobs", count=1, outcomes={})
            [again] = await runner.records(other, 1)
            assert (again["value"], again["count"]) == ('"held"', 2)
            assert LOCK_MS / 1000 <= monotonic() - front_began < STORY_S


async def test_an_event_stream_resumes_where_its_connection_was_lost(runner: Runner, topic: str, site: Site) -> None:
    """Through a kill of the node; a later stream continues at its position."""
    number = await runner.begin("events", topic=topic, count=9, **{"from": "earliest"})
    await produce(runner, topic, range(3), 0)
    await produce(runner, topic, range(3, 6), 1)
    got = await runner.records(number, 6)
    await site.kill_and_start()
    await produce(runner, topic, range(6, 9), 0)
    got += await runner.records(number, 3)
    position = await runner.done(number)
    assert sorted(int(record["value"]) for record in got) == [*range(9)]
    await produce(runner, topic, [9], 1)
    number = await runner.begin("events", topic=topic, count=1, position=position)
    [last] = await runner.records(number, 1)
    assert (last["value"], last["partition"], last["offset"]) == ("9", 1, 3)


async def test_an_event_stream_of_a_topic_that_is_made_again_ends_or_goes_on(
    runner: Runner, topic: str, site: Site
) -> None:
    number = await runner.begin("events", topic=topic, count=1, **{"from": "earliest"})
    await produce(runner, topic, [1])
    await runner.records(number, 1)
    position = await runner.done(number)
    await site.delete(topic)
    await site.create(topic, 2)
    await produce(runner, topic, ["again"])
    with pytest.raises(RunnerError, match="topic_id_mismatch"):
        await runner.run("events", topic=topic, position=position)
    number = await runner.begin("events", topic=topic, position=position, count=1, outOfRange="earliest")
    assert [record["value"] for record in await runner.records(number, 1)] == ['"again"']


async def test_a_signed_url_is_followed_without_a_token(language: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    token = add_token(path, "signer", read=[""], write=[""], admin=[""])
    async with (
        running_site(tmp_path / "node", tokens_file=path, superusers="token:signer") as site,
        Client(site.url, token=token) as admin,
    ):
        await admin.create_topic("t", partitions=1)
        await admin.call(api.access("POST", "keys"))
        async with running(language, site.url, PENSTOCK_TOKEN=token) as signer, running(language, site.url) as reader:
            url = await signer.run("sign", path="/v1/topics/t/records?from=earliest&value=base64")
            await produce(signer, "t", range(3))
            with pytest.raises(RunnerError, match="unauthorized"):
                await reader.run("events", topic="t")
            number = await reader.begin("events", topic="t", url=url, count=3)
            assert [record["value"] for record in await reader.records(number, 3)] == texts(range(3))
            url = await signer.run("sign", path="/v1/topics/t/records", method="POST")
            async with ClientSession() as page, page.post(URL(url, encoded=True), data=b"beacon") as answer:
                assert answer.status == 200, await answer.text()
            assert len(await consume(signer, "t")) == 4


SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_the_context_of_a_trace_goes_with_the_records(runner: Runner, topic: str) -> None:
    """From a producer to a reader, a member and a queue."""
    await runner.run("set_trace", value=SAMPLED)
    await produce(runner, topic, range(2))
    await runner.run("set_trace", value="")
    await produce(runner, topic, [2])
    follow = await runner.begin("consume", topic=topic, count=3)
    work = await runner.begin("work", group=topic, topic=topic, member="one")
    events = await runner.begin("events", topic=topic, count=3, **{"from": "earliest"})
    for number in (follow, work, events):
        contexts = [record.get("trace") or "" for record in await runner.records(number, 3)]
        assert contexts == [SAMPLED, SAMPLED, ""]
    runner.stop(work)
