"""Calls between the processes of a node: replies and errors arrive complete, and every wait ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.errors import UnknownTopic
from gateway.http.problems import Problem, from_engine
from gateway.links import link as link_module
from gateway.links.link import Busy, Link, LinkLost, RemoteFailure, handler
from gateway.links.link_client import LinkClient, listen
from gateway.links.process_links import ProcessLinks


class Typed(msgspec.Struct, array_like=True):
    name: str
    number: int


class Peer:
    """The process at the other end: its received calls and its running ones."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.cancelled = asyncio.Event()
        self.released = asyncio.Event()
        self.begun: list[asyncio.Future[Any]] = []
        self.needs_task = False

    async def echo(self, arguments: Any, payload: bytes) -> tuple[Any, bytes]:
        self.received.append(arguments)
        return arguments, payload

    async def refuse(self, arguments: Any, payload: bytes) -> tuple[Any, bytes]:
        raise UnknownTopic("there is no topic 't'", topic="t")

    async def object(self, arguments: Any, payload: bytes) -> tuple[Any, bytes]:
        raise Problem("overloaded", "too much")

    async def break_down(self, arguments: Any, payload: bytes) -> tuple[Any, bytes]:
        raise ZeroDivisionError

    def begin(self, arguments: Any, payload: bytes) -> asyncio.Future[Any] | None:
        if arguments == "refused":
            raise UnknownTopic("there is no topic 't'", topic="t")
        if self.needs_task:
            return None
        self.received.append(arguments)
        self.begun.append(asyncio.get_running_loop().create_future())
        return self.begun[-1]

    async def wait(self, arguments: Any, payload: bytes) -> tuple[Any, bytes]:
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "done", b""


@pytest.fixture
async def other() -> Peer:
    return Peer()


