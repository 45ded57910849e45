"""Live tails: a partition or a topic as an event stream, resumed without loss or repeat, and ended with a reason."""

import asyncio
import itertools
import re
from contextlib import AsyncExitStack, suppress

import pytest
from h2.connection import H2Connection

from gateway.fetch import rendering
from gateway.fetch.rendering import render_records
from tests import waiting
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import http2_only, in_process_only, sharded_only

PROMPT_S = 45.0


@pytest.fixture
def follow(gateway):
    """Open a stream on a topic, or on one of its partitions."""
    return opener(gateway)


def opener(gateway, **options):
    def open_stream(topic, query="", partition=None, event_id=None, **more):
        where = topic.path if partition is None else f"{topic.path}/partitions/{partition}"
        headers = {} if event_id is None else {"Last-Event-ID": event_id}
        return event_source(gateway.port, f"{where}/records{query}", headers, **options, **more)

    return open_stream


async def until(topic, metric, expected):
    async with asyncio.timeout(PROMPT_S):
        while await topic.gateway.metric(metric) != expected:
            await asyncio.sleep(0.02)


async def test_a_tail_gives_what_is_there_and_then_what_comes(topic, follow):
    await topic.post_lines('"old"', '{"n":1}')
    async with follow(topic, "?from=earliest", partition=0) as stream:
        assert stream.status == 200
        old = await stream.take(2)
        assert [event.json["value"] for event in old] == ["old", {"n": 1}]
        assert [event.positions for event in old] == ["1", "2"], "an id is the next position"
        for number in range(3):
            await topic.post_lines(str(number))
            (event,) = await stream.take(1)
            assert (event.json["offset"], event.json["value"], event.positions) == (2 + number, number, str(3 + number))


@sharded_only
async def test_a_tail_goes_over_http2(topic, follow):
    await topic.post_lines('"old"')
    async with follow(topic, "?offset=0", partition=0, http2=True) as stream:
        assert stream.http_version == "HTTP/2"
        await topic.post_lines('"new"')
        assert [event.json["value"] for event in await stream.take(2)] == ["old", "new"]


async def test_without_a_start_a_tail_begins_at_the_end(topic, follow):
    await topic.post_lines('"old"')
    async with follow(topic, partition=0) as stream:
        await topic.post_lines('"new"')
        (event,) = await stream.take(1)
        assert event.json["value"] == "new"


async def test_a_topic_is_followed_in_all_its_partitions(new_topic, follow):
    topic = await new_topic(4)
    async with follow(topic) as stream:
        for number in range(4):
            await topic.post_lines(f'"of {number}"', '"two"', to=number)
        events = await stream.take(8)
        for number in range(4):
            of_partition = [event.json for event in events if event.json["partition"] == number]
            assert [(record["offset"], record["value"]) for record in of_partition] == [(0, f"of {number}"), (1, "two")]
        assert events[-1].positions == "2-2-2-2"


async def test_a_topic_is_resumed_after_any_event_without_loss_or_repeat(new_topic, follow):
    topic = await new_topic(3)
    for number in range(3):
        await topic.post_lines(*(str(n) for n in range(4)), to=number)
    async with follow(topic, "?from=earliest") as stream:
        events = await stream.take(12)
    everything = {(number, offset) for number in range(3) for offset in range(4)}
    for cut in (1, 5, 11):
        seen = [(event.json["partition"], event.json["offset"]) for event in events[:cut]]
        # The header has priority over the query, since a browser repeats its first query when it reconnects.
        async with follow(topic, "?from=earliest", event_id=events[cut - 1].id) as again:
            seen += [(e.json["partition"], e.json["offset"]) for e in await again.take(12 - cut)]
        assert sorted(seen) == sorted(everything)
        async with follow(topic, f"?positions={events[cut - 1].id}") as again:
            rest = {(e.json["partition"], e.json["offset"]) for e in await again.take(12 - cut)}
        assert rest == everything - {(e.json["partition"], e.json["offset"]) for e in events[:cut]}


async def test_who_is_cut_off_before_the_first_event_misses_nothing(topic, follow):
    await topic.post_lines('"old"')
    async with follow(topic, partition=0) as stream:
        await topic.post_lines('"seen"')
        await stream.take(1)
    async with follow(topic) as stream:
        reading = asyncio.create_task(stream.next())
        await waiting.until(lambda: stream.last_id)
        await asyncio.sleep(0.05)
        assert not reading.done(), "its position comes without an event"
        reading.cancel()
        event_id = stream.last_id
    await topic.post_lines('"meanwhile"')
    async with follow(topic, event_id=event_id) as stream:
        (event,) = await stream.take(1)
        assert event.json["value"] == "meanwhile"


