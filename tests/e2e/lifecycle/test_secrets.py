"""No line that a node writes contains a secret, even at the most verbose level."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from urllib.parse import quote

import pytest

from engine.tiering.store.store import StoreUnusable, open_store
from tests.e2e.node_process import NodeProcess, refused_start, running_process
from tests.tokens import add_token, bearer
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

# Each is a unique word, and no two have the same beginning.
KEY, VALUE, HEADER, COOKIE, PASSWORD, QUERY, TOPIC, WRONG = (
    f"{word}-7f3c9d" for word in ("clave", "valor", "cabeza", "galleta", "palabra", "pregunta", "tema", "falso")
)
PLANTED = (KEY, VALUE, HEADER, COOKIE, PASSWORD, QUERY, TOPIC, WRONG)


def leaks(text: str, secrets: tuple[str, ...]) -> list[str]:
    """Return the secrets that a text contains, verbatim or in a reversible encoding."""
    found = []
    for secret in secrets:
        raw = secret.encode()
        in_base64 = [base64.b64encode(raw[shift:])[:-4].decode() for shift in range(3)]
        if any(form in text for form in (secret, quote(secret), repr(raw)[2:-1], raw.hex(), *in_base64)):
            found.append(secret)
    return found


def test_the_search_finds_what_is_planted():
    for form in (
        KEY,
        f"?key={KEY}",
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(b"a" + KEY.encode()).decode(),
    ):
        assert leaks(f"a line with {form} in it", PLANTED) == [KEY], form
    assert leaks("a line without", PLANTED) == []


def send(node: NodeProcess, method: str, path: str, body: bytes = b"", **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse().status
    finally:
        connection.close()


def test_no_secret_of_a_session_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    path = tmp_path / "tokens.toml"
    token = add_token(path, "boss", read=[""], write=[""], admin=[""])
    weak = add_token(path, "weak")
    settings = {"log_level": "debug", "request_log": True, "slow_request_ms": 1, "reload_check_ms": 100}
    with running_process(tmp_path, tokens_file=path, shards=2, **settings) as node:
        good = bearer(token)
        records = f"/v1/topics/t/records?key={KEY}"
        fetch = "/v1/topics/t/partitions/0/records"
        assert (
            send(node, "PUT", "/v1/topics/t", b'{"partitions":4}', Content_Type="application/json", **good) == 200 + 1
        )
        for n in range(8):  # some of them for another shard
            assert send(node, "POST", f"{records}{n}", VALUE.encode(), Penstock_Key=HEADER, **good) == 200
        envelope = json.dumps({"records": [{"value": VALUE, "headers": {"h": HEADER}}]}).encode()
        assert send(node, "POST", records, envelope, Content_Type="application/json", Cookie=COOKIE, **good) == 200
        assert send(node, "GET", f"{fetch}?from=earliest&wait_ms=20", **good) == 200
        for target in (f"/v1/access/tokens/{token}", f"/v1/access/tokens/{weak}/rotate", f"/v1/access/rules/{token}"):
            method = "POST" if target.endswith("rotate") else "DELETE"
            assert send(node, method, f"{target}?key={QUERY}", **good) in (400, 403, 404), target
        fence = json.dumps({"token": PASSWORD}).encode()
        assert (
            send(node, "PUT", "/v1/topics/t/partitions/0/fence", fence, Content_Type="application/json", **good) == 200
        )
        expected = {
            ("GET", f"{fetch}?offset={QUERY}"): 400,
            ("GET", f"{fetch}?{QUERY}=1"): 400,
            ("GET", f"/v1/topics/{TOPIC}"): 404,
            ("GET", f"/{TOPIC}?access_token={QUERY}"): 404,
            ("POST", f"/v1/topics/{TOPIC}/records?key={KEY}"): 404,
            ("POST", f"/v1/groups/{TOPIC}/reset?key={QUERY}"): 403,
        }
        for (method, target), status in expected.items():
            assert send(node, method, target, VALUE.encode(), **good) == status, target
        broken = b'{"records":[' + VALUE.encode()
        assert send(node, "POST", records, broken, Content_Type="application/json", **good) == 400
        basic = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
        for authorization in (f"Bearer {WRONG}", f"Bearer {token[:-1]}", f"Basic {basic}", token, WRONG):
            assert send(node, "GET", f"/v1/topics?key={QUERY}", Authorization=authorization) == 401
        assert send(node, "POST", records, VALUE.encode(), Cookie=COOKIE, **bearer(weak)) == 403
        hang_up(node, f"{fetch}?offset=100000&key={QUERY}", token)
        path.write_text(f'{path.read_text()}\n[[tokens]]\nid = "{weak}"\n')  # a token in place of its id
        wait_until(lambda: "changed files rejected" in node.errors)
        path.write_text(f"{weak} = [")
        assert node.stop() == 0
        written = node.errors + "".join(one.read_text() for one in tmp_path.glob("*.out"))
    trail = "".join(one.read_text() for one in (tmp_path / "data" / "audit").iterdir())
    assert trail.count("\n") >= 6, "there is something to be searched"
    lines = [json.loads(line) for line in node.errors.splitlines()]
    assert sum(line["logger"] == "penstock.requests" for line in lines) > 20, "there is something to be searched"
    assert {"token:boss", "token:weak"} == {line.get("caller") for line in lines} - {None}, "the log names the caller"
    assert leaks(written, (*PLANTED, token, token[18:-1], weak, weak[18:])) == []
    planted = [word for word in PLANTED if word != TOPIC]  # a denial names what was asked for
    assert leaks(trail, (*planted, token, token[18:-1], weak, weak[18:])) == []


STORES = (
    f"s3://user:{PASSWORD}@bucket/prefix",
    f"s3://bucket?endpoint=http://user:{PASSWORD}@127.0.0.1:1",
    f"s3://bucket?endpoint=http://127.0.0.1:1/%3Fkey={PASSWORD}",
    f"s3://bucket?endpoint=http://127.0.0.1:1/%253Fkey={PASSWORD}",
    f"s3://bucket?endpoint={PASSWORD}",
    f"s3://bucket?secret_access_key={PASSWORD}",
    f"file://user:{PASSWORD}@/tmp/store",
    f"gs://user:{PASSWORD}@bucket",
)


@pytest.mark.parametrize("url", STORES)
def test_credentials_in_the_url_of_a_store_are_refused_and_not_repeated(url):
    with pytest.raises(StoreUnusable) as refusal:
        open_store(url)
    assert leaks(str(refusal.value), PLANTED) == []


@pytest.mark.parametrize(
    "store", [STORES[1], "s3://bucket?endpoint=http://127.0.0.1:1"], ids=["in its URL", "in AWS's way"]
)
def test_credentials_of_a_store_that_cannot_be_used_are_not_written(tmp_path, monkeypatch, store):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    code, out, err = refused_start(port=0, data_dir=tmp_path / "data", store=store, log_level="debug")
    assert (code, out) == (1, "")
    assert err
    assert leaks(err, PLANTED) == []


def hang_up(node: NodeProcess, target: str, token: str) -> None:
    """Send half of a request, then a complete one, and disconnect without reading the answer."""
    for text in (
        f"POST {target} HTTP/1.1\r\nAuthorization: Bear",
        f"GET {target} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", node.port), 30) as connection:
            connection.sendall(text.encode())
