"""Several listeners of a running node, and client certificates, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import ssl
import threading
import time

import httpx
import pytest

from tests.client_certificates import CN, OU, SERVER, ClientAuthority
from tests.e2e.node_process import refused_start, running_process
from tests.tokens import add_token, bearer
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

URI = "spiffe://example.org/shop"
RULES = """
[[{table}.rules]]
attribute = "uri"
matches = "spiffe://example\\\\.org/([a-z]+)"
name = "$1"
groups = ["group:corp:services"]

[[{table}.rules]]
attribute = "CN"
matches = "[a-z]+"

[[{table}.rules]]
attribute = "dns"
matches = "([a-z]+)\\\\.clients\\\\.example\\\\.org"
name = "$1"
"""


class Site:
    """A node with a listener of the options and two more: `partners` takes certificates, `both` also tokens."""

    def __init__(self, directory, **settings):
        self.directory = directory
        self.clients = ClientAuthority(directory, "clients")
        self.servers = ClientAuthority(directory, "servers")
        self.shop = self.clients.issue("shop", uris=[URI])
        self.crl = self.clients.revoke()
        self.server = self.servers.server("server", "localhost")
        self.tokens = directory / "tokens.toml"
        self.ops = add_token(self.tokens, "ops", read=[""], write=[""], admin=[""])
        tls = f'tls_cert = "{self.server.cert}"\ntls_key = "{self.server.key}"\nport = 0\nhost = "127.0.0.1"\n'
        asks = f'client_ca = "{self.clients.ca}"\nclient_crl = "{self.crl}"\n'
        self.file = directory / "listeners.toml"
        self.file.write_text(
            f'[[listeners]]\nname = "partners"\n{tls}{asks}credentials = ["cert"]\n{RULES.format(table="listeners")}'
            f'[[listeners]]\nname = "both"\n{tls}{asks}credentials = ["cert", "token"]\n'
            f"{RULES.format(table='listeners')}"
            f'[[listeners]]\nname = "admits"\n{tls}{asks}credentials = ["token"]\n'
        )
        self.settings = {
            "tokens_file": self.tokens,
            "superusers": "token:ops",
            "listeners_file": self.file,
            "reload_check_ms": 86_400_000,  # SIGHUP
            **settings,
        }

    def start(self):
        return running_process(self.directory, **self.settings)

    def port(self, node, name):
        text = node._output.read_text()
        return int(re.search(rf"{name}: https?://[^:]+:(\d+)", text)[1])

    def context(self, issued=None, *, newest=None):
        context = ssl.create_default_context(cafile=self.servers.ca)
        if newest is not None:
            context.maximum_version = newest
        if issued is not None:
            context.load_cert_chain(*issued.pair)
        return context

    def client(self, node, name, issued=None, *, http2=False, token=None):
        return httpx.Client(
            base_url=f"https://localhost:{self.port(node, name)}",
            verify=self.context(issued),
            http2=http2,
            headers=bearer(token) if token else {},
            timeout=60,
            trust_env=False,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def node(site):
    with site.start() as node:
        put = httpx.put(f"{node.url}/v1/topics/orders", headers=bearer(site.ops))
        assert put.status_code == 201, put.text
        rule = {
            "effect": "allow",
            "principals": ["cert:shop"],
            "operations": ["read", "write"],
            "resource": "topic",
            "pattern": "literal",
            "name": "orders",
        }
        added = httpx.post(f"{node.url}/v1/access/rules", json=rule, headers=bearer(site.ops))
        assert added.status_code in (200, 201), added.text
        yield node
        assert node.stop() == 0


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
class TestWhoOneIs:
    def test_a_certificate_names_its_caller(self, site, node, http2):
        with site.client(node, "partners", site.shop, http2=http2) as client:
            for _ in range(2):
                answer = client.get("/v1/topics/orders")
                assert (answer.status_code, answer.http_version) == (200, "HTTP/2" if http2 else "HTTP/1.1")
            denied = client.get("/v1/topics/secrets")
            assert denied.status_code == 403
            assert "cert:shop" in denied.json()["detail"]

    def test_without_a_certificate_there_is_no_connection(self, site, node, http2):
        with site.client(node, "partners", http2=http2, token=site.ops) as client, pytest.raises(httpx.TransportError):
            client.get("/v1/topics/orders")

    @pytest.mark.parametrize("bad", ["expired", "other CA", "a server's"])
    def test_a_certificate_that_does_not_hold_ends_the_handshake(self, site, node, http2, bad):
        other = ClientAuthority(site.directory, "other")
        issued = {
            "expired": lambda: site.clients.issue("old", uris=[URI], life_s=-60),
            "other CA": lambda: other.issue("theirs", uris=[URI]),
            "a server's": lambda: site.clients.issue("serving", uris=[URI], usage=SERVER),
        }[bad]()
        for name in ("partners", "both"):
            with site.client(node, name, issued, http2=http2) as client, pytest.raises(httpx.TransportError):
                client.get("/v1/topics/orders")

    @pytest.mark.parametrize(
        "subject",
        [
            {"subject": [(CN, "shop"), (CN, "guest")]},
            {"subject": [(OU, "CN=shop")]},
            {"subject": [(CN, "shop and more")]},
            {"uris": [f"{URI}/admin"]},
            {"uris": [URI, "spiffe://example.org/admin"]},
            {"hosts": ["shop.clients.example.org\0.evil.example.net"]},
            {"hosts": ["shop.clients.example.org.evil.example.net"]},
            {},
        ],
        ids=lambda subject: str(sorted(subject.items()))[:60],
    )
    def test_a_certificate_that_no_rule_matches_wholly_is_401(self, site, node, http2, subject):
        issued = site.clients.issue("odd", **subject)
        for name in ("partners", "both"):
            with site.client(node, name, issued, http2=http2) as client:
                answer = client.get("/v1/topics/orders")
                assert answer.status_code == 401, answer.text
                assert "no rule gives the client certificate a name" in answer.json()["detail"]
                assert answer.headers["WWW-Authenticate"]

    @pytest.mark.parametrize("given", [{"subject": [(CN, "shop")]}, {"hosts": ["shop.clients.example.org"]}], ids=str)
    def test_other_attributes_name_it_too(self, site, node, http2, given):
        with site.client(node, "partners", site.clients.issue("again", **given), http2=http2) as client:
            assert client.get("/v1/topics/orders").status_code == 200

    def test_beside_a_token_the_certificate_admits_and_the_token_names(self, site, node, http2):
        for name in ("both", "admits"):
            with site.client(node, name, site.shop, http2=http2, token=site.ops) as client:
                assert client.get("/v1/topics/secrets").status_code == 404
        with site.client(node, "admits", site.shop, http2=http2) as client:  # it does not name
            assert client.get("/v1/topics/orders").status_code == 401
        with site.client(node, "partners", site.shop, http2=http2, token=site.ops) as client:
            for _ in range(2):  # also once the connection is known
                answer = client.get("/v1/topics/secrets")
                assert answer.status_code == 401, answer.text
                assert "takes: cert" in answer.json()["detail"]

    def test_a_listener_of_both_takes_a_token_alone(self, site, node, http2):
        with site.client(node, "both", http2=http2, token=site.ops) as client:
            assert client.get("/v1/topics/orders").status_code == 200
        with site.client(node, "both", http2=http2) as client:
            assert client.get("/v1/topics/orders").status_code == 401

    def test_a_host_of_another_listener_is_421(self, site, node, http2):
        with site.client(node, "partners", site.shop, http2=http2) as client:
            assert client.get("/v1/topics/orders").status_code == 200
            answer = client.get("/v1/topics/orders", headers={"Host": "internal.example.org"})
            assert (answer.status_code, answer.json()["code"]) == (421, "host_not_allowed")

    def test_clients_are_not_led_from_a_listener_to_another(self, site, node, http2):
        with site.client(node, "partners", site.shop, http2=http2) as client:
            described = client.get("/v1/topics/orders").json()
            assert [row["leader_url"] for row in described["partitions"]] == [None]


def test_no_session_is_resumed_where_certificates_are_asked_for(site, node):
    for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = site.context(site.shop, newest=newest)
        with connected(site, node, "partners", context) as first:
            ask(first)
            session = first.session
        with connected(site, node, "partners", context, session) as second:
            ask(second)
            assert not second.session_reused or newest == ssl.TLSVersion.TLSv1_2  # by its id, in this context alone
        assert session is None or not session.has_ticket


def test_plain_http_gets_a_plain_answer_at_a_tls_port(site, node):
    with socket.create_connection(("127.0.0.1", site.port(node, "partners")), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"https" in answer


@pytest.mark.parametrize(
    "header", [b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)]
)
def test_the_header_of_a_proxy_is_refused(site, node, header):
    request = b"GET /v1/topics/orders HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for port in (node.port, site.port(node, "partners")):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(header + request)
            answer = read_all(connection)
            assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), answer
    assert httpx.get(f"{node.url}/healthz").status_code == 200


@contextlib.contextmanager
def connected(site, node, name, context, session=None):
    plain = socket.create_connection(("127.0.0.1", site.port(node, name)), timeout=60)
    with context.wrap_socket(plain, server_hostname="localhost", session=session) as connection:
        yield connection


def ask(connection, path="/v1/topics/orders"):
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    if not (answer := connection.recv(65536)):
        raise ConnectionResetError
    assert answer.startswith(b"HTTP/1.1 200 "), answer


def read_all(connection):
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            answer += piece
    return answer


def reload(node):
    node.begin_stop(signal.SIGHUP)


@pytest.mark.parametrize("shards", [0, 2])
def test_a_revoked_certificate_ends_what_is_open_within_2_s_of_the_reload(tmp_path, shards):
    site = Site(tmp_path, shards=shards, log_level="info")
    with site.start() as node, contextlib.ExitStack() as held:
        admin = httpx.Client(base_url=node.url, headers=bearer(site.ops), timeout=60)
        assert admin.put("/v1/topics/orders").status_code == 201
        rule = {"effect": "allow", "principals": ["*"], "operations": ["read"], "resource": "topic", "pattern": "all"}
        assert admin.post("/v1/access/rules", json=rule).is_success
        revoked = site.clients.issue("revoked", uris=[URI])
        waits = [
            Wait(site, node, revoked, http2=http2, accept=accept)
            for http2 in (False, True)
            for accept in ("application/json", "text/event-stream")
        ]
        others = [Wait(site, node, site.shop, http2=http2, accept="application/json") for http2 in (False, True)]
        contexts = [
            site.context(revoked, newest=version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
        ]
        sessions = []
        for context in contexts:
            with connected(site, node, "both", context) as before:
                ask(before)
                sessions.append(before.session)
        resumed = held.enter_context(connected(site, node, "both", contexts[0], sessions[0]))
        ask(resumed)
        time.sleep(0.5)
        assert not [wait.answer for wait in (*waits, *others) if wait.ended.is_set()]
        site.clients.revoke(revoked)
        began = time.monotonic()
        reload(node)
        for wait in waits:
            assert wait.ended.wait(max(0, began + 2 - time.monotonic())), wait
            assert wait.failed, wait.answer
        resumed.settimeout(max(0.01, began + 2 - time.monotonic()))
        assert read_all(resumed) == b""
        for context, session in zip(contexts, sessions, strict=True):
            for given in (session, None):
                with pytest.raises(OSError), connected(site, node, "both", context, given) as after:
                    ask(after)
        assert admin.post("/v1/topics/orders/records", json={"records": [{"value": 1}]}).is_success
        for wait in others:
            assert wait.ended.wait(60)
            assert not wait.failed, wait.answer
        assert node.stop() == 0


class Wait:
    """A request that waits for records, in a thread."""

    def __init__(self, site, node, issued, *, http2, accept, token=None):
        self.ended, self.failed, self.answer = threading.Event(), False, ""
        self._what = accept, http2
        self._client = site.client(node, "both", issued, http2=http2, token=token)
        self._headers = {"Accept": accept}
        self._query = "from=latest" + ("&wait_ms=30000" if accept == "application/json" else "")
        threading.Thread(target=self._run, daemon=True).start()

    def __repr__(self):
        return f"Wait({self._what})"

    def _run(self):
        try:
            with self._client.stream(
                "GET", f"/v1/topics/orders/partitions/0/records?{self._query}", headers=self._headers
            ) as answer:
                self.answer = f"{answer.status_code}"
                for piece in answer.iter_text():
                    self.answer += piece
                self.failed = answer.status_code != 200
        except httpx.TransportError as error:
            self.failed, self.answer = True, repr(error)
        finally:
            self.ended.set()


def test_open_polls_and_streams_end_with_the_certificate(tmp_path):
    site = Site(tmp_path)
    with site.start() as node:
        admin = httpx.Client(base_url=node.url, headers=bearer(site.ops), timeout=60)
        assert admin.put("/v1/topics/orders").status_code == 201
        rule = {"effect": "allow", "principals": ["cert:shop"], "operations": ["read"], "resource": "topic"}
        assert admin.post("/v1/access/rules", json={**rule, "pattern": "all"}).is_success
        life_s = 6
        short = site.clients.issue("short", uris=[URI], life_s=life_s)
        began = time.monotonic()
        waits = [
            Wait(site, node, short, http2=http2, accept=accept, token=token)
            for http2 in (False, True)
            for accept in ("application/json", "text/event-stream")
            for token in (None, site.ops)
        ]
        for wait in waits:
            assert wait.ended.wait(60)
            assert "the client certificate has expired" in wait.answer, wait.answer
        assert life_s - 2 < time.monotonic() - began < life_s + 10
        assert node.stop() == 0


def test_a_signed_url_beside_a_certificate_is_taken_only_where_signatures_are(site, node):
    admin = httpx.Client(base_url=node.url, headers=bearer(site.ops), timeout=60)
    assert admin.post("/v1/access/keys").is_success
    time.sleep(0.5)
    given = admin.post("/v1/access/signed-urls", json={"url": "/v1/topics/orders/partitions/0/records?from=earliest"})
    assert given.is_success, given.text
    target = given.json()["url"]
    target = target[target.index("/v1/") :]
    assert httpx.get(f"{node.url}{target}").status_code == 200
    with site.client(node, "both", site.shop) as client:
        assert client.get("/v1/topics/orders").status_code == 200  # the connection is known by its certificate
        refused = client.get(target)
        assert refused.status_code == 401, refused.text
        assert "signed" in refused.json()["detail"]


def test_a_ca_that_is_taken_away_ends_the_connections_of_its_clients(tmp_path):
    site = Site(tmp_path)
    site.file.write_text(site.file.read_text().replace(f'client_crl = "{site.crl}"\n', ""))
    with site.start() as node, connected(site, node, "both", site.context(site.shop)) as open_one:
        open_one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert open_one.recv(65536).startswith(b"HTTP/1.1 200 ")
        ClientAuthority(tmp_path, "clients")
        reload(node)
        open_one.settimeout(2)
        assert read_all(open_one) == b""
        assert node.stop() == 0


def test_files_that_do_not_hold_change_nothing_while_a_node_runs(tmp_path):
    site = Site(tmp_path, reload_check_ms=100)
    with site.start() as node:
        good = {path: path.read_bytes() for path in map(tmp_path.joinpath, ("server.pem", "server.key", "clients.crl"))}
        broken = [
            lambda: site.clients.revoke(life_s=-60),
            lambda: (tmp_path / "clients.crl").unlink(),
            lambda: (tmp_path / "server.key").write_bytes((tmp_path / "shop.key").read_bytes()),
        ]
        says = ["has expired", "No such file", "cannot be used for TLS"]
        for breaks, words in zip(broken, says, strict=True):
            before = node.errors.count("changed files rejected")
            breaks()
            wait_until(lambda words=words: words in node.errors)
            with site.client(node, "both", site.shop, token=site.ops) as client:
                assert client.get("/v1/topics").status_code == 200
            time.sleep(0.5)  # further looks, which say nothing more
            assert node.errors.count("changed files rejected") - before in (1, 2, 3), node.errors  # one a listener
            counted = node.errors.count("changed files rejected")
            time.sleep(0.5)
            assert node.errors.count("changed files rejected") == counted
            for path, content in good.items():
                path.write_bytes(content)
            time.sleep(0.5)
        assert node.stop() == 0


def test_a_certificate_that_is_renewed_under_load_fails_no_request(tmp_path):
    site = Site(tmp_path, shards=2)
    with site.start() as node:
        failures, done = [], threading.Event()
        counts = [0, 0]

        def load(http2):
            while not done.is_set():
                with site.client(node, "both", site.shop, http2=http2, token=site.ops) as client:
                    for _ in range(50):
                        try:
                            answer = client.get("/v1/topics")
                            counts[http2] += 1
                            if answer.status_code != 200:
                                failures.append(answer.text)
                        except httpx.TransportError as error:
                            if "ConnectionTerminated error_code:0" not in str(error):  # h2 gives up when it is to leave
                                failures.append(repr(error))

        threads = [threading.Thread(target=load, args=(http2,)) for http2 in (False, True)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            time.sleep(0.4)
            site.servers.server("server", "localhost")
            reload(node)
        time.sleep(0.5)
        done.set()
        for thread in threads:
            thread.join()
        assert min(counts) > 10
        assert failures == []
        assert node.stop() == 0


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (lambda site: site.clients.revoke(life_s=-60), "clients.crl has expired"),
        (lambda site: (site.directory / "clients.crl").unlink(), "No such file"),
        (lambda site: (site.directory / "clients.pem").unlink(), "clients.pem has no CA of clients"),
        (lambda site: site.directory.joinpath("server.key").write_text("x"), "cannot be used for TLS"),
        (
            lambda site: (
                ClientAuthority(site.directory / "o", "other").revoke()
                and site.directory.joinpath("clients.crl").write_bytes(
                    (site.directory / "o" / "other.crl").read_bytes()
                )
            ),
            "lacks the list of a CA",
        ),
        (lambda site: add(site, 'credentials = ["kerberos"]'), "Invalid enum value 'kerberos'"),
        (lambda site: add(site, 'host = "0.0.0.0"'), "without TLS"),
        (lambda site: add(site, 'credentials = ["cert"]'), "client_ca"),
        (lambda site: add(site, "credentials = []"), "credentials"),
        (lambda site: add(site, 'tls_min = "1.1"'), "tls_min"),
        (lambda site: add(site, "typo = 1"), "typo"),
        (lambda site: add(site, 'hosts = ["https://x"]'), "hosts"),
        (lambda site: site.file.write_text("x"), "listeners.toml"),
        (lambda site: site.file.unlink(), "listeners.toml"),
        (lambda site: serve_kafka(site, 'credentials = ["signed"]'), "kafka_listen takes tokens"),
    ],
)
def test_a_start_with_files_that_do_not_hold_is_one_line(tmp_path, breaks, says):
    site = Site(tmp_path)
    breaks(site)
    code, out, err = refused_start(port="0", data_dir=tmp_path / "data", **site.settings)
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert says in err
    assert not (tmp_path / "data").exists()


def serve_kafka(site, default):
    site.settings["kafka_listen"] = "127.0.0.1:0"
    site.file.write_text(f"[default]\n{default}\n{site.file.read_text()}")


def add(site, line):
    site.file.write_text(f'{site.file.read_text()}\n[[listeners]]\nname = "wrong"\nport = 0\n{line}\n')
