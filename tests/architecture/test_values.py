"""No untyped dictionary crosses a package border of the node: values have fields with types.

No public signature, field or alias of gateway, node and replication names `dict[str, Any]` or `Mapping[str, Any]`. Each
exception is listed with its reason, and the list only gets shorter.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.sources import ROOT

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

LAYERS = ("gateway", "node", "replication")
MAPPINGS = {"dict", "Dict", "Mapping", "MutableMapping"}

LEFT = {
    "gateway.docs.guide.Contract": "a JSON document of OpenAPI's shape, which the page of /docs walks",
    "gateway.subscriptions.bodies.PatchSubscription.delivery": "only what is given; checked as a PUT is",
}


def test_no_dictionary_of_anything_is_in_a_public_signature():
    found = {name for layer in LAYERS for name in _found_in(layer)}
    assert found - LEFT.keys() == set(), "give it fields: a frozen dataclass, a TypedDict or a Struct"
    assert LEFT.keys() - found == set(), "remove from the list what is gone"


def test_it_is_found_wherever_it_stands():
    text = """
def a(x: dict[str, Any]) -> None: ...
def b() -> list[Mapping[str, Any]]: ...
class C:
    d: dict[str, Any] | None
    def e(self, *, f: dict[str, int]) -> dict[str, Any]: ...
    def _g(self) -> dict[str, Any]: ...
H = tuple[str, dict[str, Any]]
def i(j: dict[str, object]) -> dict[str, list[Any]]: ...
def k() -> None:
    l: dict[str, Any] = {}
"""
    assert list(_names_in(ast.parse(text), "m")) == ["m.a", "m.b", "m.C.d", "m.C.e", "m.H"]


def _found_in(layer: str) -> Iterator[str]:
    for path in sorted((ROOT / layer).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield from _names_in(ast.parse(path.read_text()), module)


def _names_in(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                name, parts = node.name, [*(one.annotation for one in arguments), node.returns]
            case ast.AnnAssign(target=ast.Name(name)):
                parts = [node.annotation]
            case ast.Assign(targets=[ast.Name(name)]) if isinstance(tree, ast.Module):
                parts = [node.value] if isinstance(node.value, ast.Subscript | ast.BinOp) else []
            case ast.ClassDef():
                if not node.name.startswith("_"):
                    yield from _names_in(node, f"{prefix}.{node.name}")
                continue
            case _:
                continue
        is_public = not name.startswith("_") or name == "__init__"
        if is_public and any(_is_of_anything(one) for part in parts if part for one in ast.walk(part)):
            yield f"{prefix}.{name}"


def _is_of_anything(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(value=ast.Name(mapping), slice=ast.Tuple(elts=[_, ast.Name("Any")])):
            return mapping in MAPPINGS
        case _:
            return False
