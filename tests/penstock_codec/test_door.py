"""Which codec runs: PENSTOCK_CODEC chooses, and one line says what is missing."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import penstock_codec
from penstock_codec import report
from penstock_codec.__main__ import line, main
from tests.codecs import needs_compiled, plain_codec

ROOT = Path(__file__).parents[2]


def test_plain_python_is_taken_where_it_is_chosen():
    assert penstock_codec.choose("python") == (None, "PENSTOCK_CODEC=python")


@needs_compiled
@pytest.mark.parametrize("choice", ["auto", "compiled"])
def test_the_compiled_codec_is_taken_where_it_is_there(choice):
    module, reason = penstock_codec.choose(choice)
    assert module is not None
    assert reason == ""


def test_another_choice_is_refused():
    with pytest.raises(ValueError, match="one of auto, compiled, python"):
        penstock_codec.choose("c")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "it is not compiled here"),
        (ModuleType("old"), f"the compiled module is of version 0, this is version {penstock_codec.VERSION}: run "),
    ],
)
def test_without_a_module_of_this_version_plain_python_runs(module, reason, monkeypatch):
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


def test_a_lack_is_one_line_that_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(report.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("CC", "/nonexistent/cc")
    monkeypatch.setattr(penstock_codec, "why_not", "it is not compiled here")
    with plain_codec():
        assert report.lack() == "it is not compiled here; a C compiler (/nonexistent/cc) missing"
        assert line().endswith("on Debian apt-get install gcc python3-dev, then make setup")
        assert "\n" not in line()


def test_the_command_says_which_codec_runs():
    """With plain Python chosen, it does not say what to install, although there is no compiler."""
    environment = {**os.environ, "PENSTOCK_CODEC": "python", "CC": "/nonexistent/cc"}
    command = [sys.executable, "-m", "penstock_codec"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"codec: plain Python, at {report.COST}: PENSTOCK_CODEC=python\n"


def test_a_benchmark_runs_plain_python_only_where_it_is_chosen(monkeypatch, capsys):
    with plain_codec():
        monkeypatch.setattr(penstock_codec, "why_not", "it is not compiled here")
        assert (main([]), main(["--measured"])) == (0, 1)
        refusal = capsys.readouterr().err
        assert refusal.endswith("; PENSTOCK_CODEC=python measures it all the same\n")
        assert refusal.count("\n") == 1
        monkeypatch.setattr(penstock_codec, "why_not", penstock_codec.CHOSEN)
        assert main(["--measured"]) == 0
    assert "codec: plain Python" in capsys.readouterr().out


def test_every_benchmark_says_which_codec_runs():
    rules = re.findall(r"^(bench[a-z-]*):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(rules) > 5
    assert [name for name, recipe in rules if "-m penstock_codec --measured" not in recipe] == []


@needs_compiled
@pytest.mark.parametrize("is_usable", [True, False])
def test_make_compiles_again_what_is_not_usable(tmp_path, is_usable):
    """A file of the compiled module that cannot be loaded, or is of an earlier version, is made again."""
    shutil.copytree(ROOT / "penstock_codec", tmp_path / "penstock_codec")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements/serve.lock", "pyproject.toml", "penstock/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    if not is_usable:
        next((tmp_path / "penstock_codec").glob("*.so")).write_bytes(b"of another machine")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / ".serve").touch()
    command = ["make", "-n", "PYTHON=.venv/bin/python", ".venv/.serve"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ("pip install" in ran.stdout) is not is_usable, ran.stdout


@needs_compiled
def test_code_in_a_zip_finds_the_compiled_module_that_is_installed(tmp_path):
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
