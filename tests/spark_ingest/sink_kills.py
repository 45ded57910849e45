"""Copies a topic to another one by a Spark stream whose drivers, executors and Python workers are killed; then counts.

    make sink-kills ARGS="--kills 20 --minutes 5 --seed 1"

The source is a store of the test, the target a real node. The query runs on `local-cluster`: a master and two executors
as processes of their own. Executors and workers outlive a killed driver for a moment, and may still send rows then.
Each driver ends by a kill or with everything read. The judge wants each record once in the target.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
from pyspark.sql import SparkSession

from engine.tiering.store.store import open_store
from penstock.sync import Client
from penstock.testing import running_node
from spark_ingest.data_source import PenstockDataSource
from spark_ingest.spark.context import open_context
from tests.spark_ingest.tiered import TieredLog, json_rows

ROUND_RECORDS = 40_000
PAUSE_S = (0.3, 4)  # between two kills
END_S = 300  # for the rest after the last kill
MASTER = "local-cluster[2,1,1024]"
SETTINGS = {
    "spark.task.maxFailures": 100,  # a killed worker is a failure of its task
    "spark.deploy.maxExecutorRetries": -1,
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
DRIVER, EXECUTOR, WORKER = "driver", "executor", "python worker"


def copy(store: str, url: str, checkpoint: str) -> None:
    """Run the query until it has read everything that is in the store."""
    spark = SparkSession(open_context(MASTER))
    spark.dataSource.register(PenstockDataSource)
    source = spark.readStream.format("penstock").option("store", store).option("topic", "flights")
    frame = source.options(schema="id BIGINT", maxRecordsPerBatch=2000, partitionBytes=20_000).load()
    target = frame.selectExpr("id", "cast(id % 10 AS string) AS key")
    writer = target.writeStream.format("penstock").options(url=url, topic="copies", requestBytes=5000)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


class Drivers:
    """Starts one driver after another, and kills processes of them until there were enough kills or the time is over.

    `home` is for Spark's files; `kill_all` ends what is left. Only processes below a driver of this object are killed.
    """

    def __init__(self, home: Path, kills: int, minutes: float, chance: random.Random) -> None:
        self.killed: Counter[str] = Counter()
        self.lives = 0
        self._home = home
        self._kills = kills
        self._kills_end = time.monotonic() + minutes * 60
        self._chance = chance
        self._seen: set[psutil.Process] = set()
        home.mkdir()
        for one in Path(pyspark.__file__).parent.iterdir():  # executors work in SPARK_HOME/work
            (home / one.name).symlink_to(one)

    @property
    def is_killing(self) -> bool:
        return self.killed.total() < self._kills and time.monotonic() < self._kills_end

    def run(self, *arguments: str) -> bool:
        """Run a driver to its end. Returns whether it has read everything."""
        self.lives += 1
        settings = " ".join(f'--conf "{name}={value}"' for name, value in SETTINGS.items())
        environment = os.environ | {"SPARK_HOME": str(self._home), "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
        command = [sys.executable, "-m", "tests.spark_ingest.sink_kills", "--copy", *arguments]
        output = self._home / f"output-{self.lives}"
        kills_before = self.killed[DRIVER]
        with (
            output.open("wb") as out,
            subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True) as driver,
        ):
            try:
                self._disturb(psutil.Process(driver.pid))
            except BaseException:
                self.kill_all()  # Popen waits for its end
                raise
        if driver.returncode and self.killed[DRIVER] == kills_before:
            print(f"driver {self.lives} failed: {output.read_text(errors='replace')[-3000:]}", flush=True)
        return driver.returncode == 0

    def kill_all(self) -> None:
        for one in self._seen:
            if one.is_running():
                one.kill()

    def _disturb(self, driver: psutil.Process) -> None:
        next_kill = 0.0
        while driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.2)
            found = _found(driver)
            self._seen.update(*found.values())
            if time.monotonic() > self._kills_end + END_S:
                raise TimeoutError(f"not at the end {END_S} s after the last kill")
            if not found[WORKER]:
                next_kill = time.monotonic() + self._chance.uniform(*PAUSE_S)
            elif self.is_killing and time.monotonic() > next_kill:
                self._kill(found)
                next_kill = time.monotonic() + self._chance.uniform(*PAUSE_S)

    def _kill(self, found: dict[str, list[psutil.Process]]) -> None:
        kind = self._chance.choice((DRIVER, EXECUTOR, EXECUTOR, WORKER, WORKER))
        for one in found[DRIVER] if kind == DRIVER else [self._chance.choice(found[kind])]:
            one.kill()
        self.killed[kind] += 1
        print(f"killed: {dict(self.killed)}", flush=True)


def _found(driver: psutil.Process) -> dict[str, list[psutil.Process]]:
    """Return the processes of a driver: it with its JVM, the executors, and the Python processes of executors."""
    found: dict[str, list[psutil.Process]] = {DRIVER: [driver], EXECUTOR: [], WORKER: []}
    with suppress(psutil.Error):  # a process ended meanwhile
        found[DRIVER] += driver.children()
        for one in driver.children(recursive=True):
            if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()):
                found[EXECUTOR].append(one)
                found[WORKER] += one.children(recursive=True)
    return found


def judge(url: str, records: int) -> list[str]:
    """Return what is wrong with the target."""
    with Client(url) as client, client.consume("copies", follow=False) as consumer:
        counts = Counter(one.json()["id"] for one in consumer)
    repeated = [one for one, count in counts.items() if count > 1]
    missing = [one for one in range(records) if one not in counts]
    found = {"repeated": repeated, "missing": missing}
    return [f"{what}: {len(ones)}, such as {ones[:5]}" for what, ones in found.items() if ones]


def main(kills: int, minutes: float, seed: int) -> int:
    records = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that `finally` ends the processes
    with running_node() as url, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        with Client(url) as client:
            client.create_topic("copies", partitions=3)
        log = TieredLog(open_store(Path(place, "store").as_uri()), batch_records=100)
        drivers = Drivers(Path(place, "spark"), kills, minutes, random.Random(seed))
        try:
            while drivers.is_killing or not records:
                for partition in range(2):
                    log.add(partition, json_rows(ROUND_RECORDS // 2, first=records))
                    records += ROUND_RECORDS // 2
                while not drivers.run(log.store.url, url, str(Path(place, "checkpoint"))):
                    with Client(url) as client:
                        client.describe_topic("copies")  # without the node no driver comes to an end
        finally:
            drivers.kill_all()
        wrong = judge(url, records)
    what = f"{records} records, {drivers.killed.total()} kills {dict(drivers.killed)}, {drivers.lives} drivers"
    print(f"{what}: {wrong or 'each record once'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--copy", nargs=3)
    given = parser.parse_args()
    sys.exit(copy(*given.copy) if given.copy else main(given.kills, given.minutes, given.seed))
