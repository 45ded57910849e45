"""A class returns what happens, or reports it to what its constructor was given. No callback is assigned from outside.

An assignment to an attribute of another object counts if its name is that of a callback, or if the value is a
lambda, a partial, or a function or method of the same file.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import ROOT, nodes_of

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LAYERS = ("engine", "replication", "gateway", "node", "penstock", "spark_ingest")
CALLBACKS = re.compile(r"(when|on|hook|callback|handler)_|.*_(hook|callback|handler|listener|observer)$|mapped_error$")


def assigned_callbacks(source: str) -> set[str]:
    """Return the attributes of other objects that are assigned and hold callbacks."""
    tree = ast.parse(source)
    nodes = nodes_of(tree)
    methods = {one.name for one in nodes if isinstance(one, FUNCTIONS) and not _is_property(one)}
    functions = {one.name for one in tree.body if isinstance(one, FUNCTIONS)}
    return {
        target.attr
        for target, value in _assignments(nodes)
        if not (isinstance(target.value, ast.Name) and target.value.id == "self")
        if CALLBACKS.match(target.attr) or _is_function(value, functions, methods)
    }


def _assignments(nodes: list[ast.AST]) -> Iterator[tuple[ast.Attribute, ast.expr | None]]:
    """Yield the assigned attributes, each with its value; with the value of all of them for nested targets."""
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _pairs(target, value)
            case ast.AnnAssign(target=ast.Attribute() as target, value=value):
                yield target, value
            case ast.Call(func=ast.Name("setattr"), args=[of, ast.Constant(str(name)), value]):
                yield ast.Attribute(of, name), value


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    match target, value:
        case ast.Attribute(), _:
            yield target, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, of in zip(targets, values, strict=True):
                yield from _pairs(one, of)
        case ast.Tuple(elts=targets), _:
            for one in targets:
                yield from _pairs(one, value)


def _is_function(value: ast.expr | None, functions: set[str], methods: set[str]) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Call(func=ast.Name("partial")):
            return True
        case ast.Attribute(value=ast.Name("self"), attr=name):
            return name in methods
        case ast.Name(name):
            return name in functions
    return False


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "property" for one in function.decorator_list)


def test_callbacks_are_given_to_constructors():
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            if names := assigned_callbacks(path.read_text()):
                found[str(path.relative_to(ROOT))] = names
    assert found == {}, "give it to the constructor, or return what happens"


def test_an_assignment_from_outside_is_found():
    text = """
class C:
    def __init__(self, other):
        self.when_own = lambda: 1
        self.own, other.value = other, self.size
        other.when_damaged = other.something
        self.of.on_loss, other.count = other.x, 3
        other.sealed = self.note
        other.tiered_end = lambda one: 0
        other.epoch: object = partial(max, 1)
        setattr(other, "lost", helper)
    def note(self): ...
    @property
    def size(self): ...
def helper(): ...
"""
    assert assigned_callbacks(text) == {"when_damaged", "on_loss", "sealed", "tiered_end", "epoch", "lost"}
