"""The bench of shards against real servers, with tiny counts, and the choice of cores."""

import os
import subprocess
import sys

import pytest

from loadtests.host.pinning import Cores, assign, describe, pin_processes


def test_each_server_process_and_the_generator_have_a_core():
    assert assign([0, 1, 2, 5], 2) == Cores((0, 1), 5)
    assert assign([3, 4], 1) == Cores((3,), 4)
    assert assign([0, 1], 2) is None
    assert describe(None, [0, 1], 2) == (
        "Nothing is pinned: 2 server processes and the generator need 3 cores, and this machine has 2."
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_process_and_its_threads_are_pinned_and_released():
    before = os.sched_getaffinity(0)
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with pin_processes([server.pid], 1) as line:
        assert os.sched_getaffinity(server.pid) == {min(before)}
        assert os.sched_getaffinity(0) == {max(before)}
        assert line == (
            f"Pinned: server processes to core {min(before)}, the generator and all else to core {max(before)}."
        )
    assert os.sched_getaffinity(0) == before
    server.communicate(b"\n")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.e2e
def test_shards_are_measured_beside_one_process(tmp_path):
    options = ["--quick", "--shards", "2", "--pin", "--rounds", "1", "--round-s", "0.05", "--directory", str(tmp_path)]
    command = [sys.executable, "-m", "loadtests.bench.__main__", *options, "--markdown", str(tmp_path / "bench.md")]
    for only, title in (("single", "1 record of 100 B"), ("fetch-batch", "fetch 1 MiB as stored batches")):
        done = subprocess.run([*command, "--only", only], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        text = (tmp_path / "bench.md").read_text()
        assert f"| {title} |" in text
        assert "0 differences." in text
        assert "inned" in text
