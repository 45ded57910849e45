"""A node with a listener of REST Proxy's dialect in this process, and a client that speaks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson

from gateway.links.rest_proxy_address import with_rest_proxy_port
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from node.setup.rest_proxy_listener import RestProxyListener

V2 = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"


class Answer(NamedTuple):
    """An answer of the dialect. `body` is the document, or None."""

    status: int
    body: Any
    media_type: str
    text: bytes


class Client:
    """Speaks the dialect to one listener."""

    def __init__(self, session: aiohttp.ClientSession, url: str, headers: dict[str, str] | None = None) -> None:
        self._session = session
        self._url = url
        self._headers = headers or {}

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self._url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def acting_as(self, authorization: str) -> Client:
        return Client(self._session, self._url, {"Authorization": authorization})

    async def ask(
        self, method: str, path: str, body: object = None, media_type: str = V2, accept: str | None = None
    ) -> Answer:
        """Sends a request; bytes and streams of bytes as they are, other bodies as JSON."""
        headers = dict(self._headers)
        data: Any = None
        if body is not None:
            headers["Content-Type"] = media_type
            data = body if isinstance(body, bytes) or hasattr(body, "__aiter__") else orjson.dumps(body)
        if accept is not None:
            headers["Accept"] = accept
        async with self._session.request(method, self._url + path, data=data, headers=headers) as answer:
            text = await answer.read()
            media_type = answer.headers.get("Content-Type", "")
            document = None
            if text:
                try:
                    document = orjson.loads(text)
                except orjson.JSONDecodeError:
                    document = None
            return Answer(answer.status, document, media_type, text)

    async def get(self, path: str, accept: str | None = None, body: object = None) -> Answer:
        return await self.ask("GET", path, body, accept=accept)

    async def post(self, path: str, body: object = None, media_type: str = V2) -> Answer:
        return await self.ask("POST", path, body, media_type)

    async def produce(self, topic: str, *records: object, media_type: str = JSON) -> Answer:
        return await self.post(f"/topics/{topic}", {"records": list(records)}, media_type)

    async def instance(self, group: str, name: str, **settings: object) -> str:
        """Creates an instance. Returns its path."""
        answer = await self.post(f"/consumers/{group}", {"name": name, **settings})
        assert answer.status == 200, answer
        return f"/consumers/{group}/instances/{name}"

    async def values(self, instance: str, timeout: int = 0) -> list[Any]:
        """Returns the values of the next records of an instance."""
        answer = await self.get(f"{instance}/records?timeout={timeout}")
        assert answer.status == 200, answer
        return [record["value"] for record in answer.body]


@asynccontextmanager
async def proxy_node(path: Path, tokens: Any = None, **settings: Any) -> AsyncIterator[tuple[Node, Client]]:
    """Runs a node with a listener on a free port; `tokens` are those of a tokens file."""
    given = NodeSettings(data_dir=str(path / "data"), rest_proxy_listen="127.0.0.1:0", **settings)
    with with_rest_proxy_port(given) as with_port:
        async with running_node(with_port) as node:
            if tokens is not None:
                node.access.use_tokens(tokens)
            listener = RestProxyListener(node.server, with_port, lambda verdict: None)
            await listener.open()
            try:
                async with aiohttp.ClientSession() as session:
                    yield node, Client(session, f"http://{with_port.rest_proxy_listen}")
            finally:
                await listener.drain()
