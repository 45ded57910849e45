"""A gateway for scenarios: in this process over HTTP/1.1, or a real process over HTTP/2.

A scenario is the same for both. Every answer is checked against the contract (conformity.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import pytest
from aiohttp import ClientSession
from multidict import CIMultiDict
from yarl import URL

from gateway.routing.peers import Peers
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from tests.gateway.server.served import served
from tests.scenarios.conformity import assert_conforms
from tests.scenarios.http2_client import Http2Client

JSON = "application/json"
NDJSON = "application/x-ndjson"
RECORD_BATCH = "application/vnd.penstock.recordbatch"
# Each scenario runs in the cheapest forms that can fail. Without a mark: in this process and over two shards.
in_process_only = pytest.mark.parametrize("form", ["in-process"], indirect=True)  # independent of the server
http2_only = pytest.mark.parametrize("form", ["http2"], indirect=True)  # depends on the HTTP server
sharded_only = pytest.mark.parametrize("form", ["sharded"], indirect=True)  # HTTP/2 and two shards
AUTOMATIC_HEADERS = ("Content-Type", "User-Agent", "Accept", "Accept-Encoding")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [orjson.loads(line) for line in self.body.splitlines()]


class Gateway(ABC):
    """A running node that takes requests. `port` also accepts HTTP/1.1 in every form."""

    port: int

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, **query: object
    ) -> Answer:
        if query:
            path += "?" + urlencode(query, doseq=True)
        answer = await self._send(method, path, dict(headers or {}), body)
        assert_conforms(method, path, answer.status, answer.headers, answer.body)
        return answer

    @abstractmethod
    async def _send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer: ...

    async def create(self, name: str, partitions: int = 1, **config: object) -> Topic:
        body = orjson.dumps({"partitions": partitions, "config": config})
        answer = await self.send("PUT", f"/v1/topics/{name}", body, {"Content-Type": JSON})
        assert answer.status == 201, answer.body
        return Topic(self, name)

    async def metric(self, name: str) -> float:
        text = (await self.send("GET", "/metrics")).body.decode()
        samples = [line for line in text.splitlines() if line.startswith((name + " ", name + "{shard="))]
        return sum(float(line.rpartition(" ")[2]) for line in samples)


class Topic:
    """One topic of a gateway. Its methods are the operations of a client."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self.gateway = gateway
        self.name = name
        self.path = f"/v1/topics/{quote(name)}"

    async def post(
        self,
        body: bytes,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        to: int | None = None,
        **query: object,
    ) -> Answer:
        """Produce an unmodified body; `to` names the partition in the path."""
        where = f"{self.path}/records" if to is None else f"{self.path}/partitions/{to}/records"
        given = {} if content_type is None else {"Content-Type": content_type}
        return await self.gateway.send("POST", where, body, {**given, **(headers or {})}, **query)

    async def post_records(self, *records: dict[str, Any], **query: Any) -> Answer:
        return await self.post(orjson.dumps({"records": records}), JSON, **query)

    async def post_lines(self, *lines: str, **query: Any) -> Answer:
        return await self.post("".join(f"{line}\n" for line in lines).encode(), NDJSON, **query)

    async def fetch(
        self, offset: int | None = None, partition: int = 0, accept: str | None = None, **query: object
    ) -> Answer:
        """Fetch from an offset, or from the query's position; from the earliest without either."""
        if offset is not None:
            query = {"offset": offset, **query}
        elif not query.keys() & {"from", "timestamp", "offset"}:
            query = {"from": "earliest", **query}
        headers = {} if accept is None else {"Accept": accept}
        return await self.gateway.send("GET", f"{self.path}/partitions/{partition}/records", b"", headers, **query)

    async def records(self, partition: int = 0, **query: object) -> list[dict[str, Any]]:
        """Return all records of one fetch."""
        answer = await self.fetch(partition=partition, **query)
        assert answer.status == 200, answer.body
        records: list[dict[str, Any]] = answer.json["records"]
        return records

    async def values(self, partition: int = 0) -> list[Any]:
        return [record.get("value", record.get("value_base64")) for record in await self.records(partition)]

    async def positions(self, partition: int = 0, **query: object) -> dict[str, Any]:
        answer = await self.gateway.send("GET", f"{self.path}/partitions/{partition}/offsets", **query)
        assert answer.status == 200, answer.body
        return dict(answer.json)

    async def describe(self) -> dict[str, Any]:
        return dict((await self.gateway.send("GET", self.path)).json)

    async def roll(self) -> Answer:
        return await self.gateway.send("POST", f"{self.path}/roll")


class InProcess(Gateway):
    """A node in this process and event loop, accessed by HTTP/1.1."""

    def __init__(self, session: ClientSession, node: Node, port: int) -> None:
        self.session = session
        self.node = node
        self.port = port

    def url(self, path: str) -> URL:
        return URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)

    async def _send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        async with self.session.request(
            method,
            self.url(path),
            data=body or None,
            headers=headers,
            skip_auto_headers=AUTOMATIC_HEADERS,
            allow_redirects=False,
        ) as response:
            return Answer(response.status, response.headers, await response.read())


class OverHttp2(Gateway):
    """A process, accessed by HTTP/2 with prior knowledge."""

    def __init__(self, client: Http2Client, port: int) -> None:
        self.client = client
        self.port = port

    async def _send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        status, pairs, content = await self.client.request(method, path, headers, body)
        assert ("x-content-type-options", "nosniff") in pairs
        return Answer(status, CIMultiDict(pairs), content)


@asynccontextmanager
async def in_process(directory: Path, peers: Peers | None = None, **settings: Any) -> AsyncIterator[InProcess]:
    async with (
        running_node(NodeSettings(data_dir=str(directory / "data"), **settings), peers) as node,
        served(node) as ((_, port), _),
        ClientSession() as session,
    ):
        node.start_push()
        node.peers.url = node.peers.direct_url = f"http://127.0.0.1:{port}"
        yield InProcess(session, node, port)


@asynccontextmanager
async def over_http2(port: int) -> AsyncIterator[Gateway]:
    client = await Http2Client.open("127.0.0.1", port)
    try:
        yield OverHttp2(client, port)
    finally:
        await client.close()
