"""The code as values for the architecture tests: modules, their imports, and the foreign names that they use.

Reads source text and imports nothing, so it can read a planted tree as well as ours. It judges nothing.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

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


class Names(NamedTuple):
    """The names of one module: of its imports, its text constants, and everything that it defines or uses."""

    imports: set[str]
    strings: set[str]
    identifiers: set[str]
    has_head: bool  # a docstring, or nothing at all


class Uses(NamedTuple):
    """What one module uses of its imports and of the builtins, what it calls of those, and the methods it calls."""

    foreign: set[str]
    called: set[str]
    methods: set[str]


@dataclass(frozen=True)
class Module:
    """A file, read once in a process. Its answers are kept; its tree is not, since the trees of all files take a GB."""

    name: str
    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def line_count(self) -> int:
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def imports(self) -> set[str]:
        """Return imported names: `from a import b` gives both `a` and `a.b`, since b may be a module."""
        return self._names.imports

    def strings(self) -> set[str]:
        """Return every text constant: a command's table and lazy imports name modules this way."""
        return self._names.strings

    def identifiers(self) -> set[str]:
        """Return the names of functions, classes, arguments, variables and attributes, defined and used."""
        return self._names.identifiers

    def foreign_names(self) -> set[str]:
        """Return dotted names of what this module uses from its imports and from the builtins: `os.open`, `open`."""
        return self._uses.foreign

    def called_names(self) -> set[str]:
        """Return the dotted names of what this module calls."""
        return self._uses.called

    def called_methods(self) -> set[str]:
        """Return names of called methods, on any object."""
        return self._uses.methods

    def has_head(self) -> bool:
        """Return whether the file begins with a docstring, or is empty."""
        return self._names.has_head

    @property
    def _names(self) -> Names:
        return self._facts[0]

    @property
    def _uses(self) -> Uses:
        return self._facts[1]

    @cached_property
    def _facts(self) -> tuple[Names, Uses]:
        tree = self.tree
        nodes = nodes_of(tree)
        names = Names(set(), set(), set(), not tree.body or ast.get_docstring(tree) is not None)
        calls = []
        for node in nodes:
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                    names.identifiers.add(name)
                case ast.Constant(value=str(text)):
                    names.strings.add(text)
                case ast.Call(func=function):
                    calls.append(function)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.identifiers.add(name)
                case ast.Import(names=imported):
                    names.imports.update(alias.name for alias in imported)
                case ast.ImportFrom(module=origin, names=imported, level=level):
                    assert level == 0, f"{self.path}: imports are absolute here"
                    assert origin is not None
                    names.imports.update([origin, *(f"{origin}.{alias.name}" for alias in imported)])
        homes = _homes(nodes)
        uses = Uses(
            foreign={dotted for node in nodes if (dotted := _resolved(node, homes)) is not None},
            called={dotted for function in calls if (dotted := _resolved(function, homes)) is not None},
            methods={function.attr for function in calls if isinstance(function, ast.Attribute)},
        )
        return names, uses


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes. Reads fields directly: `ast.walk` takes twice as long."""
    nodes = [tree]
    for node in nodes:  # which grows
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                nodes += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                nodes.append(value)
    return nodes


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
        yield _module(name, path)


@cache
def _module(name: str, path: Path) -> Module:
    return Module(name, path, path.read_text())


def _homes(nodes: list[ast.AST]) -> dict[str, str]:
    """Return the dotted name of each imported name: `from os import open as o` makes `o` mean `os.open`."""
    homes = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                homes[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                homes[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return homes


def _resolved(node: ast.AST, homes: dict[str, str]) -> str | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    first = homes.get(node.id, node.id if hasattr(builtins, node.id) else None)
    return None if first is None else ".".join([first, *reversed(names)])
