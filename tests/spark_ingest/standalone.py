"""A standalone cluster of Spark on this machine: a master and workers as processes of their own, without our packages.

Their environment has the system's PATH only, so their `python3` is not that of the tests. Executors get no PYTHONPATH.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
_START_S = 120
_EXECUTOR = "CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """The address of the master, and the workers' processes."""

    def __init__(self, master: str, workers: list[psutil.Process]) -> None:
        self.master = master
        self._workers = workers

    def executors(self) -> dict[str, psutil.Process]:
        """Return the JVMs of the executors that run now, by their id in the application."""
        processes = [one for worker in self._workers for one in worker.children()]
        commands = [(one.cmdline(), one) for one in processes]
        return {line[line.index("--executor-id") + 1]: one for line, one in commands if _EXECUTOR in " ".join(line)}


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[StandaloneCluster]:
    """Start a master and workers with a core each; end them and their executors."""
    with ExitStack() as stack:
        log = directory / "master.log"
        stack.enter_context(_started(log, "master.Master"))
        master = _awaited(log, r"Starting Spark master at (spark://\S+)")
        found = []
        for at in range(workers):
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{at}"), master]
            found.append(stack.enter_context(_started(directory / f"worker-{at}.log", "worker.Worker", *options)))
        for at in range(workers):
            _awaited(directory / f"worker-{at}.log", r"(Successfully registered) with master")
        yield StandaloneCluster(master, [psutil.Process(one.pid) for one in found])


@contextmanager
def _started(log: Path, name: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    environment = {
        **{key: os.environ[key] for key in ("HOME", "JAVA_HOME") if key in os.environ},
        "PATH": "/usr/bin:/bin",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.deploy.maxExecutorRetries=-1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *ports, *options], env=environment, cwd=log.parent, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for one in below:  # executors outlive a killed worker for a moment
            if one.is_running():
                one.kill()


def _awaited(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _START_S
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    return found[1]
