"""Faults of a real node, each staged as it happens in operation. Those of a cluster are in staged_cluster_faults.py."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tests import disk_faults
from tests.certificates import Authority
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import until
from tests.e2e.disks.test_scrub import flip
from tests.e2e.node_process import NodeProcess, running_process

Fires = Iterator["Staged"]
DAMAGED, ASIDE = "damaged", "aside"
WITHOUT_CODEC = {**os.environ, "PENSTOCK_CODEC": "python"}


def _nothing() -> None:
    """The fault is there from the start."""


class Staged(NamedTuple):
    """`urls`: of the nodes, the first is asked. `begin` brings about a fault that has to be seen to begin."""

    urls: tuple[str, ...]
    begin: Callable[[], None] = _nothing


def produce(node: NodeProcess, topic: str, count: int = 3) -> None:
    call(f"{node.url}/v1/topics/{topic}", "PUT", {"partitions": 1})
    call(f"{node.url}/v1/topics/{topic}/records", "POST", {"records": [{"value": "x" * 500}] * count})


def stick_group(node: NodeProcess) -> None:
    """Leaves a group with records to read and without a member."""
    produce(node, "read")
    offsets = {"offsets": [{"topic": "read", "partition": 0, "offset": 0}]}
    call(f"{node.url}/v1/groups/idle/offsets", "PUT", offsets)


def damage(node: NodeProcess, data: Path) -> None:
    """Flips a bit of a sealed segment, and lets a consumer read it."""
    produce(node, DAMAGED)
    call(f"{node.url}/v1/topics/{DAMAGED}/roll", "POST")
    (file, *_) = sorted(data.glob(f"topics/{DAMAGED}/*/0/*.log"))
    flip(file, 200)


def remove_metadata(data: Path) -> None:
    for file in data.glob(f"topics/{ASIDE}/**/topic.json"):
        file.rename(file.with_name("elsewhere"))


@contextmanager
def group_without_members(directory: Path) -> Fires:
    with running_process(directory) as node:
        stick_group(node)
        yield Staged((node.url,))


@contextmanager
def flipped_bit(directory: Path) -> Fires:
    with running_process(directory, scrub_interval_ms=100) as node:
        damage(node, directory / "data")
        yield Staged((node.url,))


@contextmanager
def removed_metadata(directory: Path) -> Fires:
    with running_process(directory) as node:
        produce(node, ASIDE)
        node.stop()
    remove_metadata(directory / "data")
    with running_process(directory) as node:
        yield Staged((node.url,))


@contextmanager
def plain_codec(directory: Path) -> Fires:
    with running_process(directory, environment=WITHOUT_CODEC) as node:
        yield Staged((node.url,))


@contextmanager
def full_disk(directory: Path) -> Fires:
    small = disk_faults.small_file_system(directory / "small", 24, disk_faults.make_tmpfs)
    with small as mounted, running_process(directory / "node", data_dir=mounted / "data") as node:
        yield Staged((node.url,))


@contextmanager
def failed_sync(directory: Path) -> Fires:
    with running_process(directory) as node:
        produce(node, "t")
        with injected_errors(node, directory, "fdatasync"):
            until(lambda: _refuses(node))
        yield Staged((node.url,))


def injected_errors(node: NodeProcess, directory: Path, calls: str) -> AbstractContextManager[None]:
    """The disk answers calls at the log of the topic t with EIO."""
    (file,) = (directory / "data" / "topics" / "t").glob("*/0/*.log")
    return disk_faults.injected([node.pid], "error=EIO", calls, ("-o", "/dev/null", "-P", str(file)))


@contextmanager
def failed_reads(directory: Path) -> Fires:
    with running_process(directory) as node:
        produce(node, "t")
        records = f"{node.url}/v1/topics/t/partitions/0/records?from=earliest"

        def read() -> None:
            with injected_errors(node, directory, disk_faults.READS), suppress(OSError):
                call(records)

        yield Staged((node.url,), read)


@contextmanager
def no_free_files(directory: Path) -> Fires:
    """Clients hold many connections while the limit of the process is lowered, as `prlimit` does."""
    with running_process(directory, files_max=256) as node, ExitStack() as clients:
        call(f"{node.url}/v1/topics/many", "PUT", {"partitions": 70})
        records = [{"partition": number, "value": "x"} for number in range(70)]
        call(f"{node.url}/v1/topics/many/records", "POST", {"records": records})
        for _ in range(115):
            clients.enter_context(socket.create_connection(("127.0.0.1", node.port)))
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (220, 256))
        yield Staged((node.url,))


@contextmanager
def old_certificate(directory: Path) -> Fires:
    authority = Authority(directory / "ca")
    issued = authority.issue("node", "IP:127.0.0.1", days=5)
    with (
        patch.dict(os.environ, {"SSL_CERT_FILE": str(authority.ca)}),  # urllib, Prometheus and `penstock` read it
        running_process(directory, tls_cert=issued.cert, tls_key=issued.key) as node,
    ):
        yield Staged((node.url,))


@contextmanager
def unmounted_store(directory: Path) -> Fires:
    store = directory / "store"
    disk_faults.make_tmpfs(store, 24)
    with ExitStack() as mounted:
        unmount = mounted.enter_context(ExitStack())
        unmount.callback(subprocess.run, ["umount", "-l", str(store)], check=True, timeout=60)
        with running_process(directory, store=store.as_uri()) as node:
            produce(node, "t")
            call(f"{node.url}/v1/topics/t/roll", "POST")
            until(lambda: call(f"{node.url}/v1/topics/t/tier")["partitions"][0]["tiered_end"] == 3)

            def take_away() -> None:
                unmount.close()
                produce(node, "t")
                call(f"{node.url}/v1/topics/t/roll", "POST")

            yield Staged((node.url,), take_away)


class _Refusing(BaseHTTPRequestHandler):
    """A receiver of webhooks that answers 500."""

    def do_OPTIONS(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(500)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("WebHook-Allowed-Origin", "*")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keeps quiet."""


