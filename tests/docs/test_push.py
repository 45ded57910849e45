"""The page about push: its receiver takes what its session sends, and nothing that is not signed."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing

import pytest

from loadtests.cluster.zookeeper import reserve_port
from tests.docs.console import blocks, environment_of, run_sessions
from tests.e2e.node_process import running_process
from tests.waiting import wait_until

PAGE = "push.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LONG_S = 60


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.e2e
def test_the_receiver_and_the_session_do_what_the_page_says(tmp_path):
    [program] = blocks(PAGE, "python")
    (tmp_path / "receiver.py").write_text(program)
    reserved = reserve_port()  # until the end: no other process gets the port while the node starts
    port = reserved.getsockname()[1]
    secrets = {"WEBHOOK_SECRET": SECRET, "RECEIVER_PORT": str(port)}
    output = tmp_path / "out"
    with (
        closing(reserved),
        output.open("wb") as out,
        running_process(tmp_path / "node", push_targets="127.0.0.0/8", push_http=True) as node,
    ):
        command = [sys.executable, "receiver.py", str(port)]
        environment = environment_of(PAGE, node.url, **secrets)
        receiver = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out)
        try:
            wait_until(lambda: listens(port))
            run_sessions(PAGE, tmp_path, environment)
            wait_until(lambda: output.read_text().count("open") >= 1)
            wait_until(lambda: "ajar" in output.read_text())
            forged = urllib.request.Request(f"http://127.0.0.1:{port}/", b"{}", {
                "webhook-id": "x", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,x",
            })  # fmt: skip
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(forged, timeout=30)
        finally:
            receiver.kill()
            receiver.wait()
