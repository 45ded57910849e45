"""Follows one request through the code of a node: `python -m tests.architecture.request_path`.

Prints, for each kind of request, how many of our files it visits and how often it passes from one file to another: a
reader who follows a request opens so many files, and turns to another one so often. A node in this process serves the
requests over aiohttp's own server, so the adapter of the HTTP server is not counted. Neither is the writer's thread,
which runs before the request begins.

- A fetch counts the calls of the task that handles it.
- So does a woken long poll: its arrival, its first look, the wait, its second look and its answer. The produce that
  moves the high watermark and ends the wait runs in other tasks and callbacks.
- A produce counts the calls of its task and of the callbacks until its answer, which commit its group.
- The last line counts both requests together, as information: each file once, the changes of the mixed order.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tests.architecture.sources import CODE, ROOT
from tests.scenarios.gateways import in_process

WARM_UPS = 20
PRODUCE, FETCH = "gateway/produce/produce.py", "gateway/fetch/fetch.py"
FOLLOWED = 3
PRODUCED = WARM_UPS + FOLLOWED  # before the fetches
SETTLE_S = 0.3  # what the requests before have left to do in the background


class RequestPath(NamedTuple):
    """The files that a request visits, in the order of the first visit, and the number of passages between files."""

    files: list[str]
    changes: int


class Call(NamedTuple):
    """A call of our code: its file, and the task that ran it; None in a callback."""

    file: str
    task: object


class Follower:
    """Notes each call of our code on the loop while it is on. Threads that run already are not seen."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._roots = tuple(f"{ROOT}/{name}/" for name in CODE if name != "openapi")  # the tests look things up there

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(self._roots):
            self.calls.append(Call(path.removeprefix(f"{ROOT}/"), _running_task()))

    def path(self) -> RequestPath:
        return _path(self.calls)

    def path_of(self, handler: str, *, with_callbacks: bool = False) -> RequestPath:
        """The path of the one task that visits a file, which handles its request; perhaps with all callbacks."""
        (task,) = {call.task for call in self.calls if call.file == handler}
        assert task is not None
        tasks = (task, None) if with_callbacks else (task,)
        return _path(call for call in self.calls if call.task in tasks)


def _path(calls: Iterable[Call]) -> RequestPath:
    visited = [call.file for call in calls]
    return RequestPath(list(dict.fromkeys(visited)), sum(one != other for one, other in itertools.pairwise(visited)))


def _running_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return None


async def followed(request: Callable[[], Awaitable[Any]]) -> list[Follower]:
    """Follows a few requests, one after the other, after others of their kind have warmed up what is cached."""
    for _ in range(WARM_UPS):
        await request()
    followers = []
    for _ in range(FOLLOWED):
        await asyncio.sleep(SETTLE_S)
        followers.append(follower := Follower())
        sys.setprofile(follower)
        threading.setprofile(follower)
        try:
            await request()
        finally:
            threading.setprofile(None)
            sys.setprofile(None)
    return followers


def shortest(paths: Iterable[RequestPath]) -> RequestPath:
    """The path of the request that no timer of the node has come across."""
    return min(paths, key=lambda path: (len(path.files), path.changes))


async def paths(directory: Path) -> dict[str, RequestPath]:
    """Of a produce of one record, of a fetch, of a long poll that a produce ends, and of this poll and produce."""
    async with in_process(directory) as gateway:
        topic = await gateway.create("t")
        records = f"{topic.path}/partitions/0/records"

        async def produce() -> None:
            answer = await gateway.send("POST", f"{records}?acks=1", b"1", {"Content-Type": "application/x-ndjson"})
            assert answer.status == 200, answer

        async def fetch() -> None:
            answer = await gateway.send("GET", f"{records}?offset={PRODUCED - 1}")
            assert answer.status == 200, answer

        offsets = itertools.count(PRODUCED)

        async def long_poll() -> None:
            polling = asyncio.create_task(gateway.send("GET", f"{records}?offset={next(offsets)}&wait_ms=10000"))
            await asyncio.sleep(0.05)
            await produce()
            assert (await polling).status == 200

        produces, fetches, polls = await followed(produce), await followed(fetch), await followed(long_poll)
        return {
            "produce": shortest(one.path_of(PRODUCE, with_callbacks=True) for one in produces),
            "fetch": shortest(one.path_of(FETCH) for one in fetches),
            "woken long poll": shortest(one.path_of(FETCH) for one in polls),
            "long poll and the produce that wakes it": shortest(one.path() for one in polls),
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