@contextmanager
def _refused_push(directory: Path, **delivery: object) -> Fires:
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        with running_process(directory, push_targets="127.0.0.0/8", push_http=True) as node:
            produce(node, "t")
            call(f"{node.url}/v1/topics/dead", "PUT", {})
            hook = f"http://127.0.0.1:{receiver.server_port}/hook"
            request = {
                "url": hook,
                "topics": ["t"],
                "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
                "start": "earliest",
                "delivery": {"backoff_ms_min": 100, "backoff_ms_max": 500, **delivery},
            }
            yield Staged((node.url,), lambda: call(f"{node.url}/v1/subscriptions/hook", "PUT", request))
    finally:
        receiver.shutdown()
        receiver.server_close()


def refused_push(directory: Path) -> AbstractContextManager[Staged]:
    return _refused_push(directory)


def dead_letters(directory: Path) -> AbstractContextManager[Staged]:
    return _refused_push(directory, dead_letter_topic="dead", deliveries_max=1)


def _refuses(node: NodeProcess) -> bool:
    try:
        produce(node, "t")
    except OSError:
        return True
    return False


class Fault(NamedTuple):
    """`says`: words of the finding. `topic`: `topic explain` names it too. `also`: findings that follow from the fault.

    `pages`: the alerts that may wake people.
    """

    stage: Callable[[Path], AbstractContextManager[Staged]]
    code: str
    says: str
    pages: frozenset[str] = frozenset()
    topic: str = ""
    is_of_group: bool = False
    also: frozenset[str] = frozenset()
    alert: str = ""

    @property
    def name_of_alert(self) -> str:
        return self.alert or self.code.title().replace("_", "")


FAULTS = (
    Fault(group_without_members, "group_stuck", "no member reads", is_of_group=True),
    Fault(flipped_bit, "records_damaged", "damaged records", frozenset({"RecordsDamaged"}), DAMAGED),
    Fault(removed_metadata, "topics_set_aside", "topic.json is missing", frozenset({"TopicsSetAside"})),
    Fault(plain_codec, "plain_codec", "plain Python"),
    Fault(full_disk, "disk_full", "GiB are free", frozenset({"DiskFull"})),
    Fault(failed_sync, "replica_offline", "offline", frozenset({"ReplicaOffline"}), "t"),
    Fault(failed_reads, "reads_fail", "Input/output error", topic="t"),
    Fault(no_free_files, "files_near_limit", "of the files", alert="FilesNearLimit"),
    Fault(old_certificate, "certificate_expires", "expires in"),
    Fault(unmounted_store, "tier_behind", "is not uploaded", topic="t"),
    Fault(refused_push, "push_fails", "answered 500", is_of_group=True),
    Fault(dead_letters, "dead_letters", "became dead letters", is_of_group=True),
)
