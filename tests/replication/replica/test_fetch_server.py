"""The answers of a leader's shard to fetches, and their times: the server, with replicas that a test controls."""

import asyncio

import pytest

from engine.log.damaged_ranges import damaged
from replication.cores.fetch import BatchesEnd, FetchAnswer, FetchError, FollowerFetch, OutOfRange, Send
from replication.replica.fetch_server import FetchData, FetchServer
from replication.replica.fetch_wire import (
    FetchReply,
    FetchRequest,
    PartitionResponse,
    as_fetch_partition,
    decode_reply,
    encode_request,
)
from tests.waiting import until

LONG_MS = 60_000


class Played:
    """A leader whose records are one byte each."""

    def __init__(self) -> None:
        self.log_end = self.high_watermark = 5
        self.in_sync = True
        self.refusal: FetchAnswer | None = None
        self.fetched_ends: list[int] = []
        self.hides: asyncio.Event | None = None
        self.damaged_end: int | None = None

    def on_fetch(self, fetch: FollowerFetch) -> FetchAnswer:
        if self.refusal is None:
            self.fetched_ends.append(fetch.log_end)
        return self.answer_to(fetch)

    def answer_to(self, fetch: FollowerFetch) -> FetchAnswer:
        return self.refusal or Send(fetch.log_end, self.high_watermark, 0)

    def has_more(self, fetch: FollowerFetch) -> bool:
        return self.log_end > fetch.log_end

    def is_in_sync(self, node_id: int) -> bool:
        return self.in_sync

    async def export_producer_state(self, offset: int) -> tuple[int, bytes]:
        return offset - 1, b"what came before"

    async def read_for(self, fetch: FollowerFetch, max_bytes: int) -> FetchData | None:
        if self.hides is not None:
            await self.hides.wait()
        if self.damaged_end is not None:
            raise damaged(fetch.log_end, self.damaged_end, "are damaged")
        size = min(self.log_end - fetch.log_end, max_bytes)
        return FetchData([b"r" * size], size, self.log_end, False, BatchesEnd(fetch.log_end + size, 1))


class Follower:
    """Sends fetches to one server."""

    def __init__(self, server: FetchServer, session: str = "s") -> None:
        self._server = server
        self._session = session
        self.session_epoch = -1

    async def fetch(
        self, ends: dict[str, int], *, wait_ms: int = LONG_MS, forgotten: tuple[str, ...] = (), bytes_max: int = 100
    ) -> FetchReply:
        self.session_epoch += 1
        request = FetchRequest(
            session=self._session,
            session_epoch=self.session_epoch,
            is_full=self.session_epoch == 0,
            node_id=2,
            broker_epoch=1,
            shard=0,
            bytes_min=1,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            partitions=[as_fetch_partition(key, FollowerFetch(2, 1, 1, end, end, 1, end)) for key, end in ends.items()],
            forgotten=list(forgotten),
        )
        reply, self.data = decode_reply(b"".join(await self._server.fetch(encode_request(request))))
        return reply


@pytest.fixture
def parts() -> dict[str, Played]:
    return {"a": Played(), "b": Played()}


@pytest.fixture
async def server(parts) -> FetchServer:
    return FetchServer(parts.get)


@pytest.fixture
def follower(server) -> Follower:
    return Follower(server)


def keys(answered: list[PartitionResponse]) -> list[str]:
    return [one.key for one in answered]


async def test_a_fetch_waits_for_changes_and_returns_only_those(parts, server, follower):
    held = asyncio.ensure_future(follower.fetch({"a": 5, "b": 5}))
    await asyncio.sleep(0.01)
    assert not held.done()
    parts["b"].log_end = 6
    server.on_change("b")
    reply = await held
    assert keys(reply.responses) == ["b"]
    assert [bytes(data) for data in follower.data] == [b"r"]


async def test_without_changes_the_answer_at_the_deadline_is_empty(parts, server, follower):
    assert (await follower.fetch({"a": 5}, wait_ms=1)).responses == []


async def test_a_watermark_alone_is_sent_a_little_later_and_once(parts, server, follower):
    held = asyncio.ensure_future(follower.fetch({"a": 5}))
    await asyncio.sleep(0)
    parts["a"].log_end, parts["a"].high_watermark = 5, 6
    server.on_change("a")
    assert [one.first for one in (await held).responses] == [6]
    assert (await follower.fetch({}, wait_ms=1)).responses == []


async def test_a_newer_fetch_ends_the_wait_of_the_one_before(parts, server, follower):
    first = asyncio.ensure_future(follower.fetch({"a": 5}))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(follower.fetch({"b": 4}))
    assert (await first).responses == []
    assert keys((await second).responses) == ["b"]


async def test_what_was_read_for_a_fetch_that_is_over_is_given_to_the_next(parts, server, follower):
    parts["a"].log_end, parts["a"].hides = 6, asyncio.Event()
    first = asyncio.ensure_future(follower.fetch({"a": 5}))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(follower.fetch({}))
    await asyncio.sleep(0)
    parts["a"].hides.set()
    assert (await first).responses == []
    assert keys((await second).responses) == ["a"]