async def test_a_time_is_a_start_too(new_topic, follow):
    topic = await new_topic(2, timestamp_type="create")
    for number in range(2):
        await topic.post_records(*({"value": n, "timestamp": 1000 * n} for n in range(4)), partition=number)
    async with follow(topic, "?timestamp=2000") as stream:
        assert sorted(event.json["value"] for event in await stream.take(4)) == [2, 2, 3, 3]
        assert "Penstock-Hint" not in stream.headers
    async with follow(topic, "?timestamp=1385053862") as stream:
        assert stream.headers["Penstock-Hint"] == "1385053862 is a time in January 1970: give milliseconds"


async def test_deleting_the_topic_ends_the_stream_with_a_problem(new_topic, follow):
    topic = await new_topic(2)
    async with follow(topic) as stream:
        await topic.post_lines('"last"')
        await stream.take(1)
        await topic.gateway.send("DELETE", topic.path)
        problem = await stream.problem()
        assert (problem["code"], problem["request_id"]) == ("unknown_topic", stream.headers["Penstock-Request-Id"])


async def test_records_deleted_before_they_were_read_end_a_resumed_stream_with_410(new_topic, follow):
    topic = await new_topic(1)
    await topic.post_lines("1", "2", "3")
    await topic.gateway.send("DELETE", f"{topic.path}/partitions/0/records", before=2)
    async with follow(topic, event_id="1") as stream:
        problem = await stream.problem()
        assert (stream.status, problem["code"], problem["log_start"]) == (410, "offset_below_log_start", 2)


@http2_only
async def test_a_silent_stream_has_heartbeats(start_gateway):
    gateway = await start_gateway(stream_heartbeat_ms=100)
    topic = await gateway.create("silent", 2)
    async with opener(gateway)(topic) as stream:
        reading = asyncio.create_task(stream.next())
        async with asyncio.timeout(PROMPT_S):
            while stream.comments < 3:
                await asyncio.sleep(0.02)
        await topic.post_lines('"at last"')
        assert (await reading).json["value"] == "at last"


@http2_only
async def test_a_stream_counts_as_a_long_poll_until_its_client_leaves(start_gateway):
    gateway = await start_gateway(long_polls_max=2)
    topic = await gateway.create("counted", 2)
    follow = opener(gateway)
    async with follow(topic) as stream:
        assert stream.status == 200
        async with follow(topic, partition=0), follow(topic, partition=1) as third:
            assert third.headers["Retry-After"]
            assert (await third.problem())["code"] == "too_many_long_polls"
        await until(topic, "penstock_long_polls", 1)
    await until(topic, "penstock_event_streams", 0)
    await until(topic, "penstock_long_polls", 0)


async def test_a_long_history_comes_whole_and_in_order(new_topic, follow):
    """More than one piece, of several batches, some of them compressed and larger than a piece."""
    topic = await new_topic(1, compression="zstd")
    numbers = itertools.count()
    for _ in range(6):
        await topic.post_lines(*(f'{{"n":{next(numbers)},"pad":"{"x" * 100}"}}' for _ in range(2000)))
    async with follow(topic, "?from=earliest", partition=0) as stream:
        events = await stream.take(12_000)
    assert [event.json["value"]["n"] for event in events] == list(range(12_000))
    assert [event.positions for event in events] == [str(n + 1) for n in range(12_000)]


async def unread_topic(gateway):
    """Fill a topic with records of a megabyte, more than any buffer holds."""
    topic = await gateway.create("unread", 1)
    for _ in range(24):
        await topic.post(b"x" * 1_000_000, "application/octet-stream")
    return topic


@http2_only
async def test_a_client_that_never_reads_is_cut_and_costs_a_bounded_amount(start_gateway):
    gateway = await start_gateway(stream_stall_ms=300, stream_send_buffer_bytes_max=1024 * 1024)
    topic = await unread_topic(gateway)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
    path = f"{topic.path}/partitions/0/records?from=earliest"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    await until(topic, "penstock_event_streams", 0)
    sent = 0
    with suppress(ConnectionResetError):
        while piece := await reader.read(65536):
            sent += len(piece)
    writer.close()
    assert sent < 16_000_000, "the kernel's buffers and a megabyte, not the whole log"
    assert (await topic.fetch(0, max_records=1)).status == 200


