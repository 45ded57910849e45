"""Which codec runs: PENSTOCK_CODEC chooses, and one line says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import penstock_codec
from penstock_codec import report
from penstock_codec.__main__ import line
from tests.codecs import needs_compiled, plain_codec


def test_plain_python_is_taken_where_it_is_chosen() -> None:
    assert penstock_codec.choose("python") == (None, "PENSTOCK_CODEC=python")


@needs_compiled
@pytest.mark.parametrize("choice", ["auto", "compiled"])
def test_the_compiled_codec_is_taken_where_it_is_there(choice: str) -> None:
    module, reason = penstock_codec.choose(choice)
    assert module is not None
    assert reason == ""


def test_another_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="one of auto, compiled, python"):
        penstock_codec.choose("c")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "it is not compiled here"),
        (ModuleType("old"), f"the compiled module is of version 0, {penstock_codec.VERSION} is wanted"),
    ],
)
def test_without_a_module_of_this_version_plain_python_runs(
    module: ModuleType | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it and with `compiled`, a process does not start."""
    if module is not None:
        module.VERSION = 0  # type: ignore[attr-defined]
    else:
        monkeypatch.setattr(penstock_codec, "MODULE", "penstock_codec._absent")
    monkeypatch.setitem(sys.modules, penstock_codec.MODULE, module)
    found, why_not = penstock_codec.choose("auto")
    assert found is None
    assert why_not.startswith(reason)
    with pytest.raises(ImportError, match="PENSTOCK_CODEC=compiled, but"):
        penstock_codec.choose("compiled")


def test_a_lack_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    monkeypatch.setattr(penstock_codec, "why_not", "it is not compiled here")
    with plain_codec():
        assert report.lack() == "it is not compiled here; a C compiler (/nonexistent/cc) missing"
        assert line().endswith("on Debian apt-get install gcc python3-dev, then make setup")
        assert "\n" not in line()


def test_the_command_says_which_codec_runs() -> None:
    environment = {**os.environ, "PENSTOCK_CODEC": "python"}
    command = [sys.executable, "-m", "penstock_codec"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "codec: plain Python, at several times the processor time: PENSTOCK_CODEC=python\n"


@needs_compiled
def test_code_in_a_zip_finds_the_compiled_module_that_is_installed(tmp_path: Path) -> None:
    """As on an executor of Spark."""
    package = Path(penstock_codec.__file__).parent
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        for path in package.glob("*.py"):
            archive.write(path, f"penstock_codec/{path.name}")
    program = "import penstock_codec as p; print(p.__file__, p.kind())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "code.zip"), str(package.parent)])}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{tmp_path / 'code.zip' / 'penstock_codec' / '__init__.py'} compiled\n"
