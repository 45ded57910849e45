"""Makes the store of a run: a node takes the rows over HTTP, seals them, and ships them to its store. Then it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import penstock

PARTITIONS = 4
_LARGE_BODIES = ("--request-body-bytes-max", "64MiB", "--connection-bytes-in-flight-max", "128MiB")
SHIPPED_S = 600.0
_NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its NDJSON bodies; successive bodies go to successive partitions."""

    name: str
    bodies: Callable[[], Iterable[bytes]]
    partitions: int = PARTITIONS
    config: Mapping[str, object] = field(default_factory=dict)


def fill(directory: Path, topics: Sequence[Topic]) -> Path:
    """Produces all bodies; returns the store. The same lines are in `<topic>.ndjson` beside it, for the peers."""
    with penstock(directory, *_LARGE_BODIES) as server:
        client = AdminClient(server.url)
        for topic in topics:
            client.create_topic(topic.name, dict(topic.config), topic.partitions)
            with (directory / f"{topic.name}.ndjson").open("wb") as lines:
                for at, body in enumerate(topic.bodies()):
                    lines.write(body)
                    target = f"/v1/topics/{topic.name}/partitions/{at % topic.partitions}/records?acks=1"
                    client.request("POST", target, body, content_type=_NDJSON)
            ship(client, topic.name)
    return directory / "penstock-data" / "store"


def ship(client: AdminClient, topic: str) -> None:
    """Seals the segments of a topic and waits until the store has them. Raises RuntimeError."""
    _, rolled = client.request("POST", f"/v1/topics/{topic}/roll")
    ends = {partition["partition"]: partition["sealed_end"] for partition in json.loads(rolled)["partitions"]}
    deadline = time.monotonic() + SHIPPED_S
    while True:
        _, status = client.request("GET", f"/v1/topics/{topic}/tier")
        if all(row["tiered_end"] >= ends[row["partition"]] for row in json.loads(status)["partitions"]):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} is not in the store after {SHIPPED_S:.0f} s: {status[:500]!r}")
        time.sleep(0.05)
