"""h2spec against a node: `go install github.com/summerwind/h2spec/cmd/h2spec@latest` installs it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e
# This port takes an invalid preface for HTTP/1.1 and answers as HTTP/1.1.
NOT_HTTP2 = "Sends invalid connection preface"


@pytest.mark.skipif(shutil.which("h2spec") is None, reason="h2spec is not installed")
def test_a_node_conforms_to_http2_and_hpack(tmp_path):
    with running_process(tmp_path) as node:
        command = ["h2spec", "-h", "127.0.0.1", "-p", str(node.port), "-P", "/healthz", "-o", "10"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    failures = done.stdout.partition("Failures:")[2]
    assert [one for one in re.findall(r"× \d+: (.*)", failures) if one != NOT_HTTP2] == [], failures
    assert re.search(r"14\d tests, 14\d passed", done.stdout)
