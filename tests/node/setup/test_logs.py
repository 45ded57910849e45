"""Logs: what becomes of a line that cannot be written."""

import subprocess
import sys

PROGRAM = """
import logging
from node.setup.logs import set_up_logging
set_up_logging("info")
[handler] = logging.getLogger().handlers
stream = handler.setStream(open("/dev/full", "w"))
logging.getLogger("penstock").warning("lost")
handler.stream = stream
logging.getLogger("penstock").warning("kept")
"""


def test_a_line_that_a_full_disk_does_not_take_is_lost_without_a_traceback():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert "Traceback" not in done.stderr
    assert "Logging error" not in done.stderr
    assert '"message":"kept"' in done.stderr