async def test_a_change_of_a_partition_during_the_read_of_another_is_not_lost(parts, server, follower):
    parts["a"].high_watermark, parts["b"].log_end, parts["b"].hides = 6, 6, asyncio.Event()
    first = asyncio.ensure_future(follower.fetch({"a": 5, "b": 5}))
    await asyncio.sleep(0)
    parts["a"].log_end = 6
    server.on_change("a")
    parts["b"].hides.set()
    assert keys((await first).responses) == ["a", "b"], "of a the watermark, of b the batches"
    assert follower.data[0] == b""
    assert keys((await follower.fetch({"b": 6})).responses) == ["a"]
    assert follower.data[0] == b"r"


async def test_an_unknown_session_or_a_wrong_session_epoch_gets_an_error(parts, server, follower):
    await follower.fetch({"a": 5}, wait_ms=1)
    follower.session_epoch += 1
    assert not (await follower.fetch({}, wait_ms=1)).is_session_known
    other = Follower(server, "another")
    other.session_epoch = 3
    assert not (await other.fetch({}, wait_ms=1)).is_session_known


async def test_a_new_session_takes_the_place_of_the_old_one(parts, server, follower):
    old = asyncio.ensure_future(follower.fetch({"a": 5}))
    await asyncio.sleep(0)
    new = Follower(server, "another")
    held = asyncio.ensure_future(new.fetch({"a": 5}))
    assert (await old).responses == []
    parts["a"].log_end = 6
    server.on_change("a")
    assert keys((await held).responses) == ["a"]


async def test_a_fetch_before_the_leader_is_ready_waits_and_counts_afterwards(parts, server, follower):
    parts["a"].refusal = FetchError.UNKNOWN_LEADER_EPOCH
    held = asyncio.ensure_future(follower.fetch({"a": 5}))
    await asyncio.sleep(0.01)
    assert not held.done()
    parts["a"].refusal, parts["a"].high_watermark = None, 6
    server.on_change("a")
    assert keys((await held).responses) == ["a"]
    assert parts["a"].fetched_ends == [5]


async def test_a_refusal_goes_at_once_and_is_not_repeated(parts, server, follower):
    parts["a"].refusal = FetchError.NOT_LEADER
    assert [one.verdict for one in (await follower.fetch({"a": 5})).responses] == ["not_leader"]
    assert (await follower.fetch({}, wait_ms=1)).responses == []


async def test_who_begins_in_the_middle_is_handed_what_came_before(parts, server, follower):
    parts["a"].refusal = OutOfRange(9, 12, 3)
    (answered,) = (await follower.fetch({"a": 5})).responses
    assert answered.answer_to(FollowerFetch(2, 1, 1, 5, 5, 1)) == OutOfRange(9, 12, 3)
    assert answered.producer_state_offset == 8
    assert bytes(follower.data[0]) == b"what came before"


async def test_replicas_in_sync_come_first_and_the_others_with_the_next_round(parts, server, follower):
    parts["a"].in_sync = False
    parts["a"].log_end = parts["b"].log_end = 50
    assert keys((await follower.fetch({"a": 5, "b": 5}, bytes_max=40)).responses) == ["b"]
    assert keys((await follower.fetch({}, bytes_max=40)).responses) == ["a"]


async def test_catching_up_is_throttled_and_continues_when_the_bucket_is_filled(parts):
    server = FetchServer(parts.get, catchup_bytes_per_second=100)
    parts["a"].in_sync, parts["a"].log_end = False, 1000
    follower = Follower(server)
    assert [one.size_bytes for one in (await follower.fetch({"a": 5}, bytes_max=1000)).responses] == [100]
    (later,) = (await follower.fetch({"a": 105}, bytes_max=1000)).responses
    assert 1 <= later.size_bytes < 100
    parts["b"].log_end = 500
    assert keys((await follower.fetch({"b": 5}, bytes_max=1000)).responses) == ["b"], (
        "in-sync followers are not throttled"
    )


async def test_what_is_forgotten_is_not_answered(parts, server, follower):
    await follower.fetch({"a": 5, "b": 5}, wait_ms=1)
    held = asyncio.ensure_future(follower.fetch({}, forgotten=("a",)))
    await asyncio.sleep(0)
    parts["a"].log_end = parts["b"].log_end = 6
    server.on_change("a")
    await asyncio.sleep(0.01)
    assert not held.done()
    server.on_change("b")
    assert keys((await held).responses) == ["b"]
    await until(lambda: not server._held)


async def test_damage_that_keeps_a_follower_from_being_served_is_logged_once(parts, server, follower, caplog):
    parts["a"].log_end, parts["a"].damaged_end = 9, 7
    for _ in range(4):
        await follower.fetch({"a": 5}, wait_ms=1)
    assert [record.message for record in caplog.records] == ["a replica fetch failed"]
    parts["a"].damaged_end = None
    assert keys((await follower.fetch({"a": 5})).responses) == ["a"]
    parts["a"].damaged_end = 7
    await follower.fetch({"a": 5}, wait_ms=1)
    assert len(caplog.records) == 2
