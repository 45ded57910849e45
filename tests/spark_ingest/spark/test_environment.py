"""A missing requirement of Spark is reported in one line, before Spark is imported."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from spark_ingest.errors import IngestRefused
from spark_ingest.spark.environment import require_spark


def java_home(directory: Path, version: str | None) -> Path:
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "java").touch(mode=0o755)
    if version is not None:
        (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return directory


@pytest.mark.parametrize("version", ["17.0.15", "21", None])
def test_a_java_that_is_new_enough_or_says_nothing_is_taken(tmp_path: Path, version: str | None) -> None:
    require_spark({"JAVA_HOME": str(java_home(tmp_path / "java", version))})
    require_spark({"PATH": str(tmp_path / "java" / "bin")})


def test_an_old_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IngestRefused, match=r"needs Java 17 or later, .* is 11"):
        require_spark({"JAVA_HOME": str(java_home(tmp_path / "java", "11.0.2"))})


def test_no_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IngestRefused, match="not on the PATH"):
        require_spark({"PATH": str(tmp_path)})
    with pytest.raises(IngestRefused, match=f"JAVA_HOME is {tmp_path}") as caught:
        require_spark({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})
    assert "apt-get install" in caught.value.hint


def test_no_pyspark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.spark.environment.find_spec", lambda name: None)
    with pytest.raises(IngestRefused, match="PySpark or PyArrow"):
        require_spark({"JAVA_HOME": str(java_home(tmp_path / "java", "17"))})


def test_the_job_is_planned_and_printed_without_importing_spark() -> None:
    """A rerun without work must not load Spark, and a missing Java must be reported before that."""
    import subprocess

    code = "import spark_ingest.commands.run, spark_ingest.protocol.runner, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pyspark_without_what_the_data_source_needs_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "spark_ingest.data_source", raising=False)
    monkeypatch.setattr("pyspark.__version__", "4.0.1")
    line = r"needs PySpark 4\.2 or later, and 4\.0\.1 is installed: pip install 'penstock-server\[spark\]'$"
    with pytest.raises(ImportError, match=line) as caught:
        import_module("spark_ingest.data_source")
    assert caught.value.__suppress_context__, "a traceback would begin with the cause"
