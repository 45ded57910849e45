"""`make lines-of-code`: the files, lines and lines of code of each top-level package, and of the tests.

A line of code holds at least one token that is not a comment, a docstring or part of an import. It counts Python only:
the compiled codec's C is not in it.
"""

import ast
import io
import tokenize
from pathlib import Path
from typing import NamedTuple

from tests.architecture.sources import CODE, ROOT, nodes_of

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Size(NamedTuple):
    """How much a package holds."""

    files: int
    lines: int
    code: int


def code_lines(text: str) -> int:
    """Return the number of lines without blanks, comments, docstrings and imports."""
    seen: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            seen.update(range(token.start[0], token.end[0] + 1))
    for node in nodes_of(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            seen.difference_update(_lines_of(node))
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            seen.difference_update(_lines_of(node.body[0]))
    return len(seen)


def size_of(directory: Path) -> Size:
    """Return the size of all Python files below a directory."""
    texts = [path.read_text() for path in sorted(directory.rglob("*.py"))]
    return Size(len(texts), sum(text.count("\n") for text in texts), sum(map(code_lines, texts)))


def total(sizes: list[Size]) -> Size:
    """Return the sum of sizes."""
    return Size(*map(sum, zip(*sizes, strict=True)))


def _lines_of(node: ast.stmt) -> range:
    assert node.end_lineno is not None
    return range(node.lineno, node.end_lineno + 1)


def main() -> None:
    """Print the table: the product's packages and their sum, then what is not the product."""
    product = {name: size_of(ROOT / name) for name in CODE if name != "loadtests"}
    rows = {
        **product,
        "product": total([*product.values()]),
        "loadtests": size_of(ROOT / "loadtests"),
        "tests": size_of(ROOT / "tests"),
    }
    print(f"{'':16}{'files':>8}{'lines':>10}{'code':>10}")
    for name, size in rows.items():
        print(f"{name:16}{size.files:>8,}{size.lines:>10,}{size.code:>10,}")


if __name__ == "__main__":
    main()
