"""docs/iceberg.md matches the code: its sessions print what it shows, and its tables name all settings."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from spark_ingest.tables.settings import TableSettings
from tests.docs.console import PAGES, blocks, matches, steps_of
from tests.spark_ingest.commands.test_ingest import penstock
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import TieredLog, json_rows

PAGE = "iceberg.md"


def test_the_sessions_and_the_program_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: each other one would take seconds to import pyiceberg."""
    lake = Lake(tmp_path)
    (tmp_path / "an output").symlink_to(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    TieredLog(lake.source, topic="rides").add(0, json_rows(10))
    lake.ingest()
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()
    settings, *_ = blocks(PAGE, "toml")
    (tmp_path / "tables.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    for step in (step for session in blocks(PAGE, "console") for step in steps_of(session)):
        command, *arguments = shlex.split(step.command)
        ended = penstock(*arguments)
        assert (command, ended.exit_code) == ("penstock", 0)
        assert matches(step.expected, ended.stdout), ended.stdout
    [program] = blocks(PAGE, "python")
    exec(program, {})
    assert "id: [[7004,7005,7006,7007,7008,7009]]" in capsys.readouterr().out


def test_every_setting_is_documented_and_no_other() -> None:
    text = (PAGES / PAGE).read_text().split("## Settings")[1].split("\n## ")[0]
    named = {cell.strip("`[]").removeprefix("iceberg.") for cell in re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)}
    assert named == {one.name for one in fields(TableSettings)}
