"""The packed environment of Spark's executors: what is in it, and that its Python runs our code from any directory."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from penstock_codec import native
from spark_ingest.spark import packing
from spark_ingest.spark.on_worker import LIBRARIES


def test_the_libraries_that_a_worker_needs_are_among_the_packed_ones_and_spark_is_not() -> None:
    names = {one.metadata["Name"].lower().replace("_", "-") for one in packing.distributions()}
    assert {*LIBRARIES, "penstock", "penstock-codec", "penstock-server"} <= names
    assert {"aiohttp", "botocore", "pandas"} <= names  # required by a required one, and by an extra
    assert not {"pyspark", "py4j", "pytest", "pyiceberg"} & names


def test_an_unpacked_environment_decodes_batches_without_this_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "EXTRAS", frozenset())  # without PyArrow and pandas it is packed in a second
    assert packing.pack(tmp_path / "env.tgz") > 20
    with tarfile.open(tmp_path / "env.tgz") as archive:
        archive.extractall(tmp_path / "somewhere else")  # Python 3.11.4 has `filter`
    code = "import penstock_codec, engine.format.batch, spark_ingest.plan, penstock; print(penstock_codec.kind(),"
    code += " *{one.__file__.split('/lib/')[0] for one in (penstock_codec, engine.format.batch, spark_ingest.plan)})"
    python = tmp_path / "somewhere else/bin/python"
    done = subprocess.run([python, "-c", code], cwd="/", env={}, capture_output=True, text=True, check=False)
    assert done.stdout.split(" ", 1)[0] == ("compiled" if native else "python"), done.stderr
    assert done.stdout.split(" ", 1)[1].strip() == str(tmp_path / "somewhere else")


@pytest.mark.parametrize(
    ("name", "problem"), [("absent/env.tar.gz", "No such file"), ("env.zip", "must end in .tar.gz")]
)
def test_an_archive_that_cannot_be_written_is_one_line(
    name: str, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["packing", str(tmp_path / name)])
    assert packing.main() == 1
    printed = capsys.readouterr().err
    assert problem in printed
    assert printed.count("\n") == 1
