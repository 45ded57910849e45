"""The packages as their users get them: packed, installed into fresh projects, and the examples of the pages run there.

`make clients-tests` runs them; they need Node, npm and Go.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.sync import Client
from tests.clients.runner import BUILD_S, ROOT, TYPESCRIPT, RunnerError, running
from tests.e2e.node_process import running_process

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.xdist_group("client stories")]
RECORDS, RECORD_BYTES = 300_000, 100
CLIENT_BYTES_MAX = 12_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_process(tmp_path_factory.mktemp("node")) as node:
        yield node.url


def run(command: list[str], directory: Path, **environment: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **environment}, capture_output=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3000:]
    return done.stdout.decode()


def test_the_page_runs_with_the_packed_typescript_client(url: str, tmp_path: Path) -> None:
    packed = run(["npm", "pack", "--silent", "--pack-destination", str(tmp_path)], TYPESCRIPT).split()[-1]
    (tmp_path / "package.json").write_text('{"type": "module"}')
    run(["npm", "install", "--no-audit", "--no-fund", "--offline", str(tmp_path / packed)], tmp_path)
    page = (ROOT / "docs" / "clients.md").read_text()
    blocks = re.findall(r"```ts\n(.*?)```", page, re.DOTALL)
    (tmp_path / "page.ts").write_text("\n".join(blocks).replace("http://127.0.0.1:8080", url))
    compiler = str(TYPESCRIPT / "node_modules" / ".bin" / "tsc")
    strict = ["--strict", "--target", "ES2022", "--module", "NodeNext", "--lib", "ES2022,DOM,ESNext.Disposable"]
    run([compiler, *strict, "page.ts"], tmp_path)
    printed = run(["node", "page.js"], tmp_path).splitlines()
    assert printed[0].startswith("500500 {")
    assert "unknown_topic false false" in printed
    assert "line-" in printed[-3], "the group has got a record"
    assert printed[-1].split(".")[1].split("-") != ["0", "0"], "the event stream is behind a record"
    assert sorted(path.name for path in (tmp_path / "node_modules" / "@penstock" / "client").iterdir()) == [
        *("LICENSE", "README.md", "dist", "package.json")
    ]


def test_the_package_is_small_and_right_for_its_registry(tmp_path: Path) -> None:
    """CommonJS has it by `import()` alone, which the page says: the profile of packages with modules only."""
    packed = run(["npm", "pack", "--silent", "--pack-destination", str(tmp_path)], TYPESCRIPT).split()[-1]
    run(["publint", "--strict", packed], tmp_path)
    run(["attw", "--profile", "esm-only", packed], tmp_path)
    (tmp_path / "all.js").write_text(f'export {{ Client }} from "{TYPESCRIPT}/dist/index.js"')
    run(["esbuild", "--bundle", "--minify", "--format=esm", "--outfile=small.js", "all.js"], tmp_path)
    assert len(gzip.compress((tmp_path / "small.js").read_bytes())) <= CLIENT_BYTES_MAX


def test_the_examples_of_the_go_client_print_what_they_say(url: str) -> None:
    with Client(url) as client:
        for topic in ("go-rides", "go-visits", "go-mails"):
            client.create_topic(topic, partitions=1)
    run(["go", "test", "-race", "-run", "Example", "./..."], ROOT / "clients" / "go", PENSTOCK_URL=url)


@pytest.mark.parametrize("language", ["typescript", "go-fast", "python"])
async def test_the_rate_of_a_producer_in_batches(language: str, tmp_path: Path) -> None:
    """Prints the rates and the load of the machine, which decides them; the log has every record."""
    with running_process(tmp_path) as node, Client(node.url) as client:
        client.create_topic("load", partitions=2)
        async with running(language, node.url) as runner:
            try:
                rates = [await runner.run("load", topic="load", records=RECORDS, bytes=RECORD_BYTES) for _ in range(3)]
            except RunnerError as error:
                pytest.fail(str(error))
        stored = sum(client.find_positions("load", partition)["log_end"] for partition in range(2))
    shown = ", ".join(f"{rate:,.0f}" for rate in rates)
    print(f"{language}: {shown} records/s of {RECORD_BYTES} bytes, at a load of {os.getloadavg()[0]:.1f}")
    assert stored == 3 * RECORDS
