"""A JDBC sink of Kafka Connect, from a node into PostgreSQL: `python -m tests.e2e.kafka.jdbc_sink`.

Records come over HTTP, as JSON with Connect's schema. One of two workers is killed in the middle. The connector
writes by upsert, with the position as the key, so each record is one row. The table is there before: of two tasks that
see none, both create it, and the one that fails stays so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.sync import Client
from tests.e2e.kafka.connect import KAFKA, is_running, put, start_workers, until
from tests.e2e.kafka.jars import jars_of
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

DEBEZIUM, DRIVER = "3.2.0.Final", "42.7.3"
ARTIFACTS = (
    f"io.debezium:debezium-connector-jdbc:{DEBEZIUM}",
    f"org.apache.kafka:connect-runtime:{KAFKA}",
    f"org.apache.kafka:connect-json:{KAFKA}",
    f"org.postgresql:postgresql:{DRIVER}",
)
ORDERS = 4000
SCHEMA = {
    "type": "struct",
    "fields": [{"field": "id", "type": "int64"}, {"field": "city", "type": "string"}],
    "name": "order",
}
TABLE = """\
CREATE TABLE orders (__connect_topic text, __connect_partition int, __connect_offset bigint, id bigint, city text,
PRIMARY KEY (__connect_topic, __connect_partition, __connect_offset))"""
SINK = {
    "connector__class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "topics": "orders",
    "tasks__max": "2",
    "connection__username": "postgres",
    "connection__password": "",
    "insert__mode": "upsert",
    "primary__key__mode": "kafka",
    "collection__name__format": "orders",
    "value__converter": "org.apache.kafka.connect.json.JsonConverter",
}


@contextmanager
def postgres() -> Iterator[str]:
    """Runs PostgreSQL as its own user, because it refuses root. Returns its address."""
    [programs] = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
    with tempfile.TemporaryDirectory() as made:
        address, data = free_address(), Path(made) / "data"
        shutil.chown(made, "postgres")
        start = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres"]
        subprocess.run(start, check=True, capture_output=True, user="postgres", cwd=made)
        host, port = address.split(":")
        command = [str(programs / "postgres"), "-D", str(data), "-h", host, "-p", port, "-k", made]
        process = subprocess.Popen(command, user="postgres", cwd=made, stderr=subprocess.DEVNULL)
        try:
            yield address
        finally:
            process.terminate()
            process.wait()


def query(address: str, statement: str) -> list[list[int]]:
    """Returns rows of numbers; none while the server does not answer."""
    host, port = address.split(":")
    command = ["psql", "-h", host, "-p", port, "-U", "postgres", "-Atq", "-F", " ", "-c", statement]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return [[int(field) for field in line.split()] for line in ended.stdout.splitlines()]


def has_orders(address: str, count: int) -> bool:
    """Returns whether there are so many rows, each with an order of its own."""
    return query(address, "SELECT count(*), count(DISTINCT id) FROM orders") == [[count, count]]


def has_table(address: str) -> bool:
    query(address, TABLE)
    return has_orders(address, 0)


def produce(client: Client, first: int, last: int) -> None:
    with client.producer() as producer:
        for number in range(first, last):
            value = {"schema": SCHEMA, "payload": {"id": number, "city": "Lima"}}
            producer.send("orders", json.dumps(value).encode(), key=str(number))


def main() -> int:
    jars = jars_of(*ARTIFACTS)
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        directory, servers = Path(made), free_address()
        database = stack.enter_context(postgres())
        node = stack.enter_context(running_process(directory / "node", shards=2, kafka_listen=servers))
        client = stack.enter_context(Client(node.url))
        client.create_topic("orders", partitions=4)
        log = directory / "connect.log"
        (first, _), (second, process) = start_workers(stack, jars, servers, log)
        url = f"jdbc:postgresql://{database}/postgres"
        try:
            until(lambda: has_table(database), "no table")
            produce(client, 0, ORDERS // 2)
            until(lambda: put(second, "sink", connection__url=url, **SINK), "no sink")
            until(lambda: has_orders(database, ORDERS // 2), "the first orders do not arrive")
            until(lambda: is_running(second, "sink"), "a task does not run")
            print(f"{ORDERS // 2} orders over HTTP in PostgreSQL: ok", flush=True)
            process.kill()
            began = time.monotonic()
            produce(client, ORDERS // 2, ORDERS)
            until(lambda: has_orders(database, ORDERS), "the orders after the kill do not arrive")
            until(lambda: is_running(first, "sink"), "the tasks are not moved")
            took = f"{time.monotonic() - began:.0f} s"
            print(f"{ORDERS} orders with a worker killed, each one row, {took}: ok", flush=True)
        except BaseException:
            print(log.read_text()[-6000:])
            raise
    print(f"Debezium's JDBC sink {DEBEZIUM} in Kafka Connect {KAFKA}: all ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
