"""Unread answers on one HTTP/2 connection: the sum of all copies is bounded, and the memory is returned.

Stored batches and JSON with `max_records` are given whole, other JSON in pieces.
"""

from __future__ import annotations

import asyncio

import pytest

from gateway.connections.memory import CHANGE_BYTES, OPTIONS
from gateway.connections.read_budget import RENDERED_COPIES
from node.node import READ_BYTES_MAX
from tests.codecs import needs_compiled
from tests.e2e.clients.deaf_clients import MIB, begin_peak, http2_requests, peak_mib, resident_mib, statuses
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import RECORD_BATCH, over_http2

pytestmark = pytest.mark.e2e

STREAMS = 48
UNREAD_MIB = 64
ANSWER_MIB = 8
FORMS = (("application/json", "&max_records=1000000"), (RECORD_BATCH, ""))
PIECES_MIB = 2  # of a stream: a piece has at least one batch, here of a MiB
LINES = b"\n".join([b'{"a":"%s"}' % (b"x" * 1000)] * 1000)  # one MiB
# memory that reads have freed and no trim has returned yet, and one more answer being passed to the server
PEAK_SLACK_MIB = 64
HEAPS, KEPT_BYTES, _ = (option.value for option in OPTIONS)
# a smaller change is not trimmed, and the end of each heap stays
REST_MIB = (CHANGE_BYTES + HEAPS * KEPT_BYTES) / MIB + 8
COME_BACK_S = 60


@pytest.mark.parametrize(("form", "query"), [FORMS[0], pytest.param(*FORMS[1], marks=pytest.mark.long)])
async def test_answers_on_one_connection_hold_bounded_memory_which_comes_back(tmp_path, form, query):
    assert ANSWER_MIB * RENDERED_COPIES <= READ_BYTES_MAX / MIB
    with running_process(
        tmp_path, connection_send_buffer_bytes_max=UNREAD_MIB * MIB, stream_stall_ms=120_000
    ) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t")
            for _ in range(2 * ANSWER_MIB):
                assert (await topic.post(LINES, "application/x-ndjson", acks="all")).status == 200
            warm = await topic.fetch(0, accept=form, max_bytes=ANSWER_MIB * MIB)
            assert len(warm.body) > 0.9 * ANSWER_MIB * MIB
            while await gateway.metric("penstock_send_buffer_bytes"):
                await asyncio.sleep(0.05)
            before = resident_mib(process.pid)
            begin_peak(process.pid)
            path = f"{topic.path}/partitions/0/records?offset=0&max_bytes={ANSWER_MIB * MIB}{query}"
            client, connection = http2_requests(process.port, path, form, STREAMS)
            try:
                found = await asyncio.to_thread(statuses, client, connection, STREAMS)
                held_bytes = await gateway.metric("penstock_send_buffer_bytes")
                peak = peak_mib(process.pid)
            finally:
                client.close()
            assert set(found) == {"200", "429"}
            assert 0.8 * UNREAD_MIB * MIB < held_bytes <= UNREAD_MIB * MIB
            # At least half of it is visible here: previously free memory and the kernel's buffers hold the rest.
            seen = peak - before
            assert held_bytes / MIB / 2 < seen < UNREAD_MIB + READ_BYTES_MAX / MIB + PEAK_SLACK_MIB, (before, peak)
            async with asyncio.timeout(COME_BACK_S):
                while (rest := resident_mib(process.pid)) > before + REST_MIB:
                    await asyncio.sleep(0.5)
            print(f"{before:.0f} MiB before, {peak:.0f} at most, {rest:.0f} afterwards")


@needs_compiled  # plain Python renders no pieces
async def test_answers_in_pieces_on_one_connection_hold_one_piece_each(tmp_path):
    with running_process(
        tmp_path, connection_send_buffer_bytes_max=UNREAD_MIB * MIB, stream_stall_ms=120_000
    ) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t")
            for _ in range(2 * ANSWER_MIB):
                assert (await topic.post(LINES, "application/x-ndjson", acks="all")).status == 200
            # One answer lets the first request of the deaf client find the log committed.
            assert len((await topic.fetch(0, max_bytes=ANSWER_MIB * MIB)).body) > 0.9 * ANSWER_MIB * MIB
            path = f"{topic.path}/partitions/0/records?offset=0&max_bytes={ANSWER_MIB * MIB}"
            client, connection = http2_requests(process.port, path, "application/json", STREAMS)
            try:
                found = await asyncio.to_thread(statuses, client, connection, STREAMS)
                held_bytes = await gateway.metric("penstock_send_buffer_bytes")
            finally:
                client.close()
    assert set(found) == {"200"}
    assert 0 < held_bytes < STREAMS * PIECES_MIB * MIB
