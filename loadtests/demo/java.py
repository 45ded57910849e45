"""Checks that Java is installed: without it Spark fails after a minute with a long trace.

`python -m loadtests.demo.java` needs the standard library only, so `make demo` runs it before it installs Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from loadtests.demo import DemoFailed

JAVA_MIN = 17
_ADVICE = f"install Java {JAVA_MIN} (Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless) or set JAVA_HOME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require_java() -> None:
    """Raises DemoFailed unless the Java that Spark uses is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, which holds none" if home else "there is none"
        raise DemoFailed(f"Spark needs Java and {where}: {_ADVICE}")
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=300).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise DemoFailed(f"Spark needs Java and {java} does not run ({error}): {_ADVICE}") from error
    version = _VERSION.search(printed)
    if version is not None and int(version[1]) < JAVA_MIN:
        raise DemoFailed(f"Spark needs Java {JAVA_MIN} or newer and {java} is {version[1]}: {_ADVICE}")


if __name__ == "__main__":
    try:
        require_java()
    except DemoFailed as failure:
        sys.exit(f"demo: {failure}")
