"""One run of ingestion on a standalone cluster of Spark whose executors are killed; then verifies the table.

    make spark-cluster ARGS="--records 10000000 --kills 6"

The cluster has none of our packages: executors get a packed environment by `--archives`. Spark repeats their tasks, so
the one run must end with 0 and each record once. Before it, a run with the bare Python must name what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
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
from tests.spark_ingest.test_rate import value_of
from tests.spark_ingest.tiered import TieredLog, row

PARTITIONS = 4
SEGMENT_RECORDS = 250_000
PAUSE_S = (2.0, 6.0)  # between two kills
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
    """Start a run by spark-submit from the environment of the tests."""
    submit = [str(SPARK_HOME / "bin/spark-submit"), "--master", cluster.master, *options]
    settings = ("spark.task.maxFailures=100", "spark.executor.memory=600m")
    submit += [part for one in settings for part in ("--conf", one)]
    job = [str(ROOT / "spark_ingest/job.py"), "--topics", "flights", "--task-bytes", "32000000", "--json"]
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


class Killer(threading.Thread):
    """Kills an executor that has a Python worker, now and then, until `kills`."""

    def __init__(self, cluster: StandaloneCluster, kills: int) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._kills = kills
        self.killed = 0
        self.ended = threading.Event()

    def run(self) -> None:
        chance = random.Random(2)
        while self.killed < self._kills and not self.ended.wait(chance.uniform(*PAUSE_S)):
            with suppress(psutil.Error):  # one ended meanwhile
                busy = [one for one in self._cluster.executors() if len(one.children(recursive=True)) > 1]
                if busy:
                    chance.choice(busy).kill()
                    self.killed += 1
                    print(f"killed executor {self.killed}", flush=True)


def names_what_is_missing(cluster: StandaloneCluster, place: Path) -> list[str]:
    """Return what is wrong with a run whose workers have no libraries."""
    run = submitted(cluster, place, BARE_PYTHON)
    output, _ = run.communicate(timeout=END_S)
    last = output.splitlines()[-1] if output else ""
    print(f"without the environment: {last}")
    is_right = run.returncode == 2 and "lacks aiokafka" in last and "pyarrow" in last and "Traceback" not in output
    return [] if is_right else [f"the run without libraries ended with {run.returncode}: {output}"]


def main(records: int, kills: int) -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        fill(open_store((place / "store").as_uri()), records)
        pack(place / "env.tgz")
        with standalone_cluster(place) as cluster:
            wrong = names_what_is_missing(cluster, place)
            killer = Killer(cluster, kills)
            started = time.monotonic()
            run = submitted(cluster, place, PACKED_PYTHON, "--archives", f"{place / 'env.tgz'}#environment")
            killer.start()
            output, _ = run.communicate(timeout=END_S)
            seconds = time.monotonic() - started
            killer.ended.set()
            killer.join()
            if run.returncode:
                wrong.append(f"the run ended with {run.returncode}: {output}\n{(place / 'driver.log').read_text()}")
        lost = (place / "driver.log").read_text().count("WARN TaskSetManager: Lost task ")
        wrong += _judged(open_store((place / "out").as_uri()), records) if not wrong else []
        if killer.killed < kills or (kills and not lost):
            wrong.append(f"only {killer.killed} of {kills} kills, and {lost} lost tasks; use more records")
        document = json.loads(output) if not run.returncode else {"files": 0, "topics": {}}
        task_s = sum(one["task_seconds"] for one in document["topics"].values())
    print(
        f"{records:,} records, {document['files']} files, {killer.killed} executors killed, {lost} tasks lost and "
        f"repeated by Spark: {seconds:.0f} s with Spark's start, {task_s:.0f} s in tasks; {wrong or 'each record once'}"
    )
    return 1 if wrong else 0


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
    given = parser.parse_args()
    sys.exit(main(given.records, given.kills))
