"""The code as values for the architecture tests: modules, their imports, and the foreign names that they use.

Reads source text and imports nothing, so it can read a planted tree as well as ours. It judges nothing.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = (
    "engine",
    "replication",
    "gateway",
    "node",
    "openapi",
    "penstock",
    "penstock_codec",
    "spark_ingest",
    "loadtests",
)


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree, which each question below walks over."""
        return [*ast.walk(self.tree)]

    @property
    def line_count(self) -> int:
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def imports(self) -> set[str]:
        """Return imported names: `from a import b` gives both `a` and `a.b`, since b may be a module."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}: imports are absolute here"
                assert node.module is not None
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return found

    def strings(self) -> set[str]:
        """Return every text constant: a command's table and lazy imports name modules this way."""
        constants = (node.value for node in self.nodes if isinstance(node, ast.Constant))
        return {value for value in constants if isinstance(value, str)}

    def foreign_names(self) -> set[str]:
        """Return dotted names of what this module uses from its imports and from the builtins: `os.open`, `open`."""
        return {name for node in self.nodes if (name := _resolved(node, self._homes)) is not None}

    def called_names(self) -> set[str]:
        """Return the dotted names of what this module calls."""
        calls = (node.func for node in self.nodes if isinstance(node, ast.Call))
        return {name for function in calls if (name := _resolved(function, self._homes)) is not None}

    def called_methods(self) -> set[str]:
        """Return names of called methods, on any object."""
        calls = (node.func for node in self.nodes if isinstance(node, ast.Call))
        return {function.attr for function in calls if isinstance(function, ast.Attribute)}

    @cached_property
    def _homes(self) -> dict[str, str]:
        """Return the dotted name of each imported name: `from os import open as o` makes `o` mean `os.open`."""
        homes = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    homes[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    homes[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return homes


def modules_of(root: Path, packages: tuple[str, ...]) -> list[Module]:
    """Return every module of these packages, by name."""
    return [module for package in packages for module in _modules_below(root, root / package)]


def third_party(modules: list[Module], own: tuple[str, ...]) -> dict[str, set[str]]:
    """Return imported top-level names that are neither ours nor Python's, each with the importing modules."""
    import sys

    users: dict[str, set[str]] = {}
    for module in modules:
        for name in {one.split(".")[0] for one in module.imports()}:
            if name not in own and name not in sys.stdlib_module_names:
                users.setdefault(name, set()).add(module.name)
    return users


def _modules_below(root: Path, directory: Path) -> Iterator[Module]:
    for path in sorted(directory.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module(name, path, path.read_text())


def _resolved(node: ast.AST, homes: dict[str, str]) -> str | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    first = homes.get(node.id, node.id if hasattr(builtins, node.id) else None)
    return None if first is None else ".".join([first, *reversed(names)])
