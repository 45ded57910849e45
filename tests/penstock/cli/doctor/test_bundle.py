"""`penstock doctor --bundle`: what support gets, and that no secret and no payload is in it."""

from __future__ import annotations

import re
import stat
import tarfile
from pathlib import Path

import orjson
import pytest

from penstock.cli.doctor.bundle import LEFT_OUT, without_secrets, write_bundle
from tests.e2e.node_process import running_process
from tests.penstock.cli.conftest import Run
from tests.tokens import add_token

PAYLOAD, KEY, HEADER = "payload-7f3a", "key-91bc", "header-55de"
LOST = "lost-c0de"  # part of each planted secret


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.rpartition("/")[2]: file.read().decode() for name, file in files.items() if file is not None}


@pytest.mark.parametrize(
    "text",
    [
        f"http://user:{LOST}@store:9000/b",
        f"http://user:p@{LOST}@store:9000/b",
        f"Authorization: Bearer {LOST}",
        f'{{"authorization":"Basic {LOST}="}}',
        f"secret_access_key={LOST} x",
        f'{{"value":"{{\\"password\\": \\"{LOST}\\"}}"}}',
        f"GET /b/k?X-Amz-Credential={LOST}%2F&X-Amz-Signature={LOST}",
        f"signed with whsec_{LOST}",
        f"GET /v1/topics/a/records?sig_key=k&sig={LOST}&sig_exp=1",
        f"sasl.password = '{LOST}'",
        f"-----BEGIN PRIVATE KEY-----\n{LOST}\n-----END PRIVATE KEY-----",
        f"eyJhbGciOiJIUzI1NiJ9.{LOST}.{LOST}",
    ],
)
def test_what_looks_like_a_secret_is_left_out(text: str) -> None:
    cleaned = without_secrets(text)
    assert LOST not in cleaned
    assert LEFT_OUT in cleaned


def test_a_text_without_secrets_stays_as_it_is() -> None:
    text = 'penstock_limited_credentials_total 0.0\n{"name": "tokens_file", "value": "/t", "token": null}\nhttp://a/b@c'
    assert without_secrets(text) == text


def test_a_bundle_has_what_support_asks_for_and_neither_secrets_nor_payloads(run: Run, tmp_path: Path) -> None:
    tokens, log, bundle = tmp_path / "tokens.toml", tmp_path / "node.log", tmp_path / "b.tar.gz"
    tokens.touch(0o600)
    token = add_token(tokens, "root", read=[""], write=[""], admin=[""], group=[""], metrics=True)
    fault = f'Traceback\n  File "a.py", line 3, in f\n    g({PAYLOAD})\nValueError: not a number: {PAYLOAD}'
    base = {"time": "t", "level": "error", "logger": "l"}
    lines = [
        orjson.dumps(base | {"message": f"the store at s3://id:{LOST}@host refused {token}"}).decode(),
        orjson.dumps(base | {"message": "failed", "exception": fault}).decode(),
        f"a print of a record: {PAYLOAD}",
        orjson.dumps({"value": PAYLOAD}).decode(),
    ]
    log.write_text("\n".join(lines))
    with running_process(tmp_path / "n", tokens_file=tokens) as node:
        named = ("--url", node.url, "--token", token)
        assert run("topic", "create", "orders", *named).code == 0
        record = tmp_path / "record"
        record.write_text(PAYLOAD)
        sent = ("--format", "lines", "--key", KEY, "--header", f"h={HEADER}")
        assert run("produce", "orders", record, *sent, *named).code == 0
        ran = run("doctor", "--data-dir", tmp_path, "--bundle", bundle, "--log", log, *named)
        assert f"Wrote {bundle}" in ran.out, ran.err
        again = run("doctor", "--data-dir", tmp_path, "--bundle", bundle, *named)
    assert "exists" in again.err
    files = unpacked(bundle)
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    assert {
        "versions.json", "findings.json", "overview.json", "settings.json", "cluster.json", "topics.json",
        "groups.json", "history.json", "metrics.txt", "errors.json", "log.ndjson",
    } == files.keys()  # fmt: skip
    assert orjson.loads(files["errors.json"]) == {}
    assert orjson.loads(files["topics.json"])["topics"][0]["topic"] == "orders"
    assert orjson.loads(files["settings.json"])["settings"]
    assert ('File "a.py", line 3' in files["log.ndjson"].replace("\\", ""), "ValueError" in files["log.ndjson"]) == (
        True,
        True,
    )
    assert re.search(r'"lines_of_another_form": 2', files["log.ndjson"])
    for name, text in files.items():
        for planted in (token, PAYLOAD, KEY, HEADER, LOST):
            assert planted not in text, name


def test_a_bundle_of_a_node_that_does_not_answer_has_the_reason(run: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    ran = run("doctor", "--data-dir", tmp_path, "--bundle", bundle, "--url", "http://127.0.0.1:9")
    assert ran.code == 1
    assert "node" in [finding["name"] for finding in orjson.loads(unpacked(bundle)["findings.json"])]
    assert "overview.json" in orjson.loads(unpacked(bundle)["errors.json"])


def test_a_log_that_is_not_there_is_an_error_and_leaves_no_archive(run: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    ran = run("doctor", "--data-dir", tmp_path, "--bundle", bundle, "--log", tmp_path / "absent")
    assert (ran.code, bundle.exists()) == (1, False)
    assert "absent" in ran.err


def test_an_archive_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        write_bundle(str(path), {})
    assert path.read_text() == "mine"
