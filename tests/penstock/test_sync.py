"""The sync client is the async one in another thread: results, failures and order are the same."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import ClientClosed, ConnectionFailed, ProblemError
from penstock.options import ClientOptions
from penstock.sync import Client, LoopThread
from tests.e2e.node_process import ROOT, running_process
from tests.penstock.conftest import QUICK, UNREACHABLE
from tests.penstock.fake_node import FakeNode


def test_the_whole_story_without_an_event_loop(url: str, fake: FakeNode) -> None:
    with Client(url, options=QUICK) as client:
        client.create_topic("t", partitions=2)
        assert [topic["topic"] for topic in client.list_topics()["topics"]] == ["t"]
        with client.producer() as producer:
            deliveries = [producer.send("t", n, partition=n % 2) for n in range(1000)]
            assert deliveries[-1].result().offset == 499
        assert all(delivery.done() for delivery in deliveries)
        assert [delivery.result().offset for delivery in deliveries[:4]] == [0, 0, 1, 1]
        with client.consume("t", follow=False) as consumer:
            values = sorted(record.json() for record in consumer)
        assert values == list(range(1000))
        assert consumer.positions() == {0: 500, 1: 500}
        assert consumer.is_at_end


def test_poll_gives_lists(url: str, fake: FakeNode) -> None:
    fake.add_topic("t")
    with Client(url, options=QUICK) as client, client.consume("t") as consumer:
        assert consumer.poll(timeout_ms=20) == []
        with client.producer() as producer:
            producer.send_many("t", range(3), keys="abc")
        assert [record.key for record in consumer.poll()] == [b"a", b"b", b"c"]


def test_failures_show_in_the_delivery_or_else_in_flush(url: str, fake: FakeNode) -> None:
    fake.add_topic("t")
    with Client(url, options=QUICK) as client:
        producer = client.producer()
        seen = producer.send("nowhere", 1)
        with pytest.raises(ProblemError) as caught:
            seen.result()
        assert caught.value.code == "unknown_topic"
        producer.flush()
        producer.send("nowhere", 1)
        with pytest.raises(ProblemError):
            producer.flush()
        producer.send("t", 1, partition=9)
        with pytest.raises(ProblemError):
            producer.close()


def test_a_record_that_the_partitioner_fails_for_stops_no_other_record(url: str, fake: FakeNode) -> None:
    def only_even(topic: str, key: bytes | None, partitions: int) -> int | None:
        if key == b"odd":
            raise ValueError("no partition for this key")
        return None

    fake.add_topic("t")
    with Client(url, options=QUICK) as client:
        producer = client.producer(partitioner=only_even)
        failed = producer.send("t", 1, key="odd")
        assert producer.send("t", 2, key="even").result().offset == 0
        with pytest.raises(ValueError, match="no partition for this key"):
            failed.result()
        producer.close()


def test_a_closed_producer_takes_no_record(url: str, fake: FakeNode) -> None:
    fake.add_topic("t")
    with Client(url, options=QUICK) as client:
        producer = client.producer()
        assert producer.send("t", 1).result().offset == 0
        producer.close()
        with pytest.raises(ClientClosed):
            producer.send("t", 2)
        producer.flush()


def test_nothing_works_after_the_client_is_closed_and_all_can_still_be_closed(url: str, fake: FakeNode) -> None:
    fake.add_topic("t")
    client = Client(url, options=QUICK)
    producer, consumer, unstarted = client.producer(), client.consume("t"), client.consume("t")
    producer.send_many("t", range(10))
    producer.flush()
    assert next(consumer).json() == 0
    client.close()
    for call in (
        client.list_topics,
        client.producer,
        lambda: client.consume("t"),
        lambda: client.consumer(group="g", topics="t"),
        lambda: client.queue("g", topics="t"),
        lambda: producer.send("t", 1),
        lambda: next(consumer),
        consumer.poll,
        lambda: next(unstarted),
    ):
        with pytest.raises(ClientClosed):
            call()
    for one in (producer, consumer, unstarted, client):
        one.close()


def test_a_call_under_way_ends_when_another_thread_closes_the_client(url: str, fake: FakeNode) -> None:
    fake.add_topic("t")
    client = Client(url, options=QUICK)
    consumer = client.consume("t")
    begun, found = threading.Event(), list[type[BaseException]]()

    def read() -> None:
        consumer.poll(timeout_ms=0)
        begun.set()
        try:
            next(consumer)
        except BaseException as error:
            found.append(type(error))

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    client.close()
    reader.join(60)
    assert found == [ClientClosed]


def test_a_loop_that_ends_takes_no_work() -> None:
    """Its caller would wait without end."""
    thread, begun, cancelled, may_end = LoopThread(), threading.Event(), threading.Event(), threading.Event()
    ended = list[type[Exception]]()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            cancelled.set()
            await asyncio.to_thread(may_end.wait)

    def call() -> None:
        try:
            thread.run(slow())
        except Exception as error:
            ended.append(type(error))

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(60)
    stoppers = [threading.Thread(target=thread.stop) for _ in range(2)]
    for one in stoppers:
        one.start()
    assert cancelled.wait(60)
    with pytest.raises(ClientClosed):
        thread.run(asyncio.sleep(1000), timeout_s=5)
    may_end.set()
    for one in (caller, *stoppers):
        one.join(60)
    assert (ended, thread.loop.is_closed()) == ([ClientClosed], True)


def test_a_result_is_awaited_for_the_time_that_is_given(url: str, fake: FakeNode) -> None:
    fake.add_topic("t")
    with Client(url, options=QUICK) as client, client.producer(linger_ms=60_000) as producer:
        delivery = producer.send("t", 1)
        with pytest.raises(TimeoutError):
            delivery.result(timeout=0.01)
        producer.flush()
        assert delivery.result(timeout=60).offset == 0


@pytest.mark.parametrize("given", [None, 8080, ["http://127.0.0.1:1", None]])
def test_an_address_that_is_no_text_is_named(given: Any) -> None:
    with pytest.raises(ValueError, match="an address is a text such as 'http"):
        Client(given)


def test_an_abort_fails_the_records_that_were_not_sent(url: str, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    with Client(url, options=QUICK) as client:
        producer = client.producer(linger_ms=60_000)
        delivery = producer.send("t", 1)
        producer.abort()
        with pytest.raises(ClientClosed):
            delivery.result()
    assert partition.records == []


def test_many_threads_may_send(url: str, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    with Client(url, options=QUICK) as client, client.producer() as producer:
        threads = [
            threading.Thread(target=lambda name=name: [producer.send("t", [name, n]) for n in range(500)])
            for name in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    values = [record.value for record in partition.records]
    assert len(values) == 2000
    for name in range(4):
        mine = [value for value in values if value and value.startswith(b"[%d," % name)]
        assert mine == [b"[%d,%d]" % (name, n) for n in range(500)]


def test_a_closed_client_says_so(url: str) -> None:
    client = Client(url)
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.list_topics()
    with Client(UNREACHABLE) as client, pytest.raises(ConnectionFailed):
        client.cluster()


PROGRAM = """
import sys
from penstock.{kind} import Client
producer = Client(sys.argv[1]).producer()
"""
SYNC = PROGRAM.format(kind="sync") + "for n in range(1000): producer.send('left', n)"
ASYNC = (
    PROGRAM.format(kind="aio").replace("producer = ", "async def main():\n    producer = ")
    + "    for n in range(10): await producer.send('left', n)\n"
    + "import asyncio\nasyncio.run(main())"
)


def ended(program: str, url: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert ran.returncode == 0
    return ran.stderr


@pytest.mark.e2e
def test_a_program_that_ends_without_close_flushes_or_says_how_many_records_are_lost(tmp_path: Path) -> None:
    warning = "{} records are not acknowledged"
    with running_process(tmp_path) as node, Client(node.url) as client:
        client.create_topic("left")
        assert ended(SYNC, node.url) == ""
        assert sum(1 for _ in client.consume("left", follow=False)) == 1000
        assert warning.format(10) in ended(ASYNC, node.url)
    assert warning.format(1000) in ended(SYNC, UNREACHABLE)


def test_a_wrong_option_names_the_function_that_was_called() -> None:
    with Client(UNREACHABLE) as client:
        for function, name, hint in (
            ("producer", "lingerms", "did you mean 'linger_ms'"),
            ("consume", "x", "the options are: client_id, "),
            ("queue", "fetchwait_ms", "did you mean 'fetch_wait_ms'"),
        ):
            arguments = {"producer": (), "consume": ("t",), "queue": ("g",)}[function]
            with pytest.raises(TypeError, match=rf"^{function}\(\) has no option '{name}'; {hint}"):
                getattr(client, function)(*arguments, **{name: 1})


def test_retries_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock")
    options = ClientOptions(backoff_ms=1, unreachable_timeout_ms=20)
    with Client(UNREACHABLE, options=options) as client, pytest.raises(ConnectionFailed):
        list(client.consume("t"))
    assert "attempt 1 failed, the next is in 0.00" in caplog.text
    assert "connection refused" in caplog.text


def test_the_package_has_its_version() -> None:
    assert penstock.__version__ == version("penstock")


def test_a_fork_of_a_client_says_that_it_is_one(tmp_path):
    """It has no thread that sends: its calls would wait without end. What the parent has queued, the parent sends."""
    with running_process(tmp_path) as node, Client(node.url) as client:
        client.create_topic("t", partitions=1)
        with client.producer(linger_ms=1000) as producer:
            delivery = producer.send("t", 1)
            calls = [client.list_topics, lambda: producer.send("t", 2), delivery.result]
            process = multiprocessing.get_context("fork").Process(target=_call_closed, args=(calls,))
            process.start()
            process.join(60)
            assert process.exitcode == 0
        assert delivery.result().offset == 0


def _call_closed(calls):
    for call in calls:
        with pytest.raises(ClientClosed, match="forked"):
            call()
