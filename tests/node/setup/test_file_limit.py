"""The limit of open files is raised, and divided so that log, connections and the rest fit into it."""

import json
import resource
import subprocess
import sys
from functools import partial

import pytest

from gateway.settings import NodeSettings
from node.setup.file_limit import OTHERS_MIN, FileShares, file_shares
from tests.e2e.node_process import limit_files, serve_command

DEFAULTS = NodeSettings()


@pytest.mark.parametrize(
    ("files_max", "ports", "shares"),
    [
        (128, 1, FileShares(32, 32)),
        (1024, 1, FileShares(256, 512)),
        (1024, 2, FileShares(256, 256)),
        (4096, 1, FileShares(1024, 2560)),
        (1 << 20, 2, FileShares(4096, 16_384)),
        (resource.RLIM_INFINITY, 2, FileShares(4096, 16_384)),
    ],
)
def test_shares_fit_into_the_limit(files_max, ports, shares):
    assert file_shares(files_max, DEFAULTS, ports) == shares
    if files_max != resource.RLIM_INFINITY:
        assert shares.log_files + ports * shares.connections + OTHERS_MIN <= files_max


def test_settings_lower_a_share_and_never_raise_it():
    assert file_shares(1024, NodeSettings(log_files_max=16, connections_max=20)) == FileShares(16, 20)


def test_the_soft_limit_is_raised_to_the_hard_one_and_inherited():
    """In a separate process, since the limit cannot be restored."""
    script = """
import json, resource, subprocess, sys
from node.setup.file_limit import within_file_limit
from gateway.settings import NodeSettings
settings = within_file_limit(NodeSettings())
child = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
inherited = int(subprocess.run([sys.executable, "-c", child], capture_output=True, check=True).stdout)
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), settings.connections_max, inherited]))
"""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 1024))  # noqa: E731
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, preexec_fn=limit)
    assert json.loads(ran.stdout) == [[1024, 1024], 512, 1024]


def test_a_limit_that_is_too_low_is_refused_in_one_line(tmp_path):
    command = serve_command({"port": 0, "data_dir": tmp_path / "data"})
    ran = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=partial(limit_files, 100))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("penstock: only 100 files may be open; allow at least 128")
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