@http2_only
async def test_an_http2_client_that_opens_no_window_is_cut_too(start_gateway):
    """It reads the connection, so the kernel's buffers are empty: only data queued for the stream counts."""
    gateway = await start_gateway(stream_stall_ms=300)
    topic = await unread_topic(gateway)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    connection = H2Connection()
    connection.initiate_connection()
    path = f"{topic.path}/partitions/0/records?from=earliest"
    pseudo = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "127.0.0.1")]
    connection.send_headers(1, [*pseudo, ("accept", "text/event-stream")], end_stream=True)
    writer.write(connection.data_to_send())
    async with asyncio.timeout(PROMPT_S):
        with suppress(ConnectionResetError):
            while piece := await reader.read(65536):
                connection.receive_data(piece)
                writer.write(connection.data_to_send())
    writer.close()
    await until(topic, "penstock_event_streams", 0)


@http2_only
async def test_a_slow_client_gets_everything(start_gateway):
    gateway = await start_gateway(stream_send_buffer_bytes_max=1024 * 1024)
    topic = await gateway.create("slow", 1)
    for number in range(40):
        await topic.post_lines(f'"{number}{"x" * 200_000}"')
    async with opener(gateway)(topic, "?from=earliest") as stream:
        for number in range(40):
            event = await stream.next()
            assert event.json["value"].rstrip("x") == str(number)
            await asyncio.sleep(0.01)


@in_process_only
async def test_streams_at_one_position_share_what_one_of_them_rendered(topic, follow, monkeypatch):
    rendered, empty = [], []

    def counted(read, *arguments):
        (empty if read.chunk is None else rendered).append(read.offset)
        return render_records(read, *arguments)

    monkeypatch.setattr(rendering, "render_records", counted)
    async with AsyncExitStack() as opened:
        streams = [await opened.enter_async_context(follow(topic)) for _ in range(5)]
        streams += [await opened.enter_async_context(follow(topic, "?value=base64")) for _ in range(2)]
        for number in range(3):
            await topic.post_lines(str(number))
            for stream in streams[:5]:
                (event,) = await stream.take(1)
                assert (event.json["offset"], event.json["value"]) == (number, number)
            for stream in streams[5:]:
                (event,) = await stream.take(1)
                assert (event.json["offset"], "value_base64" in event.json) == (number, True)
    assert [rendered.count(offset) for offset in range(3)] == [2, 2, 2], "once for each form of values"
    assert set(empty) == {0}, "a stream that has caught up waits before it reads"


@in_process_only
async def test_streams_that_nobody_reads_hold_a_bounded_amount_of_large_batches(start_gateway):
    """A batch is read as a unit, so each of many clients that read nothing could hold one of the largest."""
    gateway = await start_gateway(stream_send_buffer_bytes_max=1024 * 1024)
    topic = await gateway.create("large", 1)
    batch = [f'"{number}{"x" * 1_000_000}"' for number in range(7)]
    assert (await topic.post_lines(*batch)).status == 200
    assert (await topic.post_lines(*batch)).status == 200
    budget = gateway.node.server.fetch.stream_budget
    head = f"GET {topic.path}/records?from=earliest HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
    clients = [await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024) for _ in range(5)]
    for _, writer in clients:
        writer.write(head.encode())
    await until(topic, "penstock_event_streams", 5)
    async with asyncio.timeout(PROMPT_S):
        while not budget.size_bytes:
            await asyncio.sleep(0.02)
    for _ in range(20):
        assert budget.size_bytes < 2 * 2 * sum(map(len, batch)), "one has found room, the others wait"
        await asyncio.sleep(0.05)

    async def all_values(reader):
        body = b""
        while body.count(b"data: ") < 14:
            body += await reader.read(2**20)
        return [number.decode() for number in re.findall(rb'"value":"([0-9])', body)]

    async with asyncio.timeout(2 * PROMPT_S):
        assert await asyncio.gather(*(all_values(reader) for reader, _ in clients)) == [list("0123456" * 2)] * 5
    for _, writer in clients:
        writer.close()
    await until(topic, "penstock_event_streams", 0)
    assert budget.size_bytes == 0
