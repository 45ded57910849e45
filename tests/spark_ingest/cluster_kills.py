"""One run of ingestion on a standalone cluster of Spark whose executors are killed; then verifies the table.

    make spark-cluster ARGS="--records 10000000 --kills 6"

The cluster has none of our packages: executors get a packed environment by `--archives`. An executor is killed while it
has an active task whose Python works. Spark must repeat the task in the same run, by its event log, and the one run
must end with 0 and each record once. Before it, a run with the bare Python must name what is missing.

`--planted` counts kills without making them: the judge must then fail.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import psutil

from engine.format.batch import Codec
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.protocol.history import History
from spark_ingest.protocol.verify import verify
from spark_ingest.protocol.verify_deep import verify_deep
from spark_ingest.spark.context import ROOT
from spark_ingest.spark.packing import pack
from tests.spark_ingest.standalone import SPARK_HOME, StandaloneCluster, standalone_cluster
from tests.spark_ingest.task_attempts import AttemptLog, executors_with_tasks, problems_of, read_attempts
from tests.spark_ingest.test_rate import value_of
from tests.spark_ingest.tiered import TieredLog, row

PARTITIONS = 4
SEGMENT_RECORDS = 250_000
POLL_S = 0.05
WORK_S = (0.05, 0.3)  # CPU time of the Python worker in a task before the kill
END_S = 3600
BARE_PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
PACKED_PYTHON = "./environment/bin/python"


def fill(store: ObjectStore, records: int) -> None:
    chance = random.Random(1)
    log = TieredLog(store, batch_records=1000, codec=Codec.ZSTD)
    for at, first in enumerate(range(0, records, SEGMENT_RECORDS)):
        ids = range(first, min(first + SEGMENT_RECORDS, records))
        log.add(at % PARTITIONS, [row(value_of(one, chance), one, key=b"k%d" % (one % 1000)) for one in ids])


def submitted(cluster: StandaloneCluster, place: Path, python: str, *options: str) -> subprocess.Popen[str]:
    """Start a run by spark-submit from the environment of the tests. `options` are `--archives` and `--conf`."""
    submit = [str(SPARK_HOME / "bin/spark-submit"), "--master", cluster.master, *options]
    submit += _configured("spark.task.maxFailures=100", "spark.executor.memory=600m")
    job = [str(ROOT / "spark_ingest/job.py"), "--topics", "flights", "--task-bytes", "8000000", "--json"]
    places = ["--store", (place / "store").as_uri(), "--output", (place / "out").as_uri()]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": python,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (place / "driver.log").open("wb") as log:
        return subprocess.Popen(
            [*submit, *job, *places], env=environment, cwd=place, stdout=subprocess.PIPE, stderr=log, text=True
        )


def _configured(*settings: str) -> list[str]:
    return [part for one in settings for part in ("--conf", one)]


class Killer(threading.Thread):
    """Kills an executor in the middle of a task, again and again, until `kills`.

    An executor is due if the driver has it with an active task, and if its Python worker has used some CPU time since
    the task was first seen. The task thus has lost work.
    """

    def __init__(self, cluster: StandaloneCluster, ui_port: int, kills: int, is_planted: bool) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._ui_port = ui_port
        self._kills = kills
        self._is_planted = is_planted
        self.killed: list[str] = []
        self.ended = threading.Event()

    def run(self) -> None:
        chance, started = random.Random(2), dict[str, float]()
        work_s = chance.uniform(*WORK_S)
        while len(self.killed) < self._kills and not self.ended.wait(POLL_S):
            with suppress(OSError, ValueError, HTTPException, psutil.Error):  # no driver, or an executor that ended
                active = executors_with_tasks(self._ui_port)
                started = {name: cpu_s for name, cpu_s in started.items() if name in active}
                for name, executor in self._cluster.executors().items():
                    if name in active and name not in self.killed:
                        cpu_s = _python_cpu_s(executor)
                        if cpu_s - started.setdefault(name, cpu_s) > work_s:
                            self._kill(name, executor)
                            work_s = chance.uniform(*WORK_S)
                            break

    def _kill(self, name: str, executor: psutil.Process) -> None:
        if not self._is_planted:
            executor.kill()
        self.killed.append(name)
        print(f"killed executor {name}", flush=True)


def _python_cpu_s(executor: psutil.Process) -> float:
    workers = [one for one in executor.children(recursive=True) if "python" in one.name()]
    return float(sum(one.cpu_times().user for one in workers))


def names_what_is_missing(cluster: StandaloneCluster, place: Path) -> list[str]:
    """Return what is wrong with a run whose workers have no libraries."""
    run = submitted(cluster, place, BARE_PYTHON)
    output, _ = run.communicate(timeout=END_S)
    last = output.splitlines()[-1] if output else ""
    print(f"without the environment: {last}")
    is_right = run.returncode == 2 and "lacks boto3" in last and "pyarrow" in last and "Traceback" not in output
    return [] if is_right else [f"the run without libraries ended with {run.returncode}: {output}"]


def main(records: int, kills: int, is_planted: bool) -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        fill(open_store((place / "store").as_uri()), records)
        pack(place / "env.tgz")
        with standalone_cluster(place) as cluster:
            wrong = names_what_is_missing(cluster, place)
            ui_port = _free_port()
            killer = Killer(cluster, ui_port, kills, is_planted)
            started = time.monotonic()
            run = submitted(cluster, place, PACKED_PYTHON, *_observed(place, ui_port))
            killer.start()
            output, _ = run.communicate(timeout=END_S)
            seconds = time.monotonic() - started
            killer.ended.set()
            killer.join()
        if run.returncode:
            wrong.append(f"the run ended with {run.returncode}: {output}\n{(place / 'driver.log').read_text()}")
        log = _attempts(place)
        wrong += problems_of(log, killer.killed)
        wrong += _judged(open_store((place / "out").as_uri()), records) if not run.returncode else []
        if len(killer.killed) < kills:
            wrong.append(f"only {len(killer.killed)} of {kills} kills; use more records")
        for one in log.attempts:
            print(f"task {one.task[1]}, attempt {one.number}, executor {one.executor}: {one.seconds:.1f} s, {one.end}")
        print(f"{records:,} records, {seconds:.0f} s with Spark's start")
        print(f"{len(killer.killed)} executors killed, {len(log.lost())} attempts lost, {log.applications} application")
        print(wrong or "Spark repeated each lost task, each record is in the table once", flush=True)
    return 1 if wrong else 0


def _observed(place: Path, ui_port: int) -> list[str]:
    """Return the options of a run on the packed environment, with an event log and a UI."""
    (place / "events").mkdir()
    log = ("spark.eventLog.enabled=true", "spark.eventLog.rolling.enabled=false", "spark.eventLog.compress=false")
    settings = [f"spark.eventLog.dir={(place / 'events').as_uri()}", *log]
    settings += ["spark.ui.enabled=true", f"spark.ui.port={ui_port}", "spark.ui.liveUpdate.period=0"]
    return ["--archives", f"{place / 'env.tgz'}#environment", *_configured(*settings)]


def _attempts(place: Path) -> AttemptLog:
    logs = [one.read_text() for one in (place / "events").iterdir() if not one.name.startswith(".")]
    return read_attempts(line for one in logs for line in one.splitlines())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _judged(output: ObjectStore, records: int) -> list[str]:
    head = History(output, "default").head()
    findings, commits = verify(output, "default")
    wrong = [*findings.problems, *verify_deep(output, commits)]
    if findings.rows != records or head is None:
        wrong.append(f"{findings.rows:,} rows of {records:,} records")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--planted", action="store_true", help="count kills without making them")
    given = parser.parse_args()
    sys.exit(main(given.records, given.kills, given.planted))
