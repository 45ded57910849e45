"""TLS with --tls-cert and --tls-key: HTTP/2 and HTTP/1.1 by ALPN on one port, tested with curl."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from urllib.parse import urlsplit

import pytest

from gateway.access.listeners.tls_context import TlsFiles, read_tls
from penstock.cli.doctor.readiness import check_local_readiness
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Create a self-signed certificate for localhost and 127.0.0.1; return the paths of certificate and key."""
    directory = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True, timeout=60)
    return directory / "cert.pem", directory / "key.pem"


@pytest.fixture(scope="module")
def node(certificate, tmp_path_factory):
    cert, key = certificate
    with running_process(tmp_path_factory.mktemp("node"), tls_cert=cert, tls_key=key) as process:
        yield process
        assert process.stop() == 0


def curl(certificate, *arguments):
    """Return version, status and body; the certificate is checked."""
    marker = ["--write-out", "\n%{http_version} %{http_code}"]
    command = ["curl", "--silent", "--max-time", "20", "--cacert", str(certificate[0]), *marker, *arguments]
    ended = subprocess.run(command, capture_output=True, timeout=60)
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    body, _, written = ended.stdout.decode().rpartition("\n")
    return *written.split(), body


def test_tls_1_2_is_the_oldest_and_has_only_suites_with_ecdhe_and_aead(certificate):
    context = read_tls(TlsFiles(*map(str, certificate)), "1.2", requires_certificate=False, now_ms=0).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    ciphers = [one for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
    assert ciphers
    assert all(one["aead"] and one["name"].startswith("ECDHE-") for one in ciphers)


def test_the_url_that_a_node_prints_is_https(node):
    assert node.url == f"https://127.0.0.1:{node.port}"


@pytest.mark.parametrize(("flag", "version"), [("--http2", "2"), ("--http1.1", "1.1")])
def test_alpn_chooses_the_protocol_and_a_record_makes_the_round_trip(node, certificate, flag, version):
    topic = f"{node.url}/v1/topics/over-{version}"
    assert curl(certificate, flag, "-X", "PUT", topic)[:2] == (version, "201")
    lines = ["--header", "Content-Type: application/x-ndjson", "--data-binary", '{"a":1}\n']
    assert curl(certificate, flag, *lines, f"{topic}/records")[:2] == (version, "200")
    seen, status, body = curl(certificate, flag, f"{topic}/partitions/0/records?from=earliest")
    assert (seen, status) == (version, "200")
    assert [record["value"] for record in json.loads(body)["records"]] == [{"a": 1}]
    described = json.loads(curl(certificate, flag, topic)[2])
    assert described["partitions"][0]["leader_url"].startswith("https://")


def test_who_offers_nothing_by_alpn_gets_http_1(node, certificate):
    context = ssl.create_default_context(cafile=str(certificate[0]))
    plain = socket.create_connection(("127.0.0.1", node.port), timeout=60)
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        assert connection.selected_alpn_protocol() is None
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_plain_http_on_a_tls_port_gets_an_answer_and_harms_nobody(node, certificate):
    assert curl(certificate, f"http://127.0.0.1:{node.port}/healthz")[1] == "400"
    assert curl(certificate, f"{node.url}/healthz")[1] == "200"


@pytest.mark.parametrize("variables", [{}, {"PENSTOCK_TLS_CERT": "/somewhere"}])
def test_the_health_check_of_a_container_works_under_tls(node, variables):
    port = str(urlsplit(node.url).port)
    assert check_local_readiness({"PENSTOCK_PORT": port, **variables}) is None
    assert (
        check_local_readiness({"PENSTOCK_PORT": "1", **variables})
        == "not ready: cannot reach 127.0.0.1:1: connection refused"
    )


def test_a_handshake_that_does_not_end_is_cut_off(certificate, tmp_path):
    cert, key = certificate
    with running_process(tmp_path, tls_cert=cert, tls_key=key, header_read_timeout_ms=1000) as process:
        for said in (b"", b"\x16\x03\x01\x02\x00"):
            with socket.create_connection(("127.0.0.1", process.port), timeout=60) as connection:
                connection.sendall(said)
                assert connection.recv(1) == b""
        assert process.stop() == 0