@pytest.fixture
async def caller(other: Peer, tmp_path: Path) -> AsyncIterator[LinkClient]:
    path = str(tmp_path / "s")
    names = ("echo", "refuse", "object", "break_down", "wait")
    handlers = {name: handler(Any, getattr(other, name)) for name in names}
    own = {"typed": handler(Typed, other.echo), "begun": handler(Any, other.echo, other.begin)}
    server = await listen(path, {**handlers, **own})
    caller = LinkClient(path)
    caller.connect()
    await caller.wait_connected_within(60)
    yield caller
    caller.close()
    server.close()


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
async def test_arguments_and_payload_come_back_as_they_went(caller: LinkClient, size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    reply = await caller.link().call("echo", ["a", 1, None, {"b": 2}], payload, timeout_s=60)
    assert reply == (["a", 1, None, {"b": 2}], payload)


async def test_calls_reach_the_other_side_in_the_order_in_which_they_were_begun(
    caller: LinkClient, other: Peer
) -> None:
    calls = [caller.link().begin("echo", n, b"x" * (n % 7) * 1000) for n in range(100)]
    await asyncio.gather(*calls)
    assert other.received == list(range(100))


async def test_a_slow_reply_delays_no_other(caller: LinkClient, other: Peer) -> None:
    slow = caller.link().begin("wait", None)
    assert await caller.link().call("echo", 1, timeout_s=60) == (1, b"")
    other.released.set()
    assert await slow == ("done", b"")


async def test_an_error_keeps_its_code_its_members_and_what_it_says_of_side_effects(caller: LinkClient) -> None:
    with pytest.raises(RemoteFailure) as failure:
        await caller.link().call("refuse", None, timeout_s=60)
    problem = from_engine(failure.value)
    assert (problem.code, problem.status, problem.members["topic"]) == ("unknown_topic", 404, "t")


async def test_a_problem_comes_back_as_one(caller: LinkClient) -> None:
    with pytest.raises(RemoteFailure) as failure:
        await caller.link().call("object", None, timeout_s=60)
    assert (failure.value.code, failure.value.retryable) == ("overloaded", True)


async def test_a_bug_of_the_other_process_is_reported_without_its_message(caller: LinkClient) -> None:
    with pytest.raises(RemoteFailure) as failure:
        await caller.link().call("break_down", None, timeout_s=60)
    assert failure.value.code == "internal"
    assert "ZeroDivision" not in str(failure.value)


async def test_malformed_arguments_are_an_error_of_the_link_and_reach_no_handler(
    caller: LinkClient, other: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RemoteFailure, match=r"the arguments of the call typed are malformed: .*\$\[1\]") as failure:
        await caller.link().call("typed", ["a", "b"], timeout_s=60)
    assert (failure.value.code, failure.value.no_side_effects) == ("internal", True)
    assert [(record.message, record.exc_info) for record in caplog.records] == [
        ("a call of another process was rejected", None)
    ]
    assert other.received == []
    assert await caller.link().call("typed", ["a", 1], timeout_s=60) == (["a", 1], b"")


async def test_a_call_that_this_version_does_not_know_is_an_error_of_the_link(caller: LinkClient) -> None:
    with pytest.raises(RemoteFailure, match="does not know the call of_a_newer_version"):
        await caller.link().call("of_a_newer_version", None, timeout_s=60)


async def test_a_caller_that_leaves_ends_the_work(caller: LinkClient, other: Peer) -> None:
    call = caller.link().begin("wait", None)
    await caller.link().call("echo", None, timeout_s=60)
    call.cancel()
    await asyncio.wait_for(other.cancelled.wait(), 60)


async def until_begun(other: Peer, count: int = 1) -> None:
    while len(other.begun) < count:
        await asyncio.sleep(0)


async def test_a_call_without_a_task_is_answered_with_what_its_future_ends_with(
    caller: LinkClient, other: Peer
) -> None:
    calls = [caller.link().begin("begun", number) for number in range(3)]
    await until_begun(other, 3)
    first, second, third = other.begun
    third.set_result([3])
    first.set_exception(UnknownTopic("there is no topic 't'", topic="t"))
    second.set_exception(ZeroDivisionError())
    assert await calls[2] == ([3], b"")
    for call, code in ((calls[0], "unknown_topic"), (calls[1], "internal")):
        with pytest.raises(RemoteFailure) as failure:
            await call
        assert failure.value.code == code


async def test_a_call_without_a_task_that_is_refused_is_an_error(caller: LinkClient) -> None:
    with pytest.raises(RemoteFailure) as failure:
        await caller.link().call("begun", "refused", timeout_s=60)
    assert failure.value.code == "unknown_topic"


async def test_a_caller_that_leaves_ends_a_call_without_a_task(caller: LinkClient, other: Peer) -> None:
    call = caller.link().begin("begun", 1)
    await until_begun(other)
    call.cancel()
    await caller.link().call("echo", None, timeout_s=60)
    assert other.begun[0].cancelled()
    assert await caller.link().call("echo", 1, timeout_s=60) == (1, b"")


async def test_a_lost_link_ends_calls_without_a_task(caller: LinkClient, other: Peer) -> None:
    call = caller.link().begin("begun", 1)
    await until_begun(other)
    caller.link().close()
    with pytest.raises(LinkLost):
        await call
    while not other.begun[0].cancelled():
        await asyncio.sleep(0)


async def test_a_call_that_may_go_without_a_task_stays_behind_one_whose_task_has_not_begun(
    caller: LinkClient, other: Peer
) -> None:
    other.needs_task = True
    first = caller.link().begin("begun", 1)
    second = caller.link().begin("echo", 2)
    third = caller.link().begin("begun", 3)
    assert [await call for call in (first, second, third)] == [(1, b""), (2, b""), (3, b"")]
    other.needs_task = False
    fourth = caller.link().begin("echo", 4)
    fifth = caller.link().begin("begun", 5)
    assert [await call for call in (fourth, fifth)] == [(4, b""), (5, b"")]
    assert other.received == [1, 2, 3, 4, 5]
    assert other.begun == []


async def test_a_deadline_is_kept(caller: LinkClient, other: Peer) -> None:
    with pytest.raises(LinkLost):
        await caller.link().call("wait", None, timeout_s=0.01)
    await asyncio.wait_for(other.cancelled.wait(), 60)


async def test_a_lost_link_ends_its_calls_and_is_made_again(caller: LinkClient) -> None:
    link = caller.link()
    call = link.begin("wait", None)
    link.close()
    with pytest.raises(LinkLost):
        await call
    assert await (await caller.wait_connected_within(60)).call("echo", 1, timeout_s=60) == (1, b"")


async def test_bytes_under_way_are_bounded(caller: LinkClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "BYTES_IN_FLIGHT_MAX", 1000)
    link = caller.link()
    first = link.begin("echo", None, b"x" * 900)
    with pytest.raises(Busy):
        link.begin("echo", None, b"x" * 200)
    await first
    assert link.bytes_in_flight == 0
    await link.call("echo", None, b"x" * 200, timeout_s=60)


async def test_a_link_that_is_down_refuses_at_once(tmp_path: Path) -> None:
    with pytest.raises(Busy):
        LinkClient(str(tmp_path / "absent")).link()
    with pytest.raises(Busy):
        Link({}).begin("echo", None)


async def test_a_caller_waits_for_an_absent_process_only_until_its_limit(tmp_path):
    caller = LinkClient(str(tmp_path / "absent.sock"))
    with pytest.raises(LinkLost, match=r"no process answered at .*absent\.sock"):
        await caller.wait_connected_within(0.05)
    caller.close()


async def test_a_process_is_ready_once_its_siblings_have_answered(tmp_path: Path) -> None:
    """Before the fix the first request after a start was rejected: the link to its partition's shard was not up yet."""
    path = str(tmp_path / "sibling.sock")
    links = ProcessLinks({(None, 1): LinkClient(path)})
    links.connect()
    waiting = asyncio.create_task(links.wait_connected())
    await asyncio.sleep(0)
    assert not waiting.done()
    server = await listen(path, {})
    await asyncio.wait_for(waiting, 60)
    assert links.links()[0].is_up
    links.close()
    server.close()


class Written(asyncio.Transport):
    """Counts writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.writes.append(b"".join(list_of_data))

    def close(self) -> None: ...


@pytest.mark.parametrize("size", [10, 50_000])
async def test_the_calls_of_a_turn_leave_in_one_write_and_their_replies_too(size: int) -> None:
    async def echo(arguments: Any, payload: bytes) -> tuple[Any, bytes]:
        return arguments, payload

    to, back = Written(), Written()
    caller, callee = Link({}), Link({"echo": handler(Any, echo)})
    caller.connection_made(to)
    callee.connection_made(back)
    calls = [caller.begin("echo", number, b"x" * size) for number in range(20)]
    assert to.writes == []
    await asyncio.sleep(0)
    assert len(to.writes) == 1
    callee.data_received(to.writes[0])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(back.writes) == 1
    caller.data_received(back.writes[0])
    assert [call.result() for call in calls] == [(number, b"x" * size) for number in range(20)]
    caller.begin("echo", 1).cancel()
    caller.close()
    assert len(to.writes) == 2, "what is not sent yet is sent before the end"


async def test_a_frame_of_a_later_version_whose_number_is_of_no_call_is_ignored(caller: LinkClient) -> None:
    link = caller.link()
    link._send(link_module.TRACE + 1, 0, "of a later version")
    assert await link.call("echo", 1, timeout_s=60) == (1, b"")
