"""A storm of TLS handshakes leaves the event loop to others, and clients that stall do not keep others out."""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from gateway.access.listeners import tls_context as public
from gateway.links.addresses import reserve_port
from gateway.links.internal_link import Credentials
from gateway.links.internal_listener import InternalListener
from gateway.links.node_tls import REQUIRE, NodeTls, TlsFiles, uri_of
from gateway.wire.handshakes import AT_ONCE, Handshakes
from tests.certificates import NEW_RSA_KEY, Authority
from tests.gateway.links.test_internal_link import HANDLERS, reversed_body
from tests.gateway.wire.served import GET, Served, until

CLIENTS = 120  # less than the queue of the kernel; the first step of each takes about 1 ms of the server
ATTEMPTS = 3
CERTIFIED = 1000  # after the restart of a node; each has a certificate
HELD_S_MAX = 0.02
CLUSTER = "c1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    issued = authority.issue("server", "IP:127.0.0.1", f"URI:{uri_of(CLUSTER, 1)}", new_key=NEW_RSA_KEY)
    return TlsFiles(str(authority.ca), str(issued.cert), str(issued.key))


def tls_context(cert: str, key: str, client_ca: str = "") -> ssl.SSLContext:
    files = public.TlsFiles(cert, key, client_ca)
    return public.read_tls(files, "1.2", requires_certificate=bool(client_ca), now_ms=0).context


@asynccontextmanager
async def public_port(files: TlsFiles) -> AsyncIterator[int]:
    served = Served(connections_max=CLIENTS * 2, tls=tls_context(files.cert, files.key))
    yield served.place[1]
    await served.server.close(0)


@asynccontextmanager
async def port_of_certificates(files: TlsFiles) -> AsyncIterator[int]:
    served = Served(connections_max=CERTIFIED * 2, tls=tls_context(files.cert, files.key, files.ca))
    yield served.place[1]
    await served.server.close(0)


@asynccontextmanager
async def internal_port(files: TlsFiles) -> AsyncIterator[int]:
    with reserve_port("127.0.0.1", 0) as port:
        listener = InternalListener(
            Credentials(CLUSTER, "secret", NodeTls(REQUIRE, files, CLUSTER, 1)), HANDLERS, reversed_body
        )
        await listener.open("127.0.0.1", port)
        yield port
        await listener.close()


class Client:
    """One end of a handshake on a socket of its own; its first message is sent."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(30)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send)
        assert not self.step()

    def step(self) -> bool:
        """Takes what has come and sends what follows; returns whether the handshake is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.socket.sendall(self._to_send.read())
        return True

    def receive(self) -> None:
        data = self.socket.recv(65536)
        assert data, "the server has ended the connection"
        self._received.write(data)

    @property
    def is_answered(self) -> bool:
        self.socket.setblocking(False)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(30)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    context.check_hostname = False
    context.load_cert_chain(files.cert, files.key)
    return context


@contextmanager
def clients_of(port: int, files: TlsFiles, count: int) -> Iterator[list[Client]]:
    context = client_context(files)
    with ExitStack() as stack:
        clients = [Client(port, context) for _ in range(count)]
        for client in clients:
            stack.enter_context(client.socket)
        yield clients


def finish(clients: list[Client]) -> None:
    """Goes on with all handshakes as their answers come, until all are done. Blocks."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        while selector.get_map():
            ready = selector.select(30)
            assert ready, f"{len(selector.get_map())} handshakes never ended"
            for key, _ in ready:
                key.data.receive()
                if key.data.step():
                    selector.unregister(key.fileobj)


class Turns:
    """The processor time of the loop's thread in each turn of the loop: the work of other programs does not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest_s, self._last = max(self.longest_s, now - self._last), now
        self._next = self._loop.call_soon(self._turn)

    def end(self) -> None:
        self._next.cancel()


