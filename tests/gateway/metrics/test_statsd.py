"""What a statsd gets from a node: real packets of a real socket."""

from __future__ import annotations

import re
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from engine.runtime.statsd import DATAGRAM_BYTES
from engine.runtime.tasks import failures
from gateway.metrics.metrics import Numbers, numbers_text
from gateway.metrics.statsd import DOING, StatsdOptions, StatsdSender, address_of
from tests.scenarios.gateways import NDJSON, in_process
from tests.waiting import until


@pytest.fixture
def statsd() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        yield server


def packets(statsd: socket.socket) -> list[bytes]:
    """Returns what has arrived; on the loopback that is everything that was sent."""
    arrived = []
    while True:
        try:
            arrived.append(statsd.recv(65536))
        except BlockingIOError:
            return arrived


def lines(statsd: socket.socket) -> list[str]:
    return [line for packet in packets(statsd) for line in packet.decode().splitlines()]


class Pages:
    """The metrics of processes, as a test sets them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def read(self) -> Mapping[str, str]:
        return self.texts

    def count(self, process: str, value: float, label: str = "a") -> None:
        self.texts[process] = numbers_text([Numbers("x_total", "X", "of", {label: value})])


def sender(statsd: socket.socket, pages: Pages, host: str = "127.0.0.1") -> StatsdSender:
    return StatsdSender(StatsdOptions(host, statsd.getsockname()[1], "n.", 10.0), pages.read, None)


async def test_counters_are_what_was_added_also_after_a_restart_and_a_missed_round(statsd):
    pages = Pages()
    sends = sender(statsd, pages)
    seen = []
    for value in (100, 103, 103, None, 105, 2):
        pages.texts.clear()
        if value is not None:
            pages.count("0", value)
        await sends.send()
        seen.append(lines(statsd))
    assert seen == [[], ["n.x_total.0.a:3|c"], [], [], ["n.x_total.0.a:2|c"], ["n.x_total.0.a:2|c"]]
    pages.count("0", 7, label="b")
    await sends.send()
    assert lines(statsd) == ["n.x_total.0.b:7|c"]


async def test_gauges_are_values_and_no_sign_changes_them_and_labels_are_plain(statsd):
    pages = Pages()
    values = {"a": 1.5, "b": -2, "c": float("nan"), "d:1|g\ne.f": 3}
    pages.texts[""] = numbers_text([Numbers("x", "X", "of", values)])
    await sender(statsd, pages).send()
    assert lines(statsd) == ["n.x.a:1.5|g", "n.x.b:0|g", "n.x.b:-2|g", "n.x.d_1_g_e_f:3|g"]


async def test_packets_fit_a_frame(statsd):
    pages = Pages()
    names = [f"{number}{'x' * 200}" for number in range(300)]
    pages.texts["0"] = numbers_text([Numbers("x", "X", "of", dict.fromkeys(names, 1))])
    await sender(statsd, pages).send()
    arrived = packets(statsd)
    assert max(map(len, arrived)) <= DATAGRAM_BYTES
    assert len(b"\n".join(arrived).splitlines()) == 300


async def test_failures_are_counted_and_logged_once_and_lose_no_counts(statsd, caplog):
    pages = Pages()
    sends = sender(statsd, pages)
    pages.count("0", 1)
    await sends.send()
    options = sends._options
    failed = failures[DOING]
    sends._options = options._replace(host="a..b")  # cannot be looked up
    for value in (2, 3):
        pages.count("0", value)
        await sends.send()
    assert failures[DOING] - failed == 2
    assert [record.name for record in caplog.records].count("penstock.statsd") == 1
    sends._options = options
    await sends.send()
    assert lines(statsd) == ["n.x_total.0.a:2|c"]


async def test_a_node_sends_each_count_once_under_its_own_name(tmp_path, statsd):
    added: dict[str, float] = defaultdict(float)
    counts = {"requests_total.produce.200": 2, "produce_records_total": 4, "request_duration_seconds_count.produce": 2}

    def arrived() -> bool:
        for line in lines(statsd):
            match = re.fullmatch(r"node-1\.([A-Za-z0-9_.-]+):(-?[0-9.e+-]+)\|([cg])", line)
            assert match, line
            added[match[1]] = float(match[2]) + (added[match[1]] if match[3] == "c" else 0)
        return (
            all(added[f"penstock_{name}"] == value for name, value in counts.items()) and added["process_open_fds"] > 0
        )

    address = f"127.0.0.1:{statsd.getsockname()[1]}"
    async with in_process(tmp_path, statsd_address=address, statsd_interval_ms=100) as gateway:
        topic = await gateway.create("orders")
        for _ in range(2):
            await topic.post(b"1\n2\n", NDJSON)
        await until(arrived)


@pytest.mark.parametrize(("text", "address"), [("a.b:1", ("a.b", 1)), ("[::1]:65535", ("::1", 65535))])
def test_an_address_is_host_and_port(text, address):
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:0", "a:65536", "::1:5", "u@a:1", "http://a:1", "a b:1"])
def test_another_text_is_no_address(text):
    with pytest.raises(ValueError):
        address_of(text)
