"""The generated files of the clients are fresh, and neither client needs another package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clients.generated import ROOT, files

SOURCES = sorted((ROOT / "clients" / "typescript" / "src").glob("*.ts"))


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_generated_file_is_that_of_the_contract(path: Path) -> None:
    assert path.read_text() == files()[path], "python -m tests.clients.generated"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_typescript_client_imports_nothing_but_itself(path: Path) -> None:
    imports = re.findall(r'from "([^"]+)"', path.read_text())
    assert [name for name in imports if not name.startswith("./")] == []
    assert not re.search(r"\b(Buffer|process|require)\b[.(]", path.read_text())


def test_the_go_client_imports_the_standard_library_only() -> None:
    for path in (ROOT / "clients" / "go").glob("*.go"):
        block = re.search(r"import \((.*?)\n\)", path.read_text(), re.DOTALL)
        imports = re.findall(r'"([^"]+)"', block[1]) if block else []
        assert [name for name in imports if "." in name.split("/")[0] and "penstock" not in name] == [], path.name
    assert "require" not in (ROOT / "clients" / "go" / "go.mod").read_text()
