"""docs/glossary.md: each term has its name in the code, and the name exists there."""

from __future__ import annotations

import ast
import re

from tests.architecture.sources import CODE, ROOT, modules_of
from tests.docs.prose import field_word

TERM = re.compile(r"^### .+ \(`(?P<name>\w+)`\)$", re.MULTILINE)
HEADING = re.compile(r"^### .*$", re.MULTILINE)


def names_of_code() -> set[str]:
    """Return every identifier and every module's name."""
    modules = modules_of(ROOT, CODE)
    found = {module.path.stem for module in modules}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name | ast.Attribute):
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def test_each_term_of_the_glossary_is_a_name_of_the_code() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    terms = [match["name"] for match in TERM.finditer(page)]
    assert len(terms) == len(HEADING.findall(page)) == len(set(terms)) > 10
    assert not set(terms) - names_of_code()
    assert not [name for name in terms if field_word(name)]
