"""Administrative calls of the bench: topics, positions, a few records. Standard library only.

Not the project's client, whose retries and batches would change the figures.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from loadtests.generators.bodies import JSON_TYPE, Body

TIMEOUT_S = 30.0
SETTLE_S = 5.0


class AdminClient:
    """Calls one node with a new connection for each request: a server may close idle connections between rounds."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port

    def request(self, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[Any, bytes]:
        """Returns headers and body of the response. Raises RuntimeError unless the status is 2xx."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, target, body, named)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"{method} {target} got {answer.status}: {data[:300].decode(errors='replace')}")
        return answer.headers, data

    def create_topic(self, topic: str, config: dict[str, object], partitions: int = 1) -> None:
        """Creates a topic. With one partition its log end counts every record."""
        body = json.dumps({"partitions": partitions, "config": config}).encode()
        self.request("PUT", f"/v1/topics/{topic}", body, content_type=JSON_TYPE)

    def delete_topic(self, topic: str) -> None:
        self.request("DELETE", f"/v1/topics/{topic}")

    def produce(self, topic: str, body: Body, acks: str = "all") -> None:
        target = f"/v1/topics/{topic}/records?acks={acks}"
        self.request("POST", target, body.data, content_type=body.media_type)

    def log_end(self, topic: str) -> int:
        """Returns the sum over the partitions."""
        return self._sum(topic, "log_end")

    def wait_log_end(self, topic: str, expected: int) -> int:
        """Returns the log end, after at most SETTLE_S: acks=0 answers before the append."""
        return self._wait_position(topic, "log_end", expected)

    def wait_high_watermark(self, topic: str, expected: int) -> int:
        """Returns the high watermark, after at most SETTLE_S: acks=1 answers before the fsync that readers wait for."""
        return self._wait_position(topic, "high_watermark", expected)

    def _wait_position(self, topic: str, position: str, expected: int) -> int:
        deadline = time.monotonic() + SETTLE_S
        while (seen := self._sum(topic, position)) < expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return seen

    def _sum(self, topic: str, position: str) -> int:
        _, data = self.request("GET", f"/v1/topics/{topic}")
        return sum(partition[position] for partition in json.loads(data)["partitions"])
