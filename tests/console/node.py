"""A real node for the stories, with the data that they look at."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

CITIES = ("Rome", "Oslo", "Lima", "Kyoto", "Lagos")
BIG = 9_007_199_254_740_993  # the first integer that a double cannot hold
FIRST_MS = 1_795_600_000_000
HOSTILE = '</script><b onmouseover="x">\u202e&lt;\x00__proto__'
PROJECT = Path(__file__).parents[2]


class Node:
    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """Returns the answer's JSON. Raises HTTPError."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def start_node(directory: Path, port: int, python: str, *options: str) -> Iterator[Node]:
    penstock = str(Path(python).parent / "penstock")
    command = [penstock, "serve", "--port", str(port), "--data-dir", str(directory / "data"), *options]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)
    node = Node(f"http://127.0.0.1:{port}")
    try:
        for _ in range(240):
            with suppress(urllib.error.URLError, ConnectionError):
                node.ask("GET", "/readyz")
                break
            time.sleep(0.25)
        yield node
    finally:
        process.terminate()
        process.wait(60)


def fill(node: Node, token: str = "") -> None:
    """Makes topics, records of fixed times, groups, and a tenant."""
    random = Random(7)

    def ask(method: str, path: str, body: Any = None) -> Any:
        return node.ask(method, path, body, token)

    for topic, partitions in (
        ("rides", 4),
        ("payments", 3),
        ("orders.created", 2),
        ("clicks", 8),
        ("jobs", 1),
        ("jobs.dead", 1),
        ("framed", 1),
    ):
        ask("PUT", f"/v1/topics/{topic}", {"partitions": partitions})
    for number in range(400):
        value = {"ride": BIG + number, "city": random.choice(CITIES), "fare": round(random.uniform(4, 60), 2)}
        record = {
            "key": f"rider-{random.randrange(90)}",
            "value": value,
            "headers": {"trace": f"{random.getrandbits(48):012x}", "type": "ride.ended"},
            "timestamp": FIRST_MS + 137 * number,
        }
        ask("POST", f"/v1/topics/rides/records?partition={number % 4}&acks=1", {"records": [record]})
    hostile = {"key": HOSTILE, "value": HOSTILE, "headers": {"x": HOSTILE}}
    ask("POST", "/v1/topics/payments/records", {"records": [hostile]})
    ask("POST", "/v1/topics/payments/records", {"records": [{"key": "bytes", "value_base64": "/wD+gA=="}]})
    ask("POST", "/v1/topics/payments/records", {"records": [{"key": "gone", "value": None}]})
    ask("PUT", "/v1/groups/analytics/offsets", {"offsets": [{"topic": "rides", "partition": 0, "offset": 30}]})
    ask("POST", "/v1/groups/billing/members/worker-1/poll", {"topics": ["rides"], "max_records": 5, "wait_ms": 0})
    ask("PUT", "/v1/groups/settlement", {"config": {"kind": "share", "start": "earliest"}})
    ask("POST", "/v1/groups/settlement/acquire", {"topics": ["payments"], "max_records": 1})
    for number in range(60):
        ask("PATCH", "/v1/topics/clicks", {"config": {"retention_ms": 86_400_000 + number}})
    _add_dead_letters(ask)
    # Of the schemas 42 and 43, which the registry does not have, Avro and {"n":1}; and of schema 1.
    for framed in ("AAAAACr/gA==", "AAAAACt7Im4iOjF9", "AAAAAAECAlo="):
        ask("POST", "/v1/topics/framed/records", {"records": [{"value_base64": framed}]})
    ask("PUT", "/v1/subscriptions/invoices", {"url": "http://127.0.0.1:9/invoices", "topics": ["payments"]})
    ask("PUT", "/v1/tenants/acme", {"note": "Pilot", "limits": {"topics": 20, "partitions": 100}})


def _add_dead_letters(ask: Callable[..., Any]) -> None:
    """Adds three dead letters. The topic of the last one is another by now."""
    topic_id = ask("GET", "/v1/topics/jobs")["topic_id"]
    for number, (trace, of) in enumerate((("a", topic_id), ("b", topic_id), ("c", "gone")), 1):
        origin = {"topic": "jobs", "topic-id": of, "partition": "0", "offset": str(number), "group": "strict"}
        more = {"reason": "rejected", "attempts": "3", "error": "no such address"}
        headers = {"trace": trace} | {f"dead-letter-{name}": text for name, text in (origin | more).items()}
        record = {"key": f"job-{number}", "value": {"job": number}, "headers": headers}
        ask("POST", "/v1/topics/jobs.dead/records", {"records": [record]})


def add_job(directory: Path, node: Node) -> None:
    """Registers an ingestion job in the embedded store of a node, as a run does."""
    commits = [
        {"number": number, "committed_ms": FIRST_MS + 3_600_000 * number, "rows": 40_000 + 9_000 * (number % 5),
         "dead_letters": int(number == 7), "files": 4, "small_files": 4 - number % 3, "size_bytes": 310_000_000}
        for number in range(1, 25)
    ]  # fmt: skip
    figures = {"lost_records": 7, "misfits": 12, "held": [], "commits": commits}
    job = {"format": 1, "job": "hourly", "job_id": "a1", "output": "s3://lake/tables", "topics": {}, "figures": figures}
    folder = directory / "data" / "store" / node.ask("GET", "/v1/overview")["cluster_id"] / "__jobs"
    folder.mkdir(parents=True)
    (folder / "hourly-a1.json").write_text(json.dumps(job))
