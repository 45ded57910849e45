"""Runs a scenario twice: in this process, and over HTTP/2 against a node of two shards.

Half of the partitions of such a node belong to the other process, so requests cross shards. A scenario that does not
depend on this has a mark of gateways.py and runs once. Processes serve all tests of the session, so each test creates
its own topics. A test that needs other settings or an unused node calls `start_gateway`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.node_process import NodeProcess, running_process
from tests.scenarios.gateways import Gateway, Topic, in_process, over_http2

StartGateway = Callable[..., Awaitable[Gateway]]
NewTopic = Callable[..., Awaitable[Topic]]

_numbers = itertools.count(1)


@pytest.fixture(params=["in-process", "sharded"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_process(tmp_path_factory.mktemp("shared")) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="session")
def shared_shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_process(tmp_path_factory.mktemp("shards"), shards=2) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture
async def start_gateway(form: str, tmp_path: Path) -> AsyncIterator[StartGateway]:
    """Start a separate node with these settings."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Gateway:
            directory = tmp_path / f"node-{next(_numbers)}"
            if form == "in-process":
                return await stack.enter_async_context(in_process(directory, **settings))
            shards = {"shards": 2} if form == "sharded" else {}
            process = stack.enter_context(running_process(directory, **shards, **settings))
            return await stack.enter_async_context(over_http2(process.port))

        yield start


@pytest.fixture
async def gateway(form: str, request: pytest.FixtureRequest, start_gateway: StartGateway) -> AsyncIterator[Gateway]:
    """A node with default settings."""
    if form == "in-process":
        yield await start_gateway()
    else:
        shared = "shared_shards" if form == "sharded" else "shared_process"
        async with over_http2(request.getfixturevalue(shared).port) as gateway:
            yield gateway


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A topic name that is unique to the test and contains the test's name."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_"))[:80]
    return lambda: f"{slug}.{next(_numbers)}"


@pytest.fixture
def new_topic(gateway: Gateway, new_name: Callable[[], str]) -> NewTopic:
    """Create a topic: `await new_topic(partitions, setting=value)`."""
    return lambda partitions=1, **config: gateway.create(new_name(), partitions, **config)


@pytest.fixture
async def topic(new_topic: NewTopic) -> Topic:
    """A topic of one partition with default settings."""
    return await new_topic()
