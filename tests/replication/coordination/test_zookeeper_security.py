"""TLS, login and ACLs of ZooKeeper, against a real one. What goes over the wire is read where it passes, in a proxy."""

import itertools
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import StartRefused
from loadtests.cluster.zookeeper import START_S, Zookeeper
from replication.coordination.interface import Create, Put, StoreDenied
from replication.coordination.zookeeper import Address, ZookeeperSession
from replication.coordination.zookeeper_security import PLAIN, ZookeeperSecurity
from tests.certificates import Authority
from tests.replication.coordination.test_zookeeper import cable
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = pytest.mark.skipif(not is_installed(), reason=WHY_NOT)

SECRET = "value-that-only-nodes-may-read"
PASSWORD = "0123456789abcdef0123456789abcdef"
REFUSED_S = 1.5
_ids = (f"{n:032x}" for n in itertools.count(1))


class Secured:
    """A ZooKeeper with a plain port and one with TLS, and the files of its clients."""

    def __init__(self, zookeeper: Zookeeper, authority: Authority, directory: Path) -> None:
        self.zookeeper = zookeeper
        self.authority = authority
        self.directory = directory
        self.login = self.login_file("penstock", PASSWORD)
        client = authority.issue("client", "DNS:client")
        self.tls = ZookeeperSecurity(str(authority.ca), str(client.cert), str(client.key), self.login)

    def login_file(self, user: str, password: str) -> str:
        path = self.directory / f"login-{user}-{password[:4]}"
        path.write_text(f"{user}:{password}\n")
        return str(path)

    async def open(
        self,
        root: str,
        security: ZookeeperSecurity,
        port: int = 0,
        start_s: float = START_S,
        host: str = "127.0.0.1",
    ) -> ZookeeperSession:
        port = port or (self.zookeeper.tls_port if security.ca else self.zookeeper.port)
        return await ZookeeperSession.open(
            Address(f"{host}:{port}", root),
            session_timeout_ms=4000,
            new_id=_ids.__next__,
            start_s=start_s,
            security=security,
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "tls")
    with zookeeper_process(
        directory / "zookeeper", tls=authority.issue_for_zookeeper("server", "IP:127.0.0.1")
    ) as process:
        yield Secured(process, authority, directory)


def with_acl(security: ZookeeperSecurity, **changes: object) -> ZookeeperSecurity:
    fields = {name: getattr(security, name) for name in ZookeeperSecurity.__dataclass_fields__}
    return ZookeeperSecurity(**{**fields, "has_acl": True, **changes})


async def bytes_on_the_wire(secured: Secured, root: str, security: ZookeeperSecurity) -> bytes:
    """Return all bytes of a session that writes and reads the secret."""
    port = secured.zookeeper.tls_port if security.ca else secured.zookeeper.port
    async with cable(port) as made:
        session = await secured.open(root, security, made.port)
        await session.commit(Create("/cluster", SECRET.encode()))
        assert (await session.get("/cluster")).value == SECRET.encode()
        await session.close()
    return bytes(made.carried)


async def test_tls_hides_the_login_and_the_values_that_a_plain_connection_shows(secured):
    plain = await bytes_on_the_wire(secured, "/plain", ZookeeperSecurity(login_file=secured.login))
    hidden = await bytes_on_the_wire(secured, "/hidden", secured.tls)
    for secret in (PASSWORD.encode(), SECRET.encode()):
        assert secret in plain
        assert secret not in hidden
    assert len(hidden) > len(SECRET)


async def test_a_server_of_another_ca_is_refused_with_the_reason(secured, tmp_path):
    other = Authority(tmp_path / "other")
    with pytest.raises(StartRefused, match="certificate verify failed") as refused:
        await secured.open("/x", with_acl(secured.tls, ca=str(other.ca)), start_s=REFUSED_S)
    assert "zookeeper_tls_ca" in refused.value.hint


async def test_a_host_that_the_certificate_does_not_name_is_refused(secured):
    with pytest.raises(StartRefused, match=r"certificate is not valid for 'localhost'"):
        await secured.open("/x", secured.tls, start_s=REFUSED_S, host="localhost")


async def test_a_client_without_a_certificate_is_refused(secured):
    with pytest.raises(StartRefused, match=r"does not answer within .*: "):
        await secured.open("/x", with_acl(secured.tls, cert="", key=""), start_s=REFUSED_S)


async def test_a_certificate_that_has_expired_is_refused(secured):
    expired = secured.authority.issue_for_zookeeper("expired", "IP:127.0.0.1", days=0)
    time.sleep(1.1)
    with zookeeper_process(secured.directory / "expired", tls=expired) as process:
        other = Secured(process, secured.authority, secured.directory)
        with pytest.raises(StartRefused, match="certificate has expired"):
            await other.open("/x", other.tls, start_s=REFUSED_S)


