"""docs/kafka.md names the APIs that the listener offers, and its commands do what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.kafka.apis import make_apis
from tests.docs.pages import ROOT
from tests.gateway.kafka.served import kafka_node

PAGE = (ROOT / "docs" / "kafka.md").read_text()


async def test_the_list_has_every_api(tmp_path: Path) -> None:
    section = PAGE.partition("\n## Which requests\n")[2].partition("\n## ")[0]
    rows = re.findall(r"(\w+) (\d+)(?:-(\d+))? \((\d+)\)[,.]", section)
    async with kafka_node(tmp_path) as (_, listener):
        apis = make_apis(listener.context).values()
    assert [(int(key), name, int(first), int(last or first)) for name, first, last, key in rows] == sorted(
        (api.key, api.name, api.first, api.last) for api in apis
    )


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_the_commands_of_the_page_work(tmp_path: Path, free_ports: tuple[int, int]) -> None:
    serve, commands = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[:2]
    http, kafka = (str(port) for port in free_ports)
    command = [*serve.replace("9092", kafka).split(), "--port", http, "--data-dir", str(tmp_path / "data")]
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=path)
    try:
        assert node.stdout is not None
        assert "ready" in node.stdout.readline()
        commands = commands.replace("8080", http).replace("9092", kafka).replace("curl", "curl -sS")
        script = f"set -euo pipefail\n{commands}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True, env=path)
    finally:
        node.terminate()
        node.wait(20)
    assert '0  {"id": 1}\n1 key {"id": 2}\n' in done.stdout
    records = json.loads(done.stdout[done.stdout.rindex('{"topic"') :])["records"]
    assert [(record.get("key"), record["value"]) for record in records] == [(None, {"id": 1}), ("key", {"id": 2})]


@pytest.fixture
def free_ports() -> tuple[int, int]:
    import socket

    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
