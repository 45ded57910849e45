"""docs/iceberg.md matches the code: its sessions print what it shows, and its tables name all settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from spark_ingest.tables.settings import TableSettings
from tests.docs.console import PAGES, blocks, run_step, steps_of
from tests.spark_ingest.jobs import run_job
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import TieredLog, json_rows

PAGE = "iceberg.md"


@pytest.mark.e2e
def test_the_sessions_and_the_program_do_what_the_page_says(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    (tmp_path / "an output").symlink_to(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    TieredLog(lake.source, topic="rides").add(0, json_rows(10))
    lake.ingest()
    lake.log.add(0, json_rows(5, first=50))
    run_job(lake.source, lake.output)
    [settings] = blocks(PAGE, "toml")
    (tmp_path / "tables.toml").write_text(settings)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for step in (step for session in blocks(PAGE, "console") for step in steps_of(session)):
        run_step(step, tmp_path, environment)
    [program] = blocks(PAGE, "python")
    shown = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert "id: [[7004,7005,7006,7007,7008,7009]]" in shown.stdout


def test_every_setting_is_documented_and_no_other() -> None:
    text = (PAGES / PAGE).read_text().split("## Settings")[1].split("\n## ")[0]
    named = {cell.strip("`[]").removeprefix("iceberg.") for cell in re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)}
    assert named == {one.name for one in fields(TableSettings)}
