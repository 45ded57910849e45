"""TLS between nodes over real connections: who is admitted, and what the network sees."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.errors import StartRefused
from gateway.links.addresses import reserve_port
from gateway.links.internal_link import Credentials, dial_internal
from gateway.links.internal_listener import InternalListener
from gateway.links.link import Link
from gateway.links.link_client import LinkRejected
from gateway.links.node_tls import ACCEPT, DIAL, OFF, REQUIRE, NodeTls, TlsFiles, uri_of
from gateway.links.replica_exchange import ReplicaExchanges
from replication.cluster.values import NodeInfo
from replication.replica.fetcher import PeerUnreachable
from tests.certificates import Authority
from tests.gateway.links.test_internal_link import HANDLERS, reversed_body
from tests.replication.coordination.test_zookeeper import cable

CLUSTER, SECRET, RECORD = "c1", "the-secret-of-the-cluster", b"a record that is nobody's business"
SERVER_ID, CLIENT_ID = 1, 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def files_of(authority: Authority, name: str, uri: str, **how: object) -> TlsFiles:
    issued = authority.issue(name, f"URI:{uri}", **how)  # type: ignore[arg-type]
    return TlsFiles(str(authority.ca), str(issued.cert), str(issued.key))


def tls_of(authority: Authority, mode: str, node_id: int) -> NodeTls:
    files = files_of(authority, f"node{node_id}", uri_of(CLUSTER, node_id))
    return NodeTls(mode, files, CLUSTER, node_id)


@asynccontextmanager
async def listening(tls: NodeTls) -> AsyncIterator[int]:
    with reserve_port("127.0.0.1", 0) as port:
        listener = InternalListener(Credentials(CLUSTER, SECRET, tls), HANDLERS, reversed_body)
        await listener.open("127.0.0.1", port)
        yield port
        await listener.close()


def registered(tls: NodeTls, port: int, node_id: int = SERVER_ID, *, has_tls: bool = True) -> str:
    url = f"http://127.0.0.1:{port}"
    tls.follow([NodeInfo(node_id, 1, "", internal_urls=(url,), tls=has_tls)])
    return url


async def ask(url: str, tls: NodeTls) -> None:
    """Make a call over a link and a fetch. Raises LinkRejected, PeerUnreachable."""
    credentials = Credentials(CLUSTER, SECRET, tls)
    link = await dial_internal(url, credentials)(lambda: Link({}))
    assert await link.call("echo", "x", RECORD, timeout_s=5) == ("x", RECORD)
    link.close()
    exchanges = ReplicaExchanges(credentials, wait_ms=100)
    try:
        assert await exchanges.to(url)(RECORD) == RECORD[::-1]
        assert await exchanges.to(url)(RECORD * 10_000) == (RECORD * 10_000)[::-1]
    finally:
        await exchanges.close()


@pytest.mark.parametrize("mode_there", [OFF, ACCEPT, DIAL, REQUIRE])
@pytest.mark.parametrize("mode_here", [OFF, ACCEPT, DIAL, REQUIRE])
async def test_neighbouring_steps_of_the_road_understand_each_other(authority, mode_here, mode_there):
    here, there = tls_of(authority, mode_here, CLIENT_ID), tls_of(authority, mode_there, SERVER_ID)
    steps = [OFF, ACCEPT, DIAL, REQUIRE]
    is_refused = {mode_here, mode_there} in ({OFF, REQUIRE}, {ACCEPT, REQUIRE}) and mode_here != mode_there
    if mode_here == REQUIRE and mode_there == ACCEPT:
        is_refused = False
    assert is_refused <= (abs(steps.index(mode_here) - steps.index(mode_there)) > 1)
    async with listening(there) as port:
        url = registered(here, port, has_tls=mode_there != OFF)
        if is_refused:
            with pytest.raises((LinkRejected, ConnectionResetError)):
                await ask(url, here)
        else:
            await ask(url, here)


async def test_the_wire_shows_secret_and_records_before_and_neither_after(authority):
    for mode, is_seen in ((ACCEPT, True), (DIAL, False)):
        here, there = tls_of(authority, mode, CLIENT_ID), tls_of(authority, mode, SERVER_ID)
        async with listening(there) as port, cable(port) as wire:
            await ask(registered(here, wire.port), here)
        for text in (SECRET.encode(), RECORD, RECORD[::-1]):
            assert (text in wire.carried) is is_seen
        assert len(wire.carried) > 2 * 10_000 * len(RECORD)


def strangers(authority: Authority, directory: Path) -> dict[str, TlsFiles]:
    own = uri_of(CLUSTER, CLIENT_ID)
    other = files_of(Authority(directory, "other"), "stranger", own)
    return {
        "another CA": TlsFiles(str(authority.ca), other.cert, other.key),
        "another cluster": files_of(authority, "cluster", uri_of("c2", CLIENT_ID)),
        "no node": files_of(authority, "nobody", f"penstock://{CLUSTER}/client/2"),
        "a name behind the id": files_of(authority, "behind", own + "/x"),
        "two nodes": files_of(authority, "two", f"{own},URI:{uri_of(CLUSTER, 3)}"),
        "expired": files_of(authority, "expired", own, days=0),
        "for servers only": files_of(authority, "purpose", own, purpose="serverAuth"),
    }


async def test_only_a_node_of_the_cluster_is_admitted_even_with_the_secret(authority, tmp_path):
    """The checks of the other side are off: what counts is what the node does."""
    there = tls_of(authority, REQUIRE, SERVER_ID)
    request = f"POST /internal/v1/replica-fetch HTTP/1.1\r\nAuthorization: Penstock-Cluster {SECRET}\r\n"
    request += f"Penstock-Cluster-Id: {CLUSTER}\r\nContent-Length: 2\r\n\r\nab"

    async def answer(files: TlsFiles | None) -> bytes:
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.check_hostname = False
        if files is not None:
            context.load_cert_chain(files.cert, files.key)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(request.encode())
            found = await reader.read(1000)
            writer.close()
        except OSError:
            return b""
        return found

    tried = strangers(authority, tmp_path)
    await asyncio.sleep(1.1)  # until the certificate has expired
    async with listening(there) as port:
        ours = files_of(authority, "ours", uri_of(CLUSTER, CLIENT_ID))
        assert (await answer(ours)).endswith(b"\r\n\r\nba"), "the control"
        assert await answer(None) == b""
        for name, files in tried.items():
            assert await answer(files) == b"", name


async def test_the_dialler_refuses_another_node_and_sends_it_no_secret(authority):
    here = tls_of(authority, DIAL, CLIENT_ID)
    async with listening(tls_of(authority, DIAL, SERVER_ID)) as port:
        url = registered(here, port, node_id=3)
        with pytest.raises(LinkRejected, match="is of node 1, not of node 3"):
            await dial_internal(url, Credentials(CLUSTER, SECRET, here))(lambda: Link({}))
        exchanges = ReplicaExchanges(Credentials(CLUSTER, SECRET, here), wait_ms=100)
        with pytest.raises(PeerUnreachable, match="is of node 1, not of node 3"):
            await exchanges.to(url)(b"x")


async def test_a_renewed_certificate_counts_for_new_connections_and_a_wrong_one_changes_nothing(authority, tmp_path):
    here, there = tls_of(authority, DIAL, CLIENT_ID), tls_of(authority, REQUIRE, SERVER_ID)
    async with listening(there) as port:
        url = registered(here, port)

        async def serial() -> object:
            files = files_of(authority, "asking", uri_of(CLUSTER, CLIENT_ID))
            context = ssl.create_default_context(cafile=str(authority.ca))
            context.check_hostname = False
            context.load_cert_chain(files.cert, files.key)
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.close()
            return writer.get_extra_info("peercert")["serialNumber"]

        before = await serial()
        files_of(authority, "node1", uri_of(CLUSTER, 7))
        with pytest.raises(StartRefused, match="is not of this node"):
            there.renew()
        assert await serial() == before
        files_of(authority, "node1", uri_of(CLUSTER, SERVER_ID))
        assert await serial() == before
        there.renew()
        assert await serial() != before
        await ask(url, here)


@pytest.mark.parametrize(
    "uri",
    [uri_of("c2", 1), uri_of(CLUSTER, 2), f"penstock://{CLUSTER}/node/01", f"https://x/penstock://{CLUSTER}/node/1"],
)
def test_a_certificate_of_another_node_is_refused_at_the_start(authority, uri):
    with pytest.raises(StartRefused, match="is not of this node") as refused:
        NodeTls(ACCEPT, files_of(authority, "wrong", uri), CLUSTER, 1)
    assert uri_of(CLUSTER, 1) in refused.value.hint


def test_files_that_tls_cannot_use_are_refused_at_the_start(authority, tmp_path):
    good = files_of(authority, "good", uri_of(CLUSTER, 1))
    other = Authority(tmp_path, "other")
    server_only = files_of(authority, "server", uri_of(CLUSTER, 1), purpose="serverAuth")
    for files in (
        good._replace(ca=str(other.ca)),
        good._replace(key=files_of(authority, "another", uri_of(CLUSTER, 1)).key),
        good._replace(cert=str(tmp_path / "nothing")),
        server_only,
    ):
        with pytest.raises(StartRefused, match="cannot be used between nodes"):
            NodeTls(ACCEPT, files, CLUSTER, 1)
