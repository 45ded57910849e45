"""A node takes the access tokens of oidc-provider, a certified issuer, also after it has changed its keys.

The issuer needs Node.js; it is installed from npm for the test. tests/e2e/lifecycle/test_issuers.py has the rest.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.certificates import Authority, Certificate
from tests.e2e.lifecycle.test_issuers import TOPIC, read_by, reasons, statuses
from tests.e2e.lifecycle.test_reloading import direct_urls
from tests.e2e.node_process import running_process
from tests.issuers import write_issuers
from tests.tokens import add_token
from tests.waiting import wait_until

PROVIDER = "oidc-provider@9.13.3"
PROGRAM = Path(__file__).with_name("oidc_provider.mjs")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.skipif(not (shutil.which("npm") and shutil.which("node")), reason="needs node and npm"),
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Return a directory in which the issuer is installed."""
    directory = tmp_path_factory.mktemp("provider")
    shutil.copy(PROGRAM, directory)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(directory), PROVIDER]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if ended.returncode != 0:
        pytest.skip(f"npm does not install {PROVIDER}: {ended.stderr.strip()[-200:]}")
    return directory


@contextmanager
def running_provider(directory: Path, port: int, files: Certificate, key_id: str) -> Iterator[None]:
    command = ["node", PROGRAM.name, str(port), str(files.cert), str(files.key), key_id]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def token_of(url: str, ca: Path, algorithm: str = "ES256", audience: str = "penstock") -> str:
    """Ask the issuer for a token, as a program does."""
    form = {"grant_type": "client_credentials", "scope": "use", "resource": f"https://{audience}/{algorithm}"}
    request = urllib.request.Request(f"{url}/token", urllib.parse.urlencode(form).encode())
    request.add_header("Authorization", f"Basic {base64.b64encode(b'shop:of-a-test').decode()}")
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=str(ca))) as answer:
        return json.load(answer)["access_token"]


def test_the_tokens_of_a_real_issuer_are_taken_before_and_after_its_keys_change(tmp_path, installed):
    authority = Authority(tmp_path)
    files = authority.issue("issuer", "IP:127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"https://127.0.0.1:{port}"
    tokens, issuers = tmp_path / "tokens.toml", tmp_path / "issuers.toml"
    boss = add_token(tokens, "boss", admin=[""])
    entry = f'[[issuers]]\nalias = "real"\nissuer = "{url}"\naudience = "penstock"\ngroups = "groups"\n'
    write_issuers(issuers, f'{entry}ca_file = "{authority.ca}"\n')
    settings = {"tokens_file": tokens, "superusers": "token:boss", "issuers_file": issuers, "shards": 2}
    with running_process(tmp_path, **settings) as node:
        urls = direct_urls(node, boss)
        read_by(node, boss, "group:real:staff")
        with running_provider(installed, port, files, "first"):
            first = token_of(url, authority.ca)
            wait_until(lambda: statuses(urls, first) == {200})
            assert statuses(urls, token_of(url, authority.ca, "RS256")) == {200}
            ((status, reason),) = reasons(urls, token_of(url, authority.ca, audience="other"))
            assert (status, "another audience" in reason) == (401, True)
        assert statuses(urls, first) == {200}  # the issuer is away
        with running_provider(installed, port, files, "second"):
            second = token_of(url, authority.ca)
            wait_until(lambda: statuses(urls, second) == {200})
            ((status, reason),) = reasons(urls, first)
            assert (status, "names no key" in reason) == (401, True)
        assert TOPIC not in node.errors
        assert second not in node.errors
