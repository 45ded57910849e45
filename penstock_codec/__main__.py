"""`python -m penstock_codec`: one line that says which codec runs and, without the compiled one, what it lacks."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import penstock_codec


def missing() -> list[str]:
    """Returns what compiling needs and this machine does not have."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    lacks = [] if shutil.which(compiler) or shutil.which("cc") else [f"a C compiler ({compiler})"]
    return lacks if headers.exists() else [*lacks, f"Python's headers ({headers})"]


def line() -> str:
    """Returns the line."""
    if penstock_codec.native is not None:
        return f"codec: compiled ({penstock_codec.native.__file__})"  # type: ignore[attr-defined]
    lacks = missing()
    advice = (
        f"; {' and '.join(lacks)} missing: on Debian apt-get install gcc python3-dev, then make setup" if lacks else ""
    )
    return f"codec: plain Python, which takes several times the processor time: {penstock_codec.why_not}{advice}"


if __name__ == "__main__":
    print(line())  # noqa: T201
