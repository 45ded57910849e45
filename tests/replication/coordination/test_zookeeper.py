"""Failures of a session that only ZooKeeper has: reconnections and lost answers. A real one, behind a proxy."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from unittest.mock import Mock

import pytest

from engine.errors import StartRefused
from loadtests.cluster.zookeeper import START_S
from replication.coordination.interface import CommitUnknown, Conflict, Create, Delete, Put, State
from replication.coordination.zookeeper import Address, ZookeeperSession, parse_address

WAIT_S = 60.0
_ids = (f"{n:032x}" for n in itertools.count(1))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("zookeeper://a:2181", Address("a:2181", "")),
        ("zookeeper://a:2181/penstock", Address("a:2181", "/penstock")),
        ("zookeeper://a:2181,b:2182/x/y/", Address("a:2181,b:2182", "/x/y")),
        ("zookeeper://[::1]:2181,[2001:db8::7],10.0.0.1:1/x", Address("[::1]:2181,[2001:db8::7],10.0.0.1:1", "/x")),
    ],
)
def test_an_address_names_hosts_and_a_root(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "a:2181", "etcd://a:2181", "zookeeper:///x", "zookeeper://a:2181/x y", "zookeeper://::1:2181/x",
     "zookeeper://[fe80::1%eth0]:2181/x", "zookeeper://a:x/p", "zookeeper://a,,b/p", "zookeeper://u@a/p"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text):
    with pytest.raises(StartRefused):
        parse_address(text)


async def opened(port: int, root: str = "", start_s: float = START_S) -> ZookeeperSession:
    address = Address(f"127.0.0.1:{port}", root)
    return await ZookeeperSession.open(address, session_timeout_ms=40_000, new_id=_ids.__next__, start_s=start_s)


async def test_where_nobody_answers_a_start_is_refused():
    with pytest.raises(StartRefused, match="does not answer"):
        await opened(1, start_s=0.3)


async def test_a_cancelled_close_stops_the_connection_all_the_same():
    """A later close also waits for the end."""
    client, may_end = Mock(), threading.Event()
    client.stop.side_effect = lambda: may_end.wait(WAIT_S)
    session = ZookeeperSession(client, "", _ids.__next__)
    closing = asyncio.ensure_future(session.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    again = asyncio.ensure_future(session.close())
    may_end.set()
    await asyncio.wait_for(again, WAIT_S)
    client.close.assert_called_once_with()


class Cable:
    """Forwards bytes between a client and the server; cuts the connection at the next message of one direction."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.loses_next: str | None = None
        self.is_pulled = False
        self.cuts = 0
        self.carried = bytearray()
        self._server_port = server_port
        self._writers: set[asyncio.StreamWriter] = set()

    def pull(self) -> None:
        """Block all traffic until `is_pulled` is reset."""
        self.is_pulled = True
        for writer in self._writers:
            writer.close()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_pulled:
            writer.close()
            return
        self._writers.add(writer)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        writers = (writer, far_writer)
        with suppress(OSError):
            await asyncio.gather(
                self._carry("request", reader, far_writer, writers), self._carry("answer", far_reader, writer, writers)
            )

    async def _carry(self, what, reader, writer, writers) -> None:
        while data := await reader.read(65536):
            if self.loses_next == what:
                self.loses_next = None
                self.cuts += 1
                break
            self.carried += data
            writer.write(data)
        for one in writers:
            one.close()


@asynccontextmanager
async def cable(server_port: int) -> AsyncIterator[Cable]:
    made = Cable(server_port)
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


@pytest.fixture
async def lossy(zookeeper_server, tmp_path) -> AsyncIterator[tuple[Cable, ZookeeperSession]]:
    async with cable(zookeeper_server.port) as made:
        session = await opened(made.port, f"/{tmp_path.name}")
        yield made, session
        await session.close()


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_a_commit_whose_answer_or_request_was_lost_happens_once(lossy, lost):
    made, session = lossy
    await session.commit(Create("/n", b"0"))
    for version in range(3):
        made.loses_next = lost
        created = Create(f"/new/{version}", b"")
        await asyncio.wait_for(session.commit(Put("/n", b"%d" % (version + 1), version), created), WAIT_S)
        found = await session.get("/n")
        assert (found.value, found.version) == (b"%d" % (version + 1), version + 1)
    assert made.cuts == 3
    assert await session.children("/new") == ["0", "1", "2"]
    assert session.state is State.CONNECTED


async def test_a_session_that_does_not_look_whether_it_happened_is_caught(lossy, monkeypatch):
    async def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(ZookeeperSession, "_has_happened", never)
    with pytest.raises(Conflict):
        await test_a_commit_whose_answer_or_request_was_lost_happens_once(lossy, "answer")


async def test_an_unknown_outcome_of_a_commit_is_raised(lossy):
    made, session = lossy
    await session.commit(Create("/n", b""))
    made.loses_next = "answer"
    with pytest.raises(CommitUnknown):
        await asyncio.wait_for(session.commit(Delete("/n", 0)), WAIT_S)
    assert await session.get("/n") is None


async def test_without_a_store_calls_wait_and_a_session_that_continues_has_lost_nothing(lossy):
    made, session = lossy
    await session.commit(Create("/node", b"", is_ephemeral=True), Create("/n", b"0"))
    seen = await session.get("/n")
    made.pull()
    assert await asyncio.wait_for(session.wait_for_state(State.CONNECTED), WAIT_S) is State.SUSPENDED
    calls = (session.commit(Put("/n", b"1", 0)), session.get("/node"), session.wait_for_change("/n", seen))
    waiting = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in waiting)
    made.is_pulled = False
    _, node, changed = await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
    assert node is not None
    assert (changed.value, changed.version) == (b"1", 1)
    assert session.state is State.CONNECTED
    await session.close()
    assert not session._client.connected
