"""Links are cut silently and in the requested direction; nothing is left behind, however a harness ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.machines.leftovers import Registry, processes_in, registry, remove_of_the_dead
from tests.chaos.machines.namespaces import Network, why_not

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.xdist_group("namespaces"),  # the same group as tests/chaos/test_chaos.py
]

ROOT = Path(__file__).parents[3]
PORT = 4000
SEND = f"""
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.sendto(b"x", (sys.argv[1], {PORT}))
"""
HEAR = f"""
import socket, sys
hearer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
hearer.bind(("0.0.0.0", {PORT}))
print("listening", flush=True)
while True:
    print("from", hearer.recvfrom(10)[1][0], flush=True)
"""
# A harness that creates a network with a process in it, then waits to be killed.
HARNESS = """
import subprocess, sys, time
from pathlib import Path
from tests.chaos.machines.leftovers import registry
from tests.chaos.machines.namespaces import Network
with registry(Path(sys.argv[1])) as own:
    network = Network(["a"], own)
    subprocess.Popen(network.command("a", ["sleep", "600"]), start_new_session=True)
    print(network.namespace("a"), flush=True)
    time.sleep(600)
"""


class Hearer:
    """A process on host b that reports the senders whose packets arrive."""

    def __init__(self, network: Network) -> None:
        self._network = network
        command = network.command("b", [sys.executable, "-c", HEAR])
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._line() == "listening"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def hears_next(self, *senders: str) -> str:
        """Return the first of these senders whose packet arrives; they send one after the other."""
        for sender in senders:
            code = subprocess.run(
                self._network.command(sender, [sys.executable, "-c", SEND, self._network.address("b")]), timeout=30
            ).returncode
            assert code == 0, "the sender gets no error for a dropped packet"
        return self._line().removeprefix("from ")


def test_a_cut_swallows_what_is_sent_one_way_and_only_that_way(tmp_path):
    with registry(tmp_path) as own_registry:
        network = Network(["a", "b", "c"], own_registry)
        address = network.address
        hearer = Hearer(network)
        assert hearer.hears_next("a") == address("a")
        network.cut("b", "a")
        assert hearer.hears_next("a") == address("a"), "the other way is open"
        network.cut("a", "b")
        assert hearer.hears_next("a", "c") == address("c"), "and others are not concerned"
        network.heal_all()
        assert hearer.hears_next("a") == address("a")
        network.isolate("b", but=["c"])
        assert repr(network) == "Network(a/b/c: a>b, b>a)"


def namespaces() -> set[str]:
    return {path.name for path in Path("/run/netns").glob("*")}


def test_all_is_gone_after_an_error(tmp_path):
    before = namespaces()

    def fail() -> None:
        with registry(tmp_path) as own_registry:
            Network(["a"], own_registry)
            assert len(namespaces() - before) >= 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not {name for name in namespaces() if f"-{os.getpid()}-" in name}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_what_a_dead_harness_has_left_is_removed(ending, tmp_path):
    command = [sys.executable, "-c", HARNESS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, text=True) as harness:
        assert harness.stdout is not None
        try:
            namespace = harness.stdout.readline().strip()
            # the process is started by then, and enters its namespace a little later
            while not processes_in(namespace):
                time.sleep(0.01)
            assert remove_of_the_dead(tmp_path) == [], "a harness that lives is left alone"
            assert namespace in namespaces()
            harness.send_signal(ending)
            harness.wait(60)
        finally:
            harness.kill()
    if ending == signal.SIGKILL:
        assert namespace in namespaces(), "the namespace is still there to be removed"
        assert remove_of_the_dead(tmp_path) == [str(harness.pid)]
    assert namespace not in namespaces()
    assert processes_in(namespace) == []


def test_mounts_and_directories_go_too(tmp_path):
    mounted, directory = tmp_path / "mounted", tmp_path / "directory"
    mounted.mkdir(), directory.mkdir()
    with registry(tmp_path / "registry") as own_registry:
        assert isinstance(own_registry, Registry)
        own_registry.note("directory", str(directory))
        own_registry.note("mount", str(mounted))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(mounted)], check=True)
        assert os.path.ismount(mounted)
    assert not os.path.ismount(mounted)
    assert not directory.exists()
