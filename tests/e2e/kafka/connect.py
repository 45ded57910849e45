"""Kafka Connect with two workers against nodes: `python -m tests.e2e.kafka.connect`.

A file is read into a topic and the topic written into another file, while a worker is killed. The workers keep their
state in three topics of the node, which they take only if compaction is reported exactly.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.e2e.kafka.jars import jars_of, java, running_java
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

KAFKA = "4.3.1"
LINES = 4000
WITHIN_S = 300  # a busy machine starts a worker in a minute
WORKER = """\
bootstrap.servers={servers}
group.id=workers
listeners=http://{own}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.flush.interval.ms=2000
scheduled.rebalance.max.delay.ms=3000
consumer.session.timeout.ms=6000
consumer.heartbeat.interval.ms=1000
plugin.discovery=service_load
"""


def ask(url: str, method: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or "null")


def until(condition: Callable[[], bool], text: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            if condition():
                return
        except (OSError, urllib.error.HTTPError):  # no worker answers yet, or they share out their work
            pass
        assert time.monotonic() < deadline, text
        time.sleep(0.5)


def put(worker: str, name: str, **config: str) -> bool:
    given = {one.replace("__", "."): value for one, value in config.items()}
    ask(f"http://{worker}/connectors/{name}/config", "PUT", given)
    return True


def is_running(worker: str, name: str) -> bool:
    """Fails with a task: a worker does not start it again."""
    tasks = ask(f"http://{worker}/connectors/{name}/status")["tasks"]
    for task in tasks:
        assert task["state"] != "FAILED", f"task {task['id']} of {name} failed: {task['trace']}"
    return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)


def start_workers(stack: ExitStack, jars: Path, servers: str, log: Path) -> list[tuple[str, subprocess.Popen[bytes]]]:
    """Starts two workers, which end with the stack. Returns the address and the process of each."""
    workers = []
    for own in (free_address(), free_address()):
        properties = log.with_name(f"worker-{own.rpartition(':')[2]}.properties")
        properties.write_text(WORKER.format(servers=servers, own=own))
        command = java(jars, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties))
        workers.append((own, stack.enter_context(running_java(command, log))))
    return workers


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main() -> int:
    artifacts = [f"org.apache.kafka:{name}:{KAFKA}" for name in ("connect-runtime", "connect-file", "connect-json")]
    jars = jars_of(*artifacts)
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        directory, servers = Path(made), free_address()
        stack.enter_context(running_process(directory / "node", shards=2, kafka_listen=servers))
        source, sink = directory / "source.txt", directory / "sink.txt"
        source.write_text("".join(f"line {number}\n" for number in range(LINES // 2)))
        (first, _), (second, process) = start_workers(stack, jars, servers, directory / "connect.log")
        try:
            until(
                lambda: put(
                    first,
                    "source",
                    connector__class="org.apache.kafka.connect.file.FileStreamSourceConnector",
                    file=str(source),
                    topic="lines",
                    topic__creation__default__partitions="3",
                    topic__creation__default__replication__factor="1",
                ),
                "no source",
            )
            until(
                lambda: put(
                    second,
                    "sink",
                    connector__class="org.apache.kafka.connect.file.FileStreamSinkConnector",
                    file=str(sink),
                    topics="lines",
                    tasks__max="2",
                ),
                "no sink",
            )
            until(lambda: len(set(lines(sink))) == LINES // 2, "the first lines do not come through")
            print(f"{LINES // 2} lines from file to topic to file: ok", flush=True)
            process.kill()
            with source.open("a") as file:
                file.writelines(f"line {number}\n" for number in range(LINES // 2, LINES))
            until(lambda: len(set(lines(sink))) == LINES, "the lines after the kill do not come through")
            until(lambda: is_running(first, "source") and is_running(first, "sink"), "the tasks are not moved")
            assert set(lines(sink)) == set(lines(source))
            print(f"{LINES} lines with a worker killed, {len(lines(sink)) - LINES} repeats: ok", flush=True)
        except BaseException:
            print((directory / "connect.log").read_text()[-4000:])
            raise
    print(f"Kafka Connect {KAFKA}: all ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
