"""The processes that serve no HTTP start without the code that does: half of the processor time of a start."""

import subprocess
import sys

import pytest

LOADED = "import sys, {}; print(*{{name.partition('.')[0] for name in sys.modules}})"


@pytest.mark.parametrize(
    "modules",
    ["node.commands.serve", "node.processes.supervisor, node.processes.worker_process"],
    ids=["serve", "both"],
)
def test_what_serves_no_http_does_not_import_it(modules):
    done = subprocess.run([sys.executable, "-c", LOADED.format(modules)], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "boto3", "httptools", "pyspark"} & set(done.stdout.split())
