"""Clients that request much and read nothing, over both protocols: the memory that they hold is bounded, other clients
are served, and they are disconnected in the end. Slow readers are not disconnected.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from h2.events import ConnectionTerminated, DataReceived, StreamEnded

from tests.e2e.clients.deaf_clients import MIB, http1_request, http2_requests, is_hung_up_on, resident_mib, statuses
from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import RECORD_BATCH, over_http2
from tests.scenarios.raw_http1 import request_head

pytestmark = pytest.mark.e2e

# The first to stall must be there still when a busy machine has made the third answer: then the bound is reached.
STALL_MS = 4000
SLOW_STALL_MS = 2000  # for readers that are only slow
SETTINGS = {
    "send_buffer_bytes_max": 32 * MIB,
    "connection_send_buffer_bytes_max": 24 * MIB,
    "stream_stall_ms": STALL_MS,
}
ANSWER_BYTES = 16 * MIB
CLIENTS = 60
# the requests are for 960; allows the bound, one answer, two copies being sent, and the data read
GROWTH_MIB_MAX = 200


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with running_process(tmp_path_factory.mktemp("unread"), **SETTINGS) as process:
        yield process
        assert "Traceback" not in process.errors


@pytest.fixture(scope="module")
def slow_process(tmp_path_factory):
    with running_process(tmp_path_factory.mktemp("slow"), **SETTINGS | {"stream_stall_ms": SLOW_STALL_MS}) as process:
        yield process
        assert "Traceback" not in process.errors


@pytest.fixture
async def topic(process, request):
    async with filled_topic(process, request.node.name) as topic:
        yield topic


@pytest.fixture
async def slow_topic(slow_process, request):
    async with filled_topic(slow_process, request.node.name) as topic:
        yield topic


@asynccontextmanager
async def filled_topic(process, test):
    """Create a topic with 16 MiB of records."""
    async with over_http2(process.port) as gateway:
        topic = await gateway.create(test.replace("[", ".").replace("]", "")[:100])
        for _ in range(ANSWER_BYTES // MIB):
            # with acks=1 a fetch may find some of them not committed yet, and its answer be smaller
            answer = await topic.post(b"x" * (MIB - 200), "application/octet-stream", acks="all")
            assert answer.status == 200
        yield topic


def path_of(topic, size_bytes=ANSWER_BYTES):
    return f"{topic.path}/partitions/0/records?offset=0&max_bytes={size_bytes}"


def clients_that_never_read(kind, process, topic):
    path = path_of(topic)
    if kind == "http1":
        head = request_head("GET", path, f"Accept: {RECORD_BATCH}")
        return [http1_request(process.port, head) for _ in range(CLIENTS)]
    if kind == "http2":
        return [http2_requests(process.port, path, RECORD_BATCH, 1)[0] for _ in range(CLIENTS)]
    return [http2_requests(process.port, path, RECORD_BATCH, CLIENTS // 4)[0] for _ in range(4)]


@pytest.mark.parametrize(
    "kind", ["http1", *(pytest.param(one, marks=pytest.mark.long) for one in ("http2", "http2-many-streams"))]
)
async def test_who_never_reads_takes_bounded_memory_and_is_hung_up_on(process, topic, kind):
    gateway = topic.gateway
    assert (await topic.fetch(0, accept=RECORD_BATCH, max_bytes=ANSWER_BYTES)).status == 200
    before = resident_mib(process.pid)
    given_up = await gateway.metric("penstock_stalled_connections_closed_total")
    clients = clients_that_never_read(kind, process, topic)
    try:
        most, until = 0.0, time.monotonic() + STALL_MS / 1000 / 2
        while time.monotonic() < until:
            most = max(most, resident_mib(process.pid))
            await asyncio.sleep(0.02)
        assert most - before < GROWTH_MIB_MAX, (before, most)
        async with asyncio.timeout(60):  # all have been served
            while await gateway.metric("penstock_rejected_responses_total") < 1:
                await asyncio.sleep(0.05)
        assert (await topic.post(b"y", "text/plain")).status == 200, "others are served meanwhile"
        assert (await topic.fetch(0, max_records=1, max_bytes=1, accept=RECORD_BATCH)).status in (200, 503)
        async with asyncio.timeout(60):
            while await gateway.metric("penstock_send_buffer_bytes"):
                await asyncio.sleep(0.05)
        assert await gateway.metric("penstock_stalled_connections_closed_total") > given_up
    finally:
        for client in clients:
            client.close()
    answer = await topic.fetch(0, accept=RECORD_BATCH, max_bytes=ANSWER_BYTES)
    assert (answer.status, len(answer.body) > ANSWER_BYTES / 2) == (200, True), "and there is room again"


async def test_an_answer_for_which_there_is_no_room_is_refused_with_words(process, topic):
    """The bound holds per connection and in total; small answers do not count, and produces are accepted."""
    head = request_head("GET", path_of(topic), f"Accept: {RECORD_BATCH}")
    deaf = [http1_request(process.port, head) for _ in range(3)]
    try:
        async with asyncio.timeout(60):
            while (answer := await topic.fetch(0, accept=RECORD_BATCH, max_bytes=ANSWER_BYTES)).status == 200:
                deaf.append(http1_request(process.port, head))
        assert_problem(answer, "overloaded", retryable=True, no_side_effects=True)
        assert answer.headers["Retry-After"]
        assert (await topic.post(b"y", "text/plain")).status == 200
        end = (await topic.positions())["log_end"]
        assert (await topic.fetch(end - 1)).status == 200
        assert await asyncio.to_thread(is_hung_up_on, deaf[0])
    finally:
        for client in deaf:
            client.close()


async def test_a_connection_that_reads_too_little_gets_429(process, topic):
    client, connection = http2_requests(process.port, path_of(topic), RECORD_BATCH, 3)
    try:
        found = await asyncio.to_thread(statuses, client, connection, 3)
    finally:
        client.close()
    assert sorted(found) == ["200", "429", "429"]


async def test_slow_readers_get_everything(slow_process, slow_topic):
    await asyncio.gather(
        read_slowly_over_http1(slow_process, slow_topic), read_slowly_over_http2(slow_process, slow_topic)
    )


async def read_slowly_over_http1(slow_process, slow_topic):
    """It reads a little now and then, for longer than a stall may last, while other clients stall."""
    size_bytes = 8 * MIB
    head = request_head("GET", path_of(slow_topic, size_bytes), f"Accept: {RECORD_BATCH}")
    client = http1_request(slow_process.port, head, 256 * 1024)
    received, began = 0, time.monotonic()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        while piece := await loop.sock_recv(client, 128 * 1024):
            received += len(piece)
            await asyncio.sleep(0.06)
    client.close()
    assert received > size_bytes - MIB
    assert time.monotonic() - began > 1.5 * SLOW_STALL_MS / 1000


async def read_slowly_over_http2(slow_process, slow_topic):
    """It opens its window in small steps."""
    size_bytes = 4 * MIB
    client, connection = http2_requests(slow_process.port, path_of(slow_topic, size_bytes), RECORD_BATCH, 1, 65536)
    received, began, is_over = 0, time.monotonic(), False
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        while not is_over:
            for event in connection.receive_data(await loop.sock_recv(client, 65536)):
                if isinstance(event, DataReceived):
                    received += len(event.data)
                    await asyncio.sleep(0.06 * event.flow_controlled_length / 65536)
                    connection.acknowledge_received_data(event.flow_controlled_length, 1)
                is_over |= isinstance(event, StreamEnded | ConnectionTerminated)
            await loop.sock_sendall(client, connection.data_to_send())
    client.close()
    assert received > size_bytes - MIB
    assert time.monotonic() - began > 1.5 * SLOW_STALL_MS / 1000
