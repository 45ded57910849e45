"""Says which codec runs and, without the compiled one, why and what this machine lacks to compile it."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import penstock_codec

REMEDY = "on Debian apt-get install gcc python3-dev, then make setup"
COST = "about 25 times the processor time for records"  # the median of the ratios of make codec-bench


def line() -> str:
    """Returns one line: which codec runs and, if it is plain Python, why, what that costs and what to do."""
    reason = lack()
    if not reason:
        return "codec: compiled"
    advice = f": {REMEDY}" if missing() else ""
    return f"codec: plain Python, at {COST}: {reason}{advice}"


def lack() -> str:
    """Returns why the compiled codec does not run; empty if it does."""
    if penstock_codec.native is not None:
        return ""
    lacks = missing()
    return f"{penstock_codec.why_not}; {' and '.join(lacks)} missing" if lacks else penstock_codec.why_not


def missing() -> list[str]:
    """Returns what compiling needs and this machine does not have; nothing if plain Python is chosen."""
    if penstock_codec.why_not == penstock_codec.CHOSEN:
        return []
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    lacks = [] if shutil.which(compiler) else [f"a C compiler ({compiler})"]
    return lacks if headers.exists() else [*lacks, f"Python's headers ({headers})"]
