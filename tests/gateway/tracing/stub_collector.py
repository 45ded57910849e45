"""A collector for tests: takes OTLP over HTTP, and keeps the spans that it was sent."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web


class StubCollector:
    """`answers` are the statuses of the next exports, and their headers; then it takes all."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.answers: list[tuple[int, dict[str, str]]] = []

    def __repr__(self) -> str:
        return f"StubCollector({len(self.spans)} spans)"

    async def take(self, request: web.Request) -> web.Response:
        if self.answers:
            status, headers = self.answers.pop(0)
            return web.Response(status=status, headers=headers)
        assert request.headers["Content-Type"] == "application/json"
        body = await request.read()
        self.bodies.append(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        for of_resource in orjson.loads(self.bodies[-1])["resourceSpans"]:
            self.resources.append(attributes_of(of_resource["resource"]))
            for of_scope in of_resource["scopeSpans"]:
                self.spans += of_scope["spans"]
        return web.Response(body=b"{}", content_type="application/json")

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    def tree(self) -> list[str]:
        """Returns the spans as lines, each below its parent and indented."""
        ids = {span["spanId"] for span in self.spans}
        by_parent: dict[str, list[dict[str, Any]]] = {}
        for span in sorted(self.spans, key=lambda span: int(span["startTimeUnixNano"])):
            parent = span.get("parentSpanId", "")
            by_parent.setdefault(parent if parent in ids else "", []).append(span)

        def lines(parent: str, depth: int) -> list[str]:
            shown = []
            for span in by_parent.get(parent, ()):
                shown += ["  " * depth + span["name"], *lines(span["spanId"], depth + 1)]
            return shown

        return lines("", 0)


def attributes_of(document: dict[str, Any]) -> dict[str, Any]:
    """Returns attributes as a plain dict."""
    return {pair["key"]: next(iter(pair["value"].values())) for pair in document["attributes"]}


def events_of(span: dict[str, Any]) -> list[str]:
    return [event["name"] for event in span["events"]]


@asynccontextmanager
async def stub_collector(answers: Sequence[tuple[int, dict[str, str]]] = ()) -> AsyncIterator[StubCollector]:
    collector = StubCollector()
    collector.answers = list(answers)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()
