"""Starts a SparkContext for the job, on loopback and with this interpreter, or uses the one of spark-submit.

The job needs no SQL. Settings of spark-submit and of the user's configuration are never changed.
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

from spark_ingest.errors import IngestRefused
from spark_ingest.spark.environment import is_submitted

LOCAL_MASTER = "local[*]"
ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("engine", "penstock_codec", "spark_ingest")

# The JVM only schedules. One compiler tier and a serial collector halve its start time.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEFAULTS = {
    "spark.app.name": "penstock ingest",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
}
_LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Both levels: Spark sets the root level to that of its own packages and warns if they differ.
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
# If no master answers, Spark stops the context in a thread of its own, and any call of the start can fail so.
_STOPPED_MEANWHILE = ("NullPointerException", "stopped SparkContext", "running MetricsSystem")
_JVM_NOISE = (b"WARNING: Using incubator modules: ",)


def open_context(master: str | None) -> Any:
    """Returns a SparkContext. `master` overrides spark-submit's; the default is all cores of this machine.

    Raises IngestRefused if no master answers.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers use the `python3` on the PATH
    from pyspark import SparkConf, SparkContext

    if is_submitted():
        SparkContext._ensure_initialized()  # before that, SparkConf does not have the settings of spark-submit
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
    if is_local:
        conf.set("spark.executorEnv.PYTHONPATH", _with_root(conf.get("spark.executorEnv.PYTHONPATH", "")))
    context = _context_unless_stopped(conf, with_code=not is_local)
    if context is None:
        hint = "check --master, and that the master runs"
        raise IngestRefused(f"no master of Spark answers at {conf.get('spark.master')}", hint=hint)
    return context


def _context_unless_stopped(conf: Any, with_code: bool) -> Any:
    """Returns a context, on request with our code for its workers, or None if Spark stopped it meanwhile."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    try:
        context = SparkContext.getOrCreate(conf) if is_submitted() else _start_context(conf)
        if with_code:
            context.addPyFile(_zipped_code())
        is_stopped = context._jsc.sc().isStopped()
    except Py4JJavaError as error:
        if is_stopped_meanwhile(conf.get("spark.master"), str(error.java_exception)):
            return None
        raise
    return None if is_stopped else context


def is_stopped_meanwhile(master: str, text: str) -> bool:
    """Returns whether the Java exception is that of a start whose context was stopped, as no master answered."""
    return master.startswith("spark://") and any(text_found in text for text_found in _STOPPED_MEANWHILE)


def _with_root(path: str) -> str:
    """Returns a PYTHONPATH with this code, so that workers import it whether or not it is installed."""
    return os.pathsep.join(filter(None, [str(ROOT), path]))


def _start_context(conf: Any) -> Any:
    """Starts a JVM whose standard error is filtered, and returns its context."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    _write_logging_configuration()
    os.environ["PYTHONPATH"] = _with_root(
        os.environ.get("PYTHONPATH", "")
    )  # for data sources, which Spark plans in a separate process
    gateway = launch_gateway(conf, {"stderr": subprocess.PIPE})
    threading.Thread(target=_relay, args=(gateway.proc.stderr,), daemon=True).start()
    return SparkContext(gateway=gateway, conf=conf)


def _relay(lines: IO[bytes]) -> None:
    """Copies lines of the JVM and its workers to standard error, without known noise."""
    for line in lines:
        if not line.startswith(_JVM_NOISE):
            sys.stderr.buffer.write(line)
            sys.stderr.flush()


def local_cores(master: str) -> int | None:
    """Returns the cores of a `local` master without starting it; None for any other master."""
    text = master.removeprefix("local").strip("[]").split(",")[0]
    if not master.startswith("local") or master.startswith("local-"):
        return None
    return os.cpu_count() or 1 if text == "*" else int(text or 1)


def _write_logging_configuration() -> None:
    """Writes a logging configuration, the only way to silence Spark before it starts. The user's own has precedence."""
    if "SPARK_CONF_DIR" in os.environ or "SPARK_HOME" in os.environ or not find_spec("pyspark"):
        return
    directory = Path(tempfile.gettempdir(), f"penstock-spark-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        return  # another user's directory is not trusted
    (directory / "log4j2.properties").write_text(_QUIET_LOGGING)
    os.environ["SPARK_CONF_DIR"] = str(directory)


def _zipped_code() -> str:
    """Zips our packages for executors on other machines; libraries must be installed there.

    Executors fetch the file when they start, so it is kept until this process ends.
    """
    target = Path(tempfile.mkdtemp(prefix="penstock-"), "penstock.zip")
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    return str(target)
