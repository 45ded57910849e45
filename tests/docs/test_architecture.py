"""ARCHITECTURE.md against the tree: its map has every package, with the purpose that the package itself states.

`python -m tests.docs.test_architecture` writes the map into the page.
"""

import ast
import re
from pathlib import Path

from tests.architecture.sources import CODE, ROOT
from tests.docs.pages import with_part

PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- map: made by python -m tests.docs.test_architecture -->", "<!-- end of map -->"
TOPS = (
    "node",
    "gateway",
    "replication",
    "engine",
    "spark_ingest",
    "penstock",
    "penstock_codec",
    "openapi",
    "loadtests",
)
WIDTH = 24


def purpose(package: Path) -> str:
    """Return the first sentence of a package's docstring."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring, f"{package} does not say what it is for"
    return re.split(r"(?<=[.!])\s", docstring.replace("\n", " "))[0]


def packages(top: str) -> list[Path]:
    return sorted(path.parent for path in (ROOT / top).rglob("__init__.py"))


def made_map() -> str:
    lines = []
    for top in TOPS:
        for package in packages(top):
            depth = len(package.relative_to(ROOT).parts) - 1
            name = f"{'  ' * depth}{package.name}/"
            lines.append(f"{name:<{WIDTH}}{purpose(package)}")
        lines.append("")
    return "```text\n" + "\n".join(lines).rstrip("\n") + "\n```"


def page_with_map(page: str) -> str:
    return with_part(page, BEGIN, END, made_map())


def test_the_map_is_the_tree():
    assert set(TOPS) == set(CODE)
    page = PAGE.read_text()
    assert page == page_with_map(page), "write it again: make docs-write"


def test_a_package_that_is_missing_in_the_map_is_found():
    page = PAGE.read_text()
    line = next(line for line in made_map().splitlines() if line.strip().startswith("routing/"))
    assert page_with_map(page.replace(line + "\n", "")) == page_with_map(page) != page.replace(line + "\n", "")


if __name__ == "__main__":
    PAGE.write_text(page_with_map(PAGE.read_text()))
