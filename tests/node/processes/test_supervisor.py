"""A supervisor with real processes: after any failure of a start or a stop none of them is left behind."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.directory.log_directories import LogDirectories
from engine.runtime.disk import RealDisk
from gateway.links.link import LinkLost, handler
from gateway.links.link_client import LinkClient, listen
from gateway.settings import NodeSettings
from node.child_processes import Child
from node.cluster.standalone_topics import Standalone
from node.messages import shard_socket
from node.processes.process_manager import call_sequentially, end
from node.processes.process_parts import StoppedEarly, open_directories, run_unless_stopped
from node.processes.supervisor import Supervisor, _run_dir, reserve_ports
from tests.waiting import until

SOON_S = 0.05


class Joining(Standalone):
    """A stub of ZooKeeper: joins when the test sets it, or not at all."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        super().__init__(executor)
        self.begun = asyncio.Event()
        self.may_join = asyncio.Event()
        self.failure: Exception | None = None

    async def join(self) -> None:
        self.begun.set()
        await self.may_join.wait()
        if self.failure is not None:
            raise self.failure

    async def leave(self) -> None:
        if self.failure is not None:
            raise self.failure


@asynccontextmanager
async def supervisor(tmp_path: Path) -> AsyncIterator[tuple[Supervisor, Joining]]:
    (tmp_path / "run").mkdir()
    settings = NodeSettings(port=0, data_dir=str(tmp_path / "data"), shards=1)
    directories: LogDirectories = open_directories(RealDisk(), settings)
    with ThreadPoolExecutor(2) as executor, reserve_ports(settings) as ports:
        member = Joining(executor)
        made = Supervisor(settings, directories, str(tmp_path / "run"), ports, executor, member, ())
        try:
            yield made, member
        finally:
            directories.release()
            for child in made._children:
                if child.running is not None:
                    child.running.kill()


def still_running(made: Supervisor) -> list[int]:
    assert all(child.process is not None for child in made._children), "they had been started"
    return [child.index for child in made._children if child.running is not None]


async def test_a_start_that_fails_for_whatever_reason_ends_the_processes(tmp_path):
    async with supervisor(tmp_path) as (made, member):
        member.failure = LinkLost("no reply to leader_epochs within 60 s")
        member.may_join.set()
        with pytest.raises(LinkLost):
            await made.start()
        assert still_running(made) == []


async def test_a_start_that_waits_for_others_ends_when_the_node_is_stopped(tmp_path):
    async with supervisor(tmp_path) as (made, member):
        stop = asyncio.Event()
        starting = asyncio.create_task(run_unless_stopped(stop, made.start()))
        await asyncio.wait_for(member.begun.wait(), 60)
        stop.set()
        with pytest.raises(StoppedEarly):
            await asyncio.wait_for(starting, 60)
        assert still_running(made) == []


async def test_a_stop_ends_the_processes_though_leaving_fails(tmp_path):
    async with supervisor(tmp_path) as (made, member):
        member.may_join.set()
        await made.start()
        member.failure = LinkLost("no reply to pause within 60 s")
        with pytest.raises(LinkLost):
            await made.stop()
        assert still_running(made) == []


async def test_work_that_is_done_before_the_node_is_stopped_counts():
    async def work() -> int:
        return 7

    assert await run_unless_stopped(asyncio.Event(), work()) == 7


async def test_a_process_that_hangs_is_killed_and_the_others_end_by_themselves():
    children = [Child(index) for index in range(2)]
    for child in children:
        child.process = await asyncio.create_subprocess_exec("sleep", "600")
    assert children[0].running is not None
    os.kill(children[0].running.pid, signal.SIGSTOP)
    stat = Path(f"/proc/{children[0].running.pid}/stat")
    async with asyncio.timeout(60):
        while stat.read_text().rpartition(")")[2].split()[0] != "T":  # earlier SIGTERM might arrive first
            await asyncio.sleep(SOON_S)
    assert not await end(children, 5.0)
    assert [child.process.returncode for child in children if child.process] == [-signal.SIGKILL, -signal.SIGTERM]


async def test_a_hung_process_does_not_keep_others_from_being_notified(tmp_path):
    """For example of a new certificate: the files are not read again until they change again."""
    notified: list[int] = []

    async def server_of(index: int) -> tuple[asyncio.AbstractServer, LinkClient]:
        async def take(_: object, __: bytes) -> tuple[None, bytes]:
            notified.append(index)
            if index == 0:
                await asyncio.Event().wait()
            return None, b""

        path = str(tmp_path / str(index))
        return await listen(path, {"renew_tls": handler(object, take)}), LinkClient(path)

    made = [await server_of(index) for index in range(3)]
    links = [await caller.wait_connected_within(60) for _, caller in made]
    with pytest.raises(LinkLost):
        await call_sequentially(links, "renew_tls", None, SOON_S)
    await until(lambda: notified == [0, 1, 2])
    for server, caller in made:
        caller.close()
        server.close()


async def test_sockets_have_room_though_temporary_files_go_far_down(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with _run_dir() as run_dir:
        (await listen(shard_socket(run_dir, 999), {})).close()
