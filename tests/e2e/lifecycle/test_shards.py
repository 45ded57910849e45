"""A node of several shards, as real processes: clients see one node, also when a part of it fails."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.e2e.calls import call
from tests.e2e.node_process import NodeProcess, refused_start, running_process
from tests.scenarios.event_source import EventSource, event_source
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

PARTITIONS = 5


def children(pid: int) -> dict[str, int]:
    """Return the processes that a supervisor has started, by module; a second shard has a number after it."""
    found: dict[str, int] = {}
    for child in sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        module = next((word.decode() for word in words if word.startswith((b"node.", b"gateway."))), "")
        found[module if module not in found else f"{module}-{len(found)}"] = child
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end while its file is read
        return False


class Ledger:
    """The acknowledged records of a topic, to be checked later."""

    def __init__(self, url: str, topic: str = "t") -> None:
        self.url = url
        self.topic = topic
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.refused = 0
        self._next = 0

    def produce(self, count: int) -> None:
        for _ in range(count):
            self._next += 1
            partition = self._next % PARTITIONS
            try:
                answer = call(
                    f"{self.url}/v1/topics/{self.topic}/partitions/{partition}/records",
                    "POST",
                    {"records": [{"value": self._next}]},
                )
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                self.refused += 1
            else:
                self.acknowledged[partition, answer["results"][0]["base_offset"]] = self._next

    def is_served(self, count: int) -> bool:
        refused_before = self.refused
        self.produce(count)
        return self.refused == refused_before

    def missing(self, url: str) -> dict[tuple[int, int], int]:
        found = {}
        for partition in range(PARTITIONS):
            offset = 0
            while True:
                chunk = call(f"{url}/v1/topics/{self.topic}/partitions/{partition}/records?offset={offset}")
                if not chunk["records"]:
                    break
                found |= {(partition, record["offset"]): record["value"] for record in chunk["records"]}
                offset = chunk["next_offset"]
        return {where: value for where, value in self.acknowledged.items() if found.get(where) != value}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_process(tmp_path_factory.mktemp("shards"), shards=2) as process:
        yield process


@pytest.fixture
def topic(node: NodeProcess) -> str:
    name = f"t{len(call(f'{node.url}/v1/topics')['topics'])}"
    call(f"{node.url}/v1/topics/{name}", "PUT", {"partitions": PARTITIONS})
    return name


def test_every_port_serves_every_partition_and_describe_names_the_owners_own(node: NodeProcess, topic: str) -> None:
    ledger = Ledger(node.url, topic)
    ledger.produce(3 * PARTITIONS)
    described = call(f"{node.url}/v1/topics/{topic}")["partitions"]
    urls = {partition["leader_url"] for partition in described}
    assert len(urls) == 2
    assert node.url not in urls
    assert [partition["high_watermark"] for partition in described] == [3] * PARTITIONS
    for url in urls:
        assert ledger.missing(url) == {}


def test_topics_are_the_same_in_every_shard(node: NodeProcess, topic: str) -> None:
    urls = [partition["leader_url"] for partition in call(f"{node.url}/v1/topics/{topic}")["partitions"]]
    call(f"{urls[0]}/v1/topics/u", "PUT", {"partitions": 2})
    call(f"{urls[1]}/v1/topics/u", "PATCH", {"config": {"flush_ms": 7}})
    for url in urls:
        assert call(f"{url}/v1/topics/u")["config"]["flush_ms"] == 7
    call(f"{urls[1]}/v1/topics/u", "DELETE")
    for url in urls:
        with pytest.raises(urllib.error.HTTPError) as refused:
            call(f"{url}/v1/topics/u")
        assert refused.value.code == 404


def test_the_worker_ships_what_the_shards_seal(node: NodeProcess, topic: str) -> None:
    Ledger(node.url, topic).produce(2 * PARTITIONS)
    rolled = call(f"{node.url}/v1/topics/{topic}/roll", "POST")["partitions"]
    assert {row["partition"]: row["sealed_end"] for row in rolled} == dict.fromkeys(range(PARTITIONS), 2)

    def is_tiered() -> bool:
        return all(row["tiered_end"] == 2 for row in call(f"{node.url}/v1/topics/{topic}/tier")["partitions"])

    wait_until(is_tiered)


def test_a_killed_shard_comes_back_with_all_that_was_acknowledged(node: NodeProcess, topic: str) -> None:
    ledger = Ledger(node.url, topic)
    ledger.produce(4 * PARTITIONS)
    shard = children(node.pid)["node.processes.shard_process"]
    os.kill(shard, signal.SIGKILL)
    ledger.produce(2 * PARTITIONS)
    wait_until(lambda: ledger.is_served(PARTITIONS))
    assert shard not in children(node.pid).values()
    assert ledger.missing(node.url) == {}


def test_a_shard_that_hangs_is_started_again_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    with running_process(tmp_path, shards=2, process_heartbeat_timeout_ms=3000) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": PARTITIONS})
        ledger = Ledger(node.url)
        ledger.produce(4 * PARTITIONS)
        shard = children(node.pid)["node.processes.shard_process"]
        os.kill(shard, signal.SIGSTOP)
        wait_until(lambda: not is_alive(shard))
        wait_until(lambda: ledger.is_served(PARTITIONS))
        assert ledger.missing(node.url) == {}


def test_a_killed_worker_comes_back_and_ships_on(node: NodeProcess, topic: str) -> None:
    os.kill(children(node.pid)["node.processes.worker_process"], signal.SIGKILL)
    Ledger(node.url, topic).produce(PARTITIONS)
    call(f"{node.url}/v1/topics/{topic}/roll", "POST")

    def is_tiered() -> bool:
        try:
            return all(row["tiered_end"] == 1 for row in call(f"{node.url}/v1/topics/{topic}/tier")["partitions"])
        except urllib.error.HTTPError:
            return False  # 503 while the worker is not running

    wait_until(is_tiered)


def test_when_the_supervisor_is_killed_its_shards_go_too_and_the_next_node_has_everything(tmp_path: Path) -> None:
    with running_process(tmp_path, shards=2) as process:
        call(f"{process.url}/v1/topics/t", "PUT", {"partitions": PARTITIONS})
        ledger = Ledger(process.url)
        ledger.produce(4 * PARTITIONS)
        orphans = list(children(process.pid).values())
        for orphan in orphans:
            os.kill(orphan, signal.SIGSTOP)
        process.kill()
        for shards in (0, 2):
            code, _, stderr = refused_start(data_dir=tmp_path / "data", port=0, shards=shards, shutdown_timeout_ms=200)
            assert (code, "in use" in stderr) == (1, True), "no second node may start while an orphan could still write"
            assert stderr.count("waiting for another process") == 1
    resuming = Thread(target=resume_when_awaited, args=(tmp_path, orphans))
    resuming.start()
    # also the port, which they listen on
    with running_process(tmp_path, shards=3, port=process.port, shutdown_timeout_ms=100_000) as process:
        resuming.join()
        assert not any(map(is_alive, orphans))
        assert ledger.missing(process.url) == {}
        ledger.url = process.url
        ledger.produce(PARTITIONS)
        pids = list(children(process.pid).values())
        assert process.stop() == 0
        assert not any(map(is_alive, pids)), "a stop leaves no process"
        assert not (tmp_path / "data" / "running").exists(), "a stop is clean"
    with running_process(tmp_path) as process:
        assert ledger.missing(process.url) == {}
        assert process.stop() == 0


def resume_when_awaited(directory: Path, orphans: list[int]) -> None:
    """Let the stopped shards end as soon as a node logs that it waits for them."""
    wait_until(lambda: any("waiting for another process" in log.read_text() for log in directory.glob("*.err")))
    for orphan in orphans:
        os.kill(orphan, signal.SIGCONT)


@pytest.mark.long
def test_a_shard_whose_supervisor_dies_before_it_has_joined_is_no_orphan(tmp_path: Path) -> None:
    """An orphan would hold the data directory permanently, and no node could start."""
    with running_process(tmp_path, shards=2) as process:
        before = set(children(process.pid).values())
        os.kill(children(process.pid)["node.processes.shard_process"], signal.SIGKILL)
        wait_until(lambda: bool(set(children(process.pid).values()) - before))
        (late,) = set(children(process.pid).values()) - before
        os.kill(late, signal.SIGSTOP)  # during its imports
        process.kill()
        os.kill(late, signal.SIGCONT)
        wait_until(lambda: not any(map(is_alive, {late, *before})))


async def test_a_stream_that_is_resumed_while_a_shard_restarts_is_not_refused(node: NodeProcess, topic: str) -> None:
    """A browser's EventSource that receives 503 never reconnects."""
    os.kill(children(node.pid)["node.processes.shard_process"], signal.SIGKILL)
    async with AsyncExitStack() as stack:
        streams: list[EventSource] = []
        while len(streams) < 5:
            source = event_source(node.port, f"/v1/topics/{topic}/records", {"Last-Event-ID": "0-0-0-0-0"})
            # accepted by the process that died; EventSource retries after such an error
            with suppress(httpx.TransportError):
                streams.append(await stack.enter_async_context(source))
        assert [stream.status for stream in streams] == [200] * 5
        ledger = Ledger(node.url, topic)
        while len({partition for partition, _ in ledger.acknowledged}) < PARTITIONS:
            await asyncio.to_thread(ledger.produce, PARTITIONS)
        for stream in streams:
            seen: dict[tuple[int, int], Any] = {}
            while not ledger.acknowledged.keys() <= seen.keys():
                event = await stream.next()
                assert event is not None
                assert (event.json["partition"], event.json["offset"]) not in seen
                seen[event.json["partition"], event.json["offset"]] = event.json["value"]
            assert ledger.acknowledged.items() <= seen.items()
