"""Exceptions planted where requests are answered without a task: one request fails, and its connection goes on."""

import asyncio

import pytest

from gateway.fetch.fetch import PendingFetch
from gateway.server.adapter import TakenRequest
from gateway.server.head_cache import HeadCache
from gateway.server.requests import Requests
from gateway.settings import NodeSettings
from node.processes.server import running_node
from tests.fuzz.test_header_bytes import Peer, over_http1
from tests.gateway.server.served import served

TEXT = [(b"content-type", b"text/plain")]
RECORDS, QUIET = "/v1/topics/t/records", "/v1/topics/quiet/records"
FETCH = "/v1/topics/t/partitions/0/records?offset=0&wait_ms=60000"
WAIT = "/v1/topics/quiet/partitions/0/records?offset=0&wait_ms=60000"


@pytest.mark.parametrize(("where", "name"), [
    (TakenRequest, "follow"), (Requests, "finish"), (PendingFetch, "_answer"), (HeadCache, "find"),
])  # fmt: skip
async def test_an_exception_outside_of_a_handler_ends_one_request(tmp_path, monkeypatch, where, name):
    """Before the fix the first closed the connection, and the second left the client and those behind it waiting."""
    settings = NodeSettings(data_dir=str(tmp_path / "data"))
    async with running_node(settings) as node, served(node, is_short=True) as (place, _):
        for topic in ("t", "quiet"):
            assert await over_http1(place, "PUT", f"/v1/topics/{topic}", [], b"{}") == 201
        peer = Peer(*await asyncio.open_connection(*place))
        waiting = peer.send("GET", WAIT, [], b"")
        await asyncio.sleep(0.01)
        with monkeypatch.context() as planted:
            planted.setattr(where, name, lambda *_, **__: 1 / 0)
            path, method = (FETCH, "GET") if where is PendingFetch else (RECORDS, "POST")
            stream_id = peer.send(method, path, TEXT, b"" if method == "GET" else b"1")
            if method == "GET":
                assert await over_http1(place, "POST", RECORDS, TEXT, b"1") == 200
            assert await asyncio.wait_for(peer.answer_to(stream_id), 60) == 500
        assert waiting not in peer.answers
        assert await peer.answer_to(peer.send("POST", QUIET, TEXT, b"1")) == 200
        assert await asyncio.wait_for(peer.answer_to(waiting), 60) == 200
        peer.writer.close()