@pytest.mark.parametrize("port_of", [public_port, internal_port])
async def test_a_storm_of_handshakes_leaves_the_loop_to_others(files: TlsFiles, port_of: Callable) -> None:
    await assert_short_turns(files, port_of, CLIENTS)


@pytest.mark.long
async def test_a_thousand_clients_with_certificates_leave_it_too(authority: Authority) -> None:
    issued = authority.issue("curves", "IP:127.0.0.1")
    files = TlsFiles(str(authority.ca), str(issued.cert), str(issued.key))
    await assert_short_turns(files, port_of_certificates, CERTIFIED)


async def assert_short_turns(files: TlsFiles, port_of: Callable, count: int) -> None:
    """A virtual machine counts the time that it was not given as processor time, so that a storm may be repeated."""
    longest_s = []
    for _ in range(ATTEMPTS):
        longest_s.append(await longest_turn_s(files, port_of, count))
        if longest_s[-1] < HELD_S_MAX:
            return
    raise AssertionError(longest_s)


async def longest_turn_s(files: TlsFiles, port_of: Callable, count: int) -> float:
    async with port_of(files) as port:
        with clients_of(port, files, count) as clients:  # all of them wait as the loop comes to them
            turns = Turns()
            await asyncio.to_thread(finish, clients)
            turns.end()
    return turns.longest_s


@pytest.mark.parametrize("port_of", [public_port, internal_port])
async def test_clients_that_stall_or_say_nothing_do_not_keep_others_out(files: TlsFiles, port_of: Callable) -> None:
    async with port_of(files) as port:
        with ExitStack() as stack, clients_of(port, files, 40):  # these never go on
            for _ in range(40):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            with clients_of(port, files, 1) as last:
                await asyncio.wait_for(asyncio.to_thread(finish, last), 4)


async def test_the_next_handshake_starts_when_one_of_four_has_ended(files: TlsFiles) -> None:
    context, handshakes = tls_context(files.cert, files.key), Handshakes(place_s=60)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        clients = stack.enter_context(clients_of(listener.getsockname()[1], files, AT_ONCE + 2))
        tasks = []
        for _ in clients:
            accepted = stack.enter_context(listener.accept()[0])
            accepted.setblocking(False)
            connecting = handshakes.connect(asyncio.Protocol, accepted, lambda: context, 60)
            tasks.append(asyncio.create_task(connecting))
        await until(lambda: all(client.is_answered for client in clients[:AT_ONCE]))
        await asyncio.sleep(0.05)
        assert not clients[AT_ONCE].is_answered
        assert not clients[AT_ONCE + 1].is_answered
        await asyncio.to_thread(finish, clients[:1])
        await until(lambda: clients[AT_ONCE].is_answered)
        tasks[1].cancel()  # its client leaves
        tasks[AT_ONCE].cancel()
        await until(lambda: clients[AT_ONCE + 1].is_answered)
        await asyncio.to_thread(finish, clients[2:AT_ONCE] + clients[AT_ONCE + 1 :])
        await asyncio.wait(tasks)
        assert repr(handshakes) == f"Handshakes(0 of {AT_ONCE} places taken)"


async def test_a_certificate_that_is_renewed_counts_for_those_that_wait(files: TlsFiles, authority, tmp_path: Path):
    old, new = tls_context(files.cert, files.key), authority.issue("renewed", "IP:127.0.0.1")
    served = Served(tls=old)
    with socket.create_connection(served.place) as silent:
        await until(lambda: served.server._accepting)
        served.server.renew(served.door, tls_context(str(new.cert), str(new.key)), lambda _: False)
        context = client_context(files)
        with context.wrap_socket(silent, do_handshake_on_connect=False) as client:
            await asyncio.to_thread(client.do_handshake)
            assert client.getpeercert()["subject"] == ((("commonName", "renewed"),),)
            client.sendall(GET)
            assert await asyncio.to_thread(client.recv, 12) == b"HTTP/1.1 200"
    await served.server.close(1)
