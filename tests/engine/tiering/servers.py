"""S3 servers for the tests: ministack and moto as real processes on a free port of this machine.

Started once per test process, at first use. They use HTTP like any S3 server; the credentials are made up.
"""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from loadtests.cluster.zookeeper import reserve_port

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "penstock-test",
    "AWS_SECRET_ACCESS_KEY": "penstock-test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_START_SECONDS = 300
# moto checks for an object and writes it in two steps, so two writers with `If-None-Match: *` may both succeed. S3
# allows one.
_MOTO = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import main
lock, put = threading.Lock(), S3Response.put_object
def put_alone(self):
    with lock:
        return put(self)
S3Response.put_object = put_alone
main(sys.argv[1:])
"""


@contextmanager
def ministack(directory: Path) -> Iterator[str]:
    """Run it; return its endpoint. Its objects are in `directory`, which outlives the process."""
    with closing(reserve_port()) as reserved:
        port = reserved.getsockname()[1]
        settings = {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "SERVICES": "s3",
            "S3_PERSIST": "1",
            "PERSIST_STATE": "1",
            "S3_DATA_DIR": str(directory / "s3"),
            "STATE_DIR": str(directory / "state"),
            "LOG_LEVEL": "WARNING",
        }
        with _running([sys.executable, "-m", "ministack.app"], port, directory, settings) as endpoint:
            yield endpoint


@contextmanager
def moto(directory: Path) -> Iterator[str]:
    """Run it; return its endpoint. Its objects are in its memory."""
    with closing(reserve_port()) as reserved:
        port = reserved.getsockname()[1]
        command = [sys.executable, "-c", _MOTO, "-H", "127.0.0.1", "-p", str(port)]
        with _running(command, port, directory, {}) as endpoint:
            yield endpoint


@contextmanager
def minio(binary: Path, directory: Path) -> Iterator[str]:
    """Run it; return its endpoint."""
    with closing(reserve_port()) as reserved:
        port = reserved.getsockname()[1]
        settings = {
            "MINIO_ROOT_USER": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "MINIO_ROOT_PASSWORD": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            "MINIO_BROWSER": "off",
        }
        command = [str(binary), "server", "--address", f"127.0.0.1:{port}", str(directory / "objects")]
        with _running(command, port, directory, settings) as endpoint:
            yield endpoint


def make_bucket(endpoint: str, bucket: str) -> None:
    """Make a bucket, unless this account has it."""
    import boto3.session

    session = boto3.session.Session(
        CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"], region_name="us-east-1"
    )
    client = session.client("s3", endpoint_url=endpoint)
    with suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=bucket)


@contextmanager
def _running(command: list[str], port: int, directory: Path, settings: dict[str, str]) -> Iterator[str]:
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **CREDENTIALS, **settings}, stdout=output, stderr=output, cwd=directory
        )
    try:
        _wait_until_it_answers(process, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"no answer in {_START_SECONDS} s: {log.read_text(errors='replace')[-2000:]}")
