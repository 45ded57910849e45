"""All processes of a running node take access tokens of an issuer over HTTPS, whatever the issuer does."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.request

import pytest

from tests.certificates import Authority
from tests.e2e.lifecycle.test_refused_starts import assert_refused
from tests.e2e.lifecycle.test_reloading import call, direct_urls
from tests.e2e.node_process import running_process
from tests.issuers import SigningKey, claims_of, now_s, running_issuer, write_issuers
from tests.tokens import add_token, bearer
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

TOPIC = "/v1/topics/t"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


def read_by(node, boss, *principals):
    """Allow principals to read the topic."""
    rule = {"principals": list(principals), "operations": ["read"], "resource": "topic", "name": "t"}
    status, body = call(f"{node.url}/v1/access/rules", boss, "POST", json.dumps(rule).encode())
    assert status == 201, body


def reasons(urls, token):
    """Return the status of a read by each process, with the reason of a refusal."""
    answers = [call(url + TOPIC, token) for url in urls]
    return {(status, "" if status == 200 else json.loads(body)["detail"]) for status, body in answers}


def statuses(urls, token):
    return {status for status, _ in reasons(urls, token)}


@pytest.mark.slow
@pytest.mark.parametrize("shards", [pytest.param(0, marks=pytest.mark.long), 2])
def test_tokens_of_an_issuer_count_in_every_process_whatever_it_does(tmp_path, authority, shards):
    tokens, issuers = tmp_path / "tokens.toml", tmp_path / "issuers.toml"
    boss = add_token(tokens, "boss", read=[""], admin=[""])
    old, new = SigningKey("old", "RS256"), SigningKey("new", "EdDSA")
    settings = {"tokens_file": tokens, "superusers": "token:boss", "issuers_file": issuers, "reload_check_ms": 100}
    with running_issuer(authority) as issuer:
        issuer.mode = "failing"
        entry = issuer.entry(ca_file=str(authority.ca), groups="groups")
        write_issuers(issuers, entry)
        with running_process(tmp_path, shards=shards, **settings) as node:
            urls = direct_urls(node, boss)
            token = old.token(claims_of(issuer.url, now_s(), groups=["staff"]))
            ((status, reason),) = reasons(urls, token)  # the issuer is away
            assert (status, "has no keys of issuer corp" in reason) == (503, True)
            assert statuses(urls, boss) == {200}
            issuer.keys = [old.jwk()]
            issuer.mode = "good"
            wait_until(lambda: statuses(urls, token) == {403})
            ((status, reason),) = reasons(urls, token)
            assert reason.startswith("oidc:corp:shop lacks the right")
            read_by(node, boss, "group:corp:staff")
            wait_until(lambda: statuses(urls, token) == {200})
            short = old.token(claims_of(issuer.url, now_s(), groups=["staff"], exp=now_s() + 4))
            began = time.monotonic()
            status, body = call(f"{node.url}{TOPIC}/partitions/0/records?from=latest&wait_ms=20000", short)
            assert (status, "expired" in body.decode()) == (401, True)
            assert 2 < time.monotonic() - began < 6
            newer = new.token(claims_of(issuer.url, now_s(), groups=["staff"]))
            ((status, reason),) = reasons(urls, newer)
            assert (status, "try again in a minute" in reason) == (401, True)
            issuer.mode = "slow"  # the fetch that this token asks for: requests go on
            answered = time.monotonic()
            assert statuses(urls * 20, token) == {200}
            assert statuses(urls, newer) == {401}
            assert time.monotonic() - answered < 5
            issuer.keys = [new.jwk()]
            issuer.mode = "good"
            issuer.released.set()
            wait_until(lambda: statuses(urls, newer) == {200})
            ((status, reason),) = reasons(urls, token)  # its key is withdrawn
            assert (status, "names no key" in reason) == (401, True)
            write_issuers(issuers, entry.replace('"penstock"', '""'))
            wait_until(lambda: "audience is missing" in node.errors)
            assert statuses(urls, newer) == {200}
            write_issuers(issuers, entry.replace('"penstock"', '"other"'))
            wait_until(lambda: statuses(urls, newer) <= {401, 503})
            assert statuses(urls, boss) == {200}
            assert "eyJ" not in node.errors
            assert node.stop() == 0


def test_an_event_stream_ends_with_its_token(tmp_path, authority):
    tokens, issuers = tmp_path / "tokens.toml", tmp_path / "issuers.toml"
    boss = add_token(tokens, "boss", admin=[""])
    key = SigningKey("a")
    with running_issuer(authority) as issuer:
        issuer.keys = [key.jwk()]
        write_issuers(issuers, issuer.entry(ca_file=str(authority.ca)))
        settings = {"tokens_file": tokens, "superusers": "token:boss", "issuers_file": issuers}
        with running_process(tmp_path, **settings) as node:
            direct_urls(node, boss)
            read_by(node, boss, "oidc:corp:shop")
            wait_until(lambda: call(node.url + TOPIC, key.token(claims_of(issuer.url, now_s())))[0] == 200)
            token = key.token(claims_of(issuer.url, now_s(), exp=now_s() + 3))
            headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
            began = time.monotonic()
            with urllib.request.urlopen(
                urllib.request.Request(f"{node.url}{TOPIC}/partitions/0/records?from=latest", headers=headers)
            ) as stream:
                text = stream.read().decode()
            assert time.monotonic() - began < 6
            assert "event: problem" in text
            assert "expired" in text


def raw(port: int, *lines: str, path: str = TOPIC) -> tuple[int, str]:
    """Send a request with these header lines as they are. Return its status and what came back."""
    head = "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines, "", ""])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode("latin-1"))
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(answer.split()[1]), answer


def test_hostile_requests_get_401_and_keys_elsewhere_are_never_asked_for(tmp_path, authority):
    tokens, issuers = tmp_path / "tokens.toml", tmp_path / "issuers.toml"
    boss = add_token(tokens, "boss", admin=[""])
    key, own = SigningKey("a"), SigningKey("a")
    with running_issuer(authority) as issuer, running_issuer(authority) as decoy:
        issuer.keys, decoy.keys = [key.jwk()], [own.jwk()]
        write_issuers(issuers, issuer.entry(ca_file=str(authority.ca)))
        settings = {"tokens_file": tokens, "superusers": "token:boss", "issuers_file": issuers, "log_level": "debug"}
        with running_process(tmp_path, **settings) as node:
            direct_urls(node, boss)
            read_by(node, boss, "oidc:corp:shop")
            claims = claims_of(issuer.url, now_s())
            good = key.token(claims)
            wait_until(lambda: call(node.url + TOPIC, good)[0] == 200)
            elsewhere = {"jku": f"{decoy.url}/keys", "x5u": f"{decoy.url}/keys", "jwk": own.jwk(), "x5c": ["AAAA"]}
            sent = {
                "keys elsewhere": [f"Authorization: Bearer {own.token(claims, elsewhere)}"],
                "issuer elsewhere": [f"Authorization: Bearer {own.token(claims_of(decoy.url, now_s()))}"],
                "two headers": [f"Authorization: Bearer {good}"] * 2,
                "Basic": [f"Authorization: Basic {good}"],
                "no scheme": [f"Authorization: {good}"],
                "trailing =": [f"Authorization: Bearer {good}="],
                "two tokens": [f"Authorization: Bearer {good} {good}"],
                "8 KiB and more": [f"Authorization: Bearer {key.token({**claims, 'x': 'x' * 7000})}"],
                "half a character": [f"Authorization: Bearer {good}\xe9"],
            }
            for name, lines in sent.items():
                status, answer = raw(node.port, *lines)
                assert (name, status) == (name, 401)
                assert good.rpartition(".")[2] not in answer
            assert raw(node.port, f"Authorization: Bearer {good}\0")[0] == 400
            assert call(f"{node.url}{TOPIC}?access_token={good}", "")[0] == 401
            assert raw(node.port, f"Authorization: bearer   {good}  ")[0] == 200  # the control
            assert decoy.fetches == []
            assert good.rpartition(".")[2] not in node.errors


def test_a_caller_of_an_issuer_signs_urls_with_its_groups(tmp_path, authority):
    tokens, issuers = tmp_path / "tokens.toml", tmp_path / "issuers.toml"
    boss = add_token(tokens, "boss", admin=[""])
    key = SigningKey("a")
    with running_issuer(authority) as issuer:
        issuer.keys = [key.jwk()]
        entry = issuer.entry(ca_file=str(authority.ca), groups="groups")
        write_issuers(issuers, entry)
        settings = {"tokens_file": tokens, "superusers": "token:boss", "issuers_file": issuers, "reload_check_ms": 100}
        with running_process(tmp_path, **settings) as node:
            direct_urls(node, boss)
            read_by(node, boss, "group:corp:staff")
            assert call(f"{node.url}/v1/access/keys", boss, "POST")[0] == 201
            ends_s = now_s() + 120
            token = key.token(claims_of(issuer.url, now_s(), groups=["staff", "a/b"], exp=ends_s))
            wait_until(lambda: call(node.url + TOPIC, token)[0] == 200)
            wish = json.dumps({"url": f"{TOPIC}/partitions/0/records?from=earliest"}).encode()
            status, body = call(f"{node.url}/v1/access/signed-urls", token, "POST", wish)
            assert status == 201, body
            signed = json.loads(body)
            assert (signed["subject"], signed["expires_ms"]) == ("oidc:corp:shop", ends_s * 1000)

            def used(url: str) -> int:
                return raw(node.port, path=url)[0]

            assert used(signed["url"]) == 200
            assert used(signed["url"].replace("staff", "boss")) == 401
            assert used(signed["url"].replace("&sig_group=group%3Acorp%3Aa%2Fb", "")) == 401
            deny = {"id": "d", "effect": "deny", "principals": ["group:corp:a/b"], "operations": ["read"]}
            rule = json.dumps({**deny, "resource": "topic", "name": "t"}).encode()
            assert call(f"{node.url}/v1/access/rules", boss, "POST", rule)[0] == 201
            assert used(signed["url"]) == 403
            assert call(f"{node.url}/v1/access/rules/d", boss, "DELETE")[0] == 200
            assert used(signed["url"]) == 200
            write_issuers(issuers, entry.replace('"corp"', '"other"'))
            wait_until(lambda: used(signed["url"]) == 401)


def at_another_address(port: int, token: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30, source_address=("127.0.0.2", 0))
    connection.request("GET", TOPIC, headers=bearer(token))
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.slow
def test_forged_tokens_do_not_hold_up_others(tmp_path, authority):
    """Each token has a key id that is known and a wrong signature, which is the most expensive kind."""
    tokens, issuers = tmp_path / "tokens.toml", tmp_path / "issuers.toml"
    boss = add_token(tokens, "boss", admin=[""])
    key, forger = SigningKey("a", "ES256"), SigningKey("a", "ES256")
    with running_issuer(authority) as issuer:
        issuer.keys = [key.jwk()]
        write_issuers(issuers, issuer.entry(ca_file=str(authority.ca)))
        with running_process(tmp_path, tokens_file=tokens, issuers_file=issuers) as node:
            direct_urls(node, boss)
            wait_until(lambda: call(node.url + TOPIC, key.token(claims_of(issuer.url, now_s())))[0] == 403)
            fetched = len(issuer.fetches)
            stop = threading.Event()
            refused = []

            def flood():
                while not stop.is_set():
                    sent = forger.token(
                        claims_of(issuer.url, now_s(), jti=str(len(refused))), kid=f"a{len(refused) % 2 or ''}"
                    )
                    refused.append(call(node.url + TOPIC, sent)[0])

            flooding = [threading.Thread(target=flood) for _ in range(4)]
            for thread in flooding:
                thread.start()
            wait_until(lambda: 429 in refused)  # the address of the forger waits
            slowest = 0.0
            for _ in range(50):
                began = time.monotonic()
                assert at_another_address(node.port, boss) == 200
                slowest = max(slowest, time.monotonic() - began)
            stop.set()
            for thread in flooding:
                thread.join()
            assert set(refused) == {401, 429}
            assert slowest < 1
            assert len(issuer.fetches) - fetched <= 4  # two documents, at most twice


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ('audience = ""', "audience is missing"),
        ('algorithms = ["HS256"]', "algorithms has 'HS256'"),
        ('keys_url = "http://id.example.org/keys"', "not https"),
        ('ca_file = "/nowhere.pem"', "ca_file /nowhere.pem cannot be used"),
    ],
)
def test_an_issuer_that_is_not_safe_is_refused_at_the_start(tmp_path, changed, says):
    add_token(tmp_path / "tokens.toml", "boss")
    entry = '[[issuers]]\nalias = "corp"\nissuer = "https://id.example.org"\n'
    audience = "" if changed.startswith("audience") else 'audience = "penstock"\n'
    write_issuers(tmp_path / "issuers.toml", entry + audience + changed)
    for shards in (0, 2):
        assert_refused(
            tokens_file=tmp_path / "tokens.toml",
            issuers_file=tmp_path / "issuers.toml",
            port=0,
            shards=shards,
            data_dir=tmp_path / "data",
            says=["issuer corp", says],
        )
    assert not (tmp_path / "data").exists()


def test_an_issuers_file_needs_a_tokens_file(tmp_path):
    assert_refused(issuers_file=tmp_path / "x", port=0, data_dir=tmp_path / "data", says=["without a tokens file"])