async def test_plain_to_the_port_of_tls_is_refused(secured):
    with pytest.raises(StartRefused, match="does not answer"):
        await secured.open("/x", PLAIN, secured.zookeeper.tls_port, start_s=REFUSED_S)


async def test_keys_with_an_acl_are_for_the_login_only(secured):
    owner = await secured.open("/own", with_acl(secured.tls))
    await owner.commit(Create("/cluster", b"s"), Create("/nodes/1", b"", is_ephemeral=True))
    wrong = with_acl(secured.tls, login_file=secured.login_file("penstock", PASSWORD[::-1]))
    for security in (PLAIN, wrong):
        with pytest.raises(StoreDenied, match="another login"):
            await secured.open("/own", security)
        stranger = await secured.open("", security)
        with pytest.raises(StoreDenied):
            await stranger.get("/own/cluster")
        with pytest.raises(StoreDenied):
            await stranger.children("/own/nodes")
        with pytest.raises(StoreDenied):
            await stranger.commit(Put("/own/cluster", b"t", 0))
        with pytest.raises(StoreDenied):
            await stranger.commit(Create("/own/nodes/2", b""))
        await stranger.close()
    assert (await owner.get("/cluster")).value == b"s"
    await owner.close()


async def walked(session: ZookeeperSession, **how: bool) -> dict[str, bool]:
    return {path: is_changed async for path, is_changed in session.secure(**how)}


async def test_what_is_there_is_secured_and_opened_again(secured):
    """The session that does it and the one that wrote the keys go on meanwhile."""
    before = await secured.open("/old", secured.tls)
    await before.commit(Create("/cluster", b"s"), Create("/nodes/1", b"", is_ephemeral=True))
    securing = await secured.open("/old", with_acl(secured.tls))
    everything = {"/old", "/old/cluster", "/old/nodes", "/old/nodes/1"}
    stranger = await secured.open("/old", PLAIN)
    assert await walked(securing, is_open=False, is_dry=True) == dict.fromkeys(everything, True)
    assert (await stranger.get("/cluster")).value == b"s"
    assert await walked(securing, is_open=False, is_dry=False) == dict.fromkeys(everything, True)
    assert await walked(securing, is_open=False, is_dry=False) == dict.fromkeys(everything, False)
    with pytest.raises(StoreDenied):
        await stranger.get("/cluster")
    await before.commit(Put("/cluster", b"t", 0))
    assert await walked(securing, is_open=True, is_dry=False) == dict.fromkeys(everything, True)
    assert (await stranger.get("/cluster")).value == b"t"
    for session in (before, securing, stranger):
        await session.close()


async def test_a_renewed_certificate_counts_at_the_next_connection(secured, tmp_path):
    """The first one is of a CA that ZooKeeper does not know; the files are replaced under the running start."""
    files = Authority(tmp_path / "files").issue("client", "DNS:client")
    security = with_acl(secured.tls, cert=str(files.cert), key=str(files.key))
    with pytest.raises(StartRefused):
        await secured.open("/renewed", security, start_s=REFUSED_S)
    renewed = secured.authority.issue("renewed", "DNS:client")
    files.cert.write_bytes(renewed.cert.read_bytes())
    files.key.write_bytes(renewed.key.read_bytes())
    session = await secured.open("/renewed", security)
    await session.close()


async def test_no_log_has_the_login_even_if_the_library_may_log_all(secured, caplog):
    with caplog.at_level(1), caplog.at_level(1, logger="kazoo"):
        session = await secured.open("/logged", secured.tls)
        await session.close()
        with pytest.raises(StartRefused):
            await secured.open("/logged", secured.tls, start_s=REFUSED_S, host="localhost")
    assert any(record.name.startswith("kazoo") for record in caplog.records)
    assert PASSWORD not in caplog.text
    logging.getLogger("kazoo").setLevel(logging.NOTSET)


@pytest.mark.parametrize("text", ["", "penstock", "penstock:short", f"pen stock:{PASSWORD}", f"a:{PASSWORD}\nb", "ü:x"])
def test_a_file_that_is_no_login_is_refused_without_its_text(tmp_path, text):
    (tmp_path / "login").write_text(text)
    with pytest.raises(StartRefused, match="is not a login") as refused:
        ZookeeperSecurity(login_file=str(tmp_path / "login")).login()
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("security", "reason"),
    [
        (ZookeeperSecurity(cert="c"), "only one of"),
        (ZookeeperSecurity(login_file="l"), "without zookeeper_tls_ca"),
        (ZookeeperSecurity(ca="c", has_acl=True), "needs zookeeper_login_file"),
        (ZookeeperSecurity(ca="/nowhere/ca.pem"), "/nowhere/ca.pem cannot be used for TLS"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(security, reason):
    with pytest.raises(StartRefused, match=reason):
        security.check()
