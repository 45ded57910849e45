"""A protocol has two implementations or more, or a reason here. One that only avoids an import goes with the border.

Looks for the members by name: methods, annotated fields, and what methods assign to `self`, with those of bases.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.architecture.sources import ROOT, nodes_of

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

LAYERS = ("engine", "replication", "gateway", "node", "penstock", "spark_ingest")
ON_THE_WIRE = "the connection makes exchanges and an exchange answers through its connection; tests play the other side"
LEFT = {
    "Clock": "tests and the simulation use their own clocks instead of real time",
    "BlockDecoder": "the compiled codec has the other implementation, a type in C",
    "Carrier": ON_THE_WIRE,
    "Moves": "what moves a connection is above gateway/wire, and the connection notes the ends of its requests",
    "Host": "the server of a connection, and the test that speaks to a connection without a socket",
    "ConnectionState": "the core that judges idle connections reads values; its tests give it values",
    "ClusterListener": "one listener object that the node gives to the agent below it",
    "Names": "a request has the names of its tenant, which gateway/access makes: it imports requests",
    "Interceptor": "users of the client implement it",
    "KeyRing": "users of the client implement it, for their key management service",
    "TopicSource": "the core of groups takes the topics of its process; its tests make and delete topics as they like",
    "Partitioner": "other distributions implement it, as an entry point",
    "RunListener": "one listener object that the command gives to a run of a job",
}


@dataclass
class Class:
    name: str
    bases: list[str]
    members: set[str] = field(default_factory=set)

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.bases


def classes_of(tree: ast.Module) -> Iterator[Class]:
    for node in nodes_of(tree):
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).split("[")[0] for base in node.bases]
            yield Class(node.name, bases, {name for one in node.body for name in _members(one)})


def _members(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
            for one in nodes_of(node):
                match one:
                    case ast.Attribute(value=ast.Name("self"), attr=attribute, ctx=ast.Store()):
                        yield attribute
        case ast.AnnAssign(target=ast.Name(name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def with_one_implementation(classes: Iterable[Class]) -> set[str]:
    """Return the protocols that fewer than two of the classes implement."""
    known = list(classes)
    by_name: dict[str, list[Class]] = {}
    for one in known:
        by_name.setdefault(one.name, []).append(one)

    def all_members(of: Class, below: tuple[str, ...] = ()) -> set[str]:
        bases = [base for name in of.bases if name not in below for base in by_name.get(name, ())]
        return of.members.union(*(all_members(base, (*below, of.name)) for base in bases))

    found = set()
    for protocol in known:
        if protocol.is_protocol:
            wanted = all_members(protocol)
            having = [one for one in known if not one.is_protocol and wanted <= all_members(one)]
            if len(having) < 2:
                found.add(protocol.name)
    return found


def test_a_protocol_has_two_implementations():
    paths = (path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")))
    found = with_one_implementation(one for path in paths for one in classes_of(ast.parse(path.read_text())))
    found -= {"Parallel", "Record"}  # `map` of the builtins and of an executor; the records of aiokafka and our own
    assert found - LEFT.keys() == set(), "name the class itself, or give its constructor the functions that it needs"
    assert LEFT.keys() - found == set(), "remove from the list what is gone"


def test_a_protocol_that_one_class_implements_is_found():
    text = """
class Opened(Protocol):
    size: int
    def close(self): ...
class File:
    def __init__(self):
        self.size = 0
    def close(self): ...
"""
    other = "class Base:\n    size = 1\nclass Other(Base):\n    def close(self): ...\n"
    assert with_one_implementation(classes_of(ast.parse(text))) == {"Opened"}
    assert with_one_implementation(classes_of(ast.parse(text + other))) == set()
