"""Invalid commands are rejected before anything is created."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.__main__ import cannot
from tests.chaos.machines.hosts import ROOT

pytestmark = pytest.mark.skipif(cannot() is not None, reason=str(cannot()))


def test_an_unknown_fault_is_refused_and_the_known_ones_are_named():
    command = [sys.executable, "-m", "tests.chaos", "--faults", "kill,meteor"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 2
    assert "no such fault: meteor; there are kill," in " ".join(ended.stderr.replace("│", " ").split())
