"""A consumer of a group that is killed between deliveries, and whose node is killed: no record is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loadtests.cluster.zookeeper import reserve_port
from penstock.sync import Client
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e
RECORDS, OF_A_DELIVERY, KILLS = 120, 5, 2
WORKER = f"""
import sys, time
from penstock.sync import Client
with Client(sys.argv[1]) as client:
    with client.consumer(group="g", topics="t", member_id="one", max_records={OF_A_DELIVERY}) as consumer:
        for record in consumer:
            print(record.json(), flush=True)
            time.sleep(0.002)
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A port that no other test gets while the node is down."""
    with closing(reserve_port()) as reserved:
        yield reserved.getsockname()[1]


def seen(output: Path) -> Counter[int]:
    return Counter(int(line) for line in output.read_text().split("\n")[:-1])


def run_until(url: str, output: Path, count: int) -> subprocess.Popen[bytes]:
    """Start a worker that appends its records to the file, and return when these are so many."""
    with output.open("ab") as out:
        worker = subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=out)
    wait_for(worker, output, count)
    return worker


def wait_for(worker: subprocess.Popen[bytes], output: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(seen(output)) < count:
        assert worker.poll() is None, "the worker has ended"
        assert time.monotonic() < deadline, f"{len(seen(output))} of {count} records"
        time.sleep(0.005)


@pytest.mark.long
def test_kills_of_a_consumer_and_of_its_node_lose_no_record(tmp_path: Path, port: int) -> None:
    output = tmp_path / "seen.txt"
    output.touch()
    with running_process(tmp_path, port=port) as node:
        with Client(node.url) as client:
            client.create_topic("t", partitions=2)
            with client.producer() as producer:
                for n in range(RECORDS):
                    producer.send("t", n, partition=n % 2)
        for kill in range(KILLS):
            worker = run_until(node.url, output, 23 * (kill + 1))
            worker.kill()
            worker.wait()
        worker = run_until(node.url, output, 23 * (KILLS + 1))
        node.kill()
    try:
        with running_process(tmp_path, port=port):
            wait_for(worker, output, RECORDS)
            found = seen(output)
    finally:
        worker.kill()
        worker.wait()
    assert set(found) == set(range(RECORDS))
    assert sum(found.values()) - RECORDS <= KILLS * OF_A_DELIVERY, "only a delivery that was in hand comes again"
