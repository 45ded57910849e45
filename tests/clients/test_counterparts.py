"""The stories that every client must have, and which of them, or of the Python client's tests, has no counterpart."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from tests.clients.runner import ROOT

HERE = Path(__file__).parent
TABLE = tomllib.loads((HERE / "counterparts.toml").read_text())
SUITES = ("test_stories.py", "test_fault_stories.py", "test_cluster_stories.py")
PYTHON = ROOT / "tests" / "penstock"
CLIENT_SUITES = [
    path
    for place in (".", "consumer", "producer", "transport", "admin")
    for path in sorted((PYTHON / place).glob("test_*.py"))
]


def functions_of(path: Path) -> dict[str, ast.AST]:
    functions = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
    )
    return {function.name: function for function in functions if function.name.startswith("test_")}


def test_every_story_is_in_the_table_and_the_other_way_round() -> None:
    stories = {name for suite in SUITES for name in functions_of(HERE / suite)}
    assert stories == set(TABLE["stories"])


def test_every_story_is_played_in_typescript_and_in_go() -> None:
    """A module's or a story's own list of languages, if it has one, has both."""
    for suite in SUITES:
        text = (HERE / suite).read_text()
        assert "LANGUAGES" in text or "JUDGED" in text, suite
        for name, function in functions_of(HERE / suite).items():
            own = [ast.unparse(mark) for mark in function.decorator_list if "'language'" in ast.unparse(mark)]  # type: ignore[attr-defined]
            assert all("typescript" in mark and "'go'" in mark for mark in own), name


def test_every_test_of_the_python_client_has_a_counterpart_or_a_reason() -> None:
    named = [name for part in TABLE.values() for names in part.values() for name in names]
    tests = {name: path.name for path in CLIENT_SUITES for name in functions_of(path)}
    missing = [f"{file}: {name}" for name, file in tests.items() if name not in named]
    assert missing == [], "name them in counterparts.toml:\n" + "\n".join(missing)
    assert sorted(set(named) - set(tests)) == [], "no such test"
