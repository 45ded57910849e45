"""Starts Spark for the job: quiet, on loopback, with this interpreter; or takes what spark-submit has set up.

Only a SparkContext: the job schedules tasks and needs no SQL. Whatever spark-submit or the user's configuration has
set is left alone.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from spark_ingest.spark.environment import is_submitted

LOCAL_MASTER = "local[*]"
ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("engine", "spark_ingest")

# The JVM only schedules: the short way through its compiler and a plain collector halve the time until it is ready.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEFAULTS = {
    "spark.app.name": "penstock ingest",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
}
_LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Both levels, because Spark sets the root's to that of its own packages, with a remark if they differ.
_QUIET_LOGGING = """\
rootLogger.level = error
logger.spark.name = org.apache
logger.spark.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{short}
"""
_JVM_CHATTER = (b"WARNING: Using incubator modules: ",)


def open_context(master: str | None) -> Any:
    """A SparkContext. `master` wins over spark-submit's; without either it is this machine with all its cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take whatever `python3` is on the PATH
    from pyspark import SparkConf, SparkContext

    if is_submitted():
        SparkContext._ensure_initialized()  # before that, SparkConf does not see what spark-submit was given
    conf = SparkConf()
    if is_submitted():
        conf.setIfMissing("spark.log.level", "WARN")
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", LOCAL_MASTER)
    is_local = conf.get("spark.master", "").startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in (_DEFAULTS | (_LOCAL_DEFAULTS if is_local else {})).items():
        conf.setIfMissing(name, value)
    conf.set("spark.executorEnv.PYTHONPATH", _with_root(conf.get("spark.executorEnv.PYTHONPATH", "")))
    context = SparkContext.getOrCreate(conf) if is_submitted() else _started(conf)
    if not is_local:
        context.addPyFile(_zipped_code())
    return context


def _with_root(path: str) -> str:
    """A Python path by which workers find this very code, installed or not."""
    return os.pathsep.join(filter(None, [str(ROOT), path]))


def _started(conf: Any) -> Any:
    """A context in a JVM of our own, whose standard error goes through us."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    _quieten_the_start()
    os.environ["PYTHONPATH"] = _with_root(os.environ.get("PYTHONPATH", ""))  # for data sources, which Spark plans apart
    gateway = launch_gateway(conf, {"stderr": subprocess.PIPE})
    threading.Thread(target=_relay, args=(gateway.proc.stderr,), daemon=True).start()
    return SparkContext(gateway=gateway, conf=conf)


def _relay(lines: IO[bytes]) -> None:
    """Pass on what the JVM and its workers say, but for what is no news to anybody."""
    for line in lines:
        if not line.startswith(_JVM_CHATTER):
            sys.stderr.buffer.write(line)
            sys.stderr.flush()


def local_cores(master: str) -> int | None:
    """The cores of a `local` master, without starting it; None for any other."""
    text = master.removeprefix("local").strip("[]").split(",")[0]
    if not master.startswith("local") or master.startswith("local-"):
        return None
    return os.cpu_count() or 1 if text == "*" else int(text or 1)


def _quieten_the_start() -> None:
    """Until a context exists only a logging configuration file can keep Spark quiet; the user's own wins."""
    if "SPARK_CONF_DIR" in os.environ or "SPARK_HOME" in os.environ or not find_spec("pyspark"):
        return
    directory = Path(tempfile.gettempdir(), f"penstock-spark-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        return  # somebody else's: better loud than led
    (directory / "log4j2.properties").write_text(_QUIET_LOGGING)
    os.environ["SPARK_CONF_DIR"] = str(directory)


def _zipped_code() -> str:
    """Our packages as a file for executors on other machines; the libraries must be installed there.

    They fetch it from this process whenever one starts, so it stays until this process ends.
    """
    target = Path(tempfile.mkdtemp(prefix="penstock-"), "penstock.zip")
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    return str(target)
