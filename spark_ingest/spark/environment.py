"""Checks before Spark is imported that Java 17 or later and PySpark are installed.

Reads files only: starting `java -version` would double the start time of the command.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from spark_ingest.errors import IngestRefused

JAVA_MAJOR_MIN = 17  # Spark 4 needs it
_INSTALL_JAVA = "install it (Debian: apt-get install openjdk-17-jre-headless), set JAVA_HOME, or use --engine local"
_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def require_spark(environment: Mapping[str, str] = os.environ) -> None:
    """Raises IngestRefused if Java or PySpark is missing or too old."""
    java = find_java(environment)
    if java is None:
        where = f"JAVA_HOME is {environment['JAVA_HOME']}" if environment.get("JAVA_HOME") else "it is not on the PATH"
        missing = f"Spark needs Java {JAVA_MAJOR_MIN} or later, and there is none: {where}"
        raise IngestRefused(missing, hint=_INSTALL_JAVA)
    major = java_major(java)
    if major is not None and major < JAVA_MAJOR_MIN:
        raise IngestRefused(f"Spark needs Java {JAVA_MAJOR_MIN} or later, {java} is {major}", hint=_INSTALL_JAVA)
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise IngestRefused(
            "PySpark or PyArrow is not installed", hint="pip install --find-links dist 'penstock-server[spark]'"
        )


def is_submitted(environment: Mapping[str, str] = os.environ) -> bool:
    """True if spark-submit runs this process: a JVM already runs, and it copies our standard error to its output."""
    return "PYSPARK_GATEWAY_PORT" in environment


def find_java(environment: Mapping[str, str]) -> Path | None:
    """Returns the `java` that Spark's start script uses: from JAVA_HOME, else the first on the PATH."""
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    path = shutil.which("java", path=environment.get("PATH", ""))
    return Path(path) if path else None


def java_major(java: Path) -> int | None:
    """Returns the major version from the `release` file beside it; None without that file, as in some old packages."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return None
    match = _RELEASE_VERSION.search(text)
    return int(match.group(1)) if match else None
