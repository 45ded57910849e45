"""Counts the source files that one request runs through: `python -m tests.architecture.request_path`.

Prints two numbers for each kind of request: how many of our files run, and how often control passes from one file to
another. They measure how many files a reader opens to follow the request, and how often the reader switches files.

The requests have one record each. A node in this process serves them with its own HTTP server over HTTP/1.1. The calls
of all tasks and callbacks are counted, from the bytes that arrive to those that are sent, in the order in which they
run: a request may have no task. The writer's thread is not counted.
"""

import asyncio
import itertools
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from aiohttp import ClientSession

from gateway.settings import NodeSettings
from node.processes.server import running_node
from tests.architecture.sources import CODE, ROOT
from tests.gateway.server.served import served

WARM_UPS = 20
RECORDED = 3
PRODUCED = WARM_UPS + RECORDED  # before the fetches
SETTLE_S = 0.3  # before each measured request, so that the background work of earlier ones has ended


class RequestPath(NamedTuple):
    """The files of a request in the order of their first call, and the number of changes from one file to another."""

    files: list[str]
    changes: int


class Call(NamedTuple):
    """A call of one of our functions: its file, and the task that made it. The task is None in a callback."""

    file: str
    task: object


class Recorder:
    """Records the calls of our code while it is the profile function. It misses threads that were started before."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._roots = tuple(f"{ROOT}/{name}/" for name in CODE if name != "openapi")  # only tests call openapi

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(self._roots):
            self.calls.append(Call(path.removeprefix(f"{ROOT}/"), _running_task()))

    def path(self) -> RequestPath:
        return _path(self.calls)


def _path(calls: Iterable[Call]) -> RequestPath:
    visited = [call.file for call in calls]
    return RequestPath(list(dict.fromkeys(visited)), sum(one != other for one, other in itertools.pairwise(visited)))


def _running_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return None


async def recorded(request: Callable[[], Awaitable[Any]]) -> list[Recorder]:
    """Send requests of one kind one after another. Returns a recorder for each of the last ones.

    The first requests fill the caches and are not recorded.
    """
    for _ in range(WARM_UPS):
        await request()
    recorders = []
    for _ in range(RECORDED):
        await asyncio.sleep(SETTLE_S)
        recorders.append(recorder := Recorder())
        sys.setprofile(recorder)
        threading.setprofile(recorder)
        try:
            await request()
        finally:
            threading.setprofile(None)
            sys.setprofile(None)
    return recorders


def shortest(paths: Iterable[RequestPath]) -> RequestPath:
    """Return the path with the fewest files: no timer of the node ran during that request."""
    return min(paths, key=lambda path: (len(path.files), path.changes))


async def paths(directory: Path) -> dict[str, RequestPath]:
    """Measure each kind of request once. Returns the paths by the names that are printed."""
    async with (
        running_node(NodeSettings(data_dir=str(directory))) as node,
        served(node, is_short=True) as ((host, port), _),
        ClientSession(f"http://{host}:{port}") as client,
    ):
        await node.shard.create_topic("t", 1, 1, {})
        records = "/v1/topics/t/partitions/0/records"

        async def produce(acks: str = "1") -> None:
            headers = {"Content-Type": "application/x-ndjson"}
            async with client.post(f"{records}?acks={acks}", data=b"1", headers=headers) as answer:
                assert answer.status == 200, answer

        async def fetch(offset: int = PRODUCED - 1, wait_ms: int = 0) -> None:
            async with client.get(f"{records}?offset={offset}&wait_ms={wait_ms}") as answer:
                assert answer.status == 200, answer

        offsets = itertools.count(PRODUCED)

        async def long_poll() -> None:
            polling = asyncio.create_task(fetch(next(offsets), 10_000))
            await asyncio.sleep(0.05)
            await produce()
            await polling

        token = ""

        async def group_poll(wait_ms: int = 0) -> None:
            nonlocal token
            wish = {"token": token, "topics": ["t"], "wait_ms": wait_ms}
            async with client.post("/v1/groups/g/members/m/poll", json=wish) as answer:
                token = (await answer.json())["token"]

        async def woken_group_poll() -> None:
            polling = asyncio.create_task(group_poll(10_000))
            while not node.long_polls.open:
                await asyncio.sleep(0.001)
            await produce()
            await polling

        produces, fetches, polls = await recorded(produce), await recorded(fetch), await recorded(long_poll)
        produces_all = await recorded(lambda: produce("all"))
        await group_poll()
        group_polls = await recorded(woken_group_poll)
        return {
            "produce with acks=1": shortest(one.path() for one in produces),
            "produce with acks=all": shortest(one.path() for one in produces_all),
            "fetch": shortest(one.path() for one in fetches),
            "long poll and the produce that wakes it": shortest(one.path() for one in polls),
            "poll of a group and the produce that wakes it": shortest(one.path() for one in group_polls),
        }


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(paths(Path(directory)))
    for name, path in found.items():
        print(f"{name}: {len(path.files)} files, {path.changes} changes of file")
        for file in path.files:
            print(f"    {file}")


if __name__ == "__main__":
    main()
