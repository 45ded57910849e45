"""`make minio-tests`: the tests of the S3 store and the whole way of a record on a real MinIO server.

Builds MinIO, which no other part of the project uses, with Go's own tools; runs it on the loopback address; then runs
the store contract, uploads in parts, manifests and reads from the store against it, and a node that ships to it, is
destroyed, is restored and is ingested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from node.commands.tier.command import tier
from tests.e2e.lifecycle.test_restore import call, content, is_tiered, produce
from tests.e2e.node_process import running_process
from tests.engine.tiering import servers
from tests.waiting import wait_until

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"  # the last commit of its repository
# MinIO lists an unfinished upload only by its whole key: after a restart an upload begins again (docs/retention.md).
SELECTED = "not moto and not continues_under_its_key"
SUITES = (
    "tests/engine/tiering/test_store_contract.py",
    "tests/engine/tiering/store/test_multipart.py",
    "tests/engine/tiering/manifest/test_chain.py",
    "tests/engine/tiering/reading/test_remote_log.py",
    "tests/engine/tiering/shipping/test_shipper.py",
    "tests/engine/tiering/shipping/test_merging.py",
)


def installed(directory: Path) -> Path:
    """Return the server's program, built if it is not there. Takes minutes."""
    binary = directory / "minio"
    if not binary.exists():
        command = ["go", "install", f"github.com/minio/minio@{VERSION}"]
        subprocess.run(command, env={**os.environ, "GOBIN": str(directory)}, check=True)
    return binary


def pass_through(endpoint: str, directory: Path) -> None:
    """Ship, merge small objects, verify, destroy, restore, and ingest twice."""
    store = f"s3://bucket/way?endpoint={endpoint}"
    settings = {"store": store, "tier_check_ms": 100, "tier_merge_min_age_ms": 0}
    with running_process(directory / "node", shards=2, **settings) as node:
        call(node, "PUT", "", b'{"partitions":2}', **{"Content-Type": "application/json"})
        for number in range(20):
            produce(node, f"key-{number}")
            call(node, "POST", "/roll")
        wait_until(lambda: is_tiered(node))
        wait_until(lambda: all(one["objects"] < 20 for one in call(node, "GET", "/tier")["partitions"]))
        expected = content(node)
        node.kill_all()
    shutil.rmtree(directory / "node" / "data")
    tier.main(["verify", "--store", store, "--deep"], standalone_mode=False)
    tier.main(["restore", "--store", store, "--data-dir", str(directory / "node" / "data")], standalone_mode=False)
    with running_process(directory / "node", **settings) as node:
        assert content(node) == expected
    output = f"s3://bucket/lake?endpoint={endpoint}"
    program = str(Path(sys.executable).with_name("penstock"))
    places = ["--store", store, "--output", output]
    command = [program, "ingest", "run", "--engine", "local", "--topics", "flights", *places]
    for rows in ("10,000 rows", "no new records"):
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        print(ran.stdout)
        assert rows in ran.stdout, ran


def main() -> int:
    os.environ.update(servers.CREDENTIALS)
    cache = Path(os.environ.get("MINIO_DIRECTORY", Path(__file__).parents[2] / "build" / "minio"))
    cache.mkdir(parents=True, exist_ok=True)
    binary = installed(cache)
    with tempfile.TemporaryDirectory() as name, servers.minio(binary, Path(name) / "minio") as endpoint:
        tests = [sys.executable, "-m", "pytest", "-q", "-k", SELECTED, *SUITES]
        code = subprocess.run(tests, env={**os.environ, "MINIO_ENDPOINT": endpoint}).returncode
        if code:
            return code
        servers.make_bucket(endpoint, "bucket")
        pass_through(endpoint, Path(name))
    print("MinIO: the suites passed; a node shipped, was restored with the same records, and was ingested")
    return 0


if __name__ == "__main__":
    sys.exit(main())
