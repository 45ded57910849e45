"""Answers that clients have yet to take, counted by the kernel's word on real connections. The test gives the time."""

import fcntl
import socket
import struct
import termios
import time
from types import SimpleNamespace

import pytest

from gateway.connections.kernel_sockets import KernelSockets
from gateway.connections.response_buffers import COUNTED_BYTES, ENDS, ResponseBuffers, ResponseLimits
from gateway.http.problems import Problem

KIB, MIB = 1024, 2**20
LIMITS = ResponseLimits(bytes_max=4 * MIB, connection_bytes_max=3 * MIB, stall_s=30, bytes_per_second_min=16 * KIB)


class Peers:
    """Connections to one listener, with small buffers; and how the answers of our end would be counted."""

    def __init__(self, limits=LIMITS):
        self.now = 1000.0
        self.answers = ResponseBuffers(KernelSockets(), limits, lambda: self.now)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]

    def connect(self):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(self._listener.getsockname())
        ours, _ = self._listener.accept()
        self._sockets += [client, ours]
        return Peer(self.answers, ours, client)

    def close(self):
        for one in self._sockets:
            one.close()


class Peer:
    def __init__(self, answers, ours, client):
        self.ours, self.client, self._answers = ours, client, answers
        server, name = (f"{host}:{port}" for host, port in (ours.getsockname(), ours.getpeername()))
        self.ends = SimpleNamespace(server=server, client=name)

    @property
    def name(self):
        return self.ends.client

    def give(self, size_bytes, method="GET", **options):
        request = Request({ENDS: self.ends}, method)
        self._answers.count(request, size_bytes, **options)
        return request

    def take(self, size_bytes):
        """The client reads so much, which is sent for the purpose."""
        self.ours.setblocking(False)
        while size_bytes:
            sent = self.ours.send(b"x" * min(size_bytes, 1024))
            got = 0
            while got < sent:
                got += len(self.client.recv(sent - got))
            size_bytes -= sent
        while struct.unpack("i", fcntl.ioctl(self.ours, termios.TIOCOUTQ, bytes(4))) != (0,):
            time.sleep(0.001)  # it has been read, and is acknowledged in a moment


class Request(dict):
    def __init__(self, members, method):
        super().__init__(members)
        self.method = method


@pytest.fixture
def peers():
    peers = Peers()
    yield peers
    peers.close()


def test_what_is_taken_counts_no_longer(peers):
    one = peers.connect()
    one.give(MIB)
    assert peers.answers.size_bytes == MIB
    one.take(MIB // 2)
    assert not peers.answers.look(one.name)
    assert peers.answers.size_bytes == MIB // 2
    one.take(MIB // 2)
    assert not peers.answers.look(one.name)
    assert repr(peers.answers) == "ResponseBuffers(connections=0, size_bytes=0)"


def test_small_answers_are_not_asked_about_unless_a_large_one_is_out(peers):
    one, other = peers.connect(), peers.connect()
    one.give(COUNTED_BYTES - 1)
    assert peers.answers.clients == []
    one.give(COUNTED_BYTES)
    one.give(10)
    other.give(10)
    peers.answers.streamed(one.name, 5)
    peers.answers.streamed(other.name, 5)
    assert (peers.answers.clients, peers.answers.size_bytes) == ([one.name], COUNTED_BYTES + 15)


def test_the_head_of_an_answer_is_not_counted_and_one_without_ends_neither(peers):
    peers.connect().give(MIB, "HEAD")
    peers.answers.count(Request({}, "GET"), MIB)
    assert peers.answers.clients == []


def test_an_answer_that_shrinks_counts_what_it_is_and_one_that_is_not_given_nothing(peers):
    one = peers.connect()
    request = one.give(MIB)
    peers.answers.count(request, 10)
    assert peers.answers.size_bytes == 10
    peers.answers.take_back(request)
    assert peers.answers.size_bytes == 0


def test_a_connection_is_bounded_but_one_answer_always_fits(peers):
    one = peers.connect()
    one.give(4 * MIB - 1)
    with pytest.raises(Problem, match="too_many_requests"):
        one.give(COUNTED_BYTES)
    assert peers.answers.refused == 1
    one.give(100)


def test_all_together_are_bounded_but_for_one_answer(peers):
    for _ in range(2):
        peers.connect().give(2 * MIB - 1)
    peers.connect().give(2 * MIB)
    with pytest.raises(Problem, match="overloaded"):
        peers.connect().give(COUNTED_BYTES)
    peers.connect().give(COUNTED_BYTES - 1)
    peers.connect().give(MIB, "POST", may_refuse=False)


def test_before_a_refusal_the_kernel_is_asked_again(peers):
    """Of the connection itself, and of others if that is not long ago."""
    one, other = peers.connect(), peers.connect()
    one.give(3 * MIB)
    one.take(3 * MIB)
    one.give(3 * MIB)
    other.give(3 * MIB)
    one.take(3 * MIB)
    with pytest.raises(Problem, match="overloaded"):
        peers.connect().give(MIB)
    peers.now += 1
    peers.connect().give(MIB)
    assert peers.answers.size_bytes == 4 * MIB


def test_who_takes_nothing_is_given_up_after_the_stall(peers):
    one = peers.connect()
    one.give(MIB)
    peers.now += LIMITS.stall_s - 1
    assert not peers.answers.look(one.name)
    one.take(100)  # as much as pings are
    peers.now += 1
    assert peers.answers.look(one.name)
    assert peers.answers.give_up(one.name) is one.ends
    assert (peers.answers.size_bytes, peers.answers.given_up) == (0, 1)


def test_who_takes_a_little_now_and_then_has_the_time_that_the_slowest_rate_needs(peers):
    one = peers.connect()
    one.give(2 * MIB)
    deadline = peers.now + LIMITS.stall_s + 2 * MIB / LIMITS.bytes_per_second_min
    while peers.now + 20 < deadline:
        peers.now += 20
        one.take(5 * KIB)
        assert not peers.answers.look(one.name)
    peers.now += 20
    one.take(5 * KIB)
    assert peers.answers.look(one.name), "5 KiB in 20 s is too slow"


def test_a_busy_connection_is_never_too_slow(peers):
    """What is asked for meanwhile has its own time."""
    one = peers.connect()
    one.give(MIB)
    for _ in range(30):
        one.give(512 * KIB)
        peers.now += 29
        one.take(512 * KIB)
        assert not peers.answers.look(one.name)


def test_who_has_left_is_forgotten(peers):
    one = peers.connect()
    one.give(MIB)
    one.client.close()
    one.ours.close()
    assert not peers.answers.look(one.name)
    assert peers.answers.size_bytes == 0
    assert peers.answers.give_up(one.name) is None


def test_where_the_kernel_tells_nothing_nothing_is_counted(peers, monkeypatch):
    monkeypatch.setattr(KernelSockets, "is_known", False)
    for _ in range(9):
        peers.connect().give(MIB)
    assert peers.answers.size_bytes == 0
