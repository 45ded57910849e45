"""Loads the contract and its examples from the package's YAML files.

It does not check them (tests/contract does), sends nothing, and knows nothing of routes or handlers.
Invariants: the contract is read once a process and never changed; examples come in the order of their file names,
which is the order of a story (a topic is created before it is produced to).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import orjson

METHODS = ("get", "put", "post", "delete", "patch")


@dataclass(frozen=True)
class Operation:
    method: str  # upper case
    path: str
    spec: dict[str, Any]  # with the parameters of its path

    @property
    def operation_id(self) -> str:
        name = self.spec["operationId"]
        assert isinstance(name, str)
        return name


@dataclass(frozen=True)
class Expected:
    """The expected answer to an example. Members that are None or empty are not compared."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    json_subset: Any = None  # what the answer's JSON must contain; lists have the same length
    varies: tuple[str, ...] = ()  # pointers such as /partitions/*/size_bytes whose values need only have the same type
    text: str | None = None
    text_contains: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    name: str
    title: str
    operation: str
    method: str
    path: str  # with its query, ready to send
    headers: dict[str, str]
    body: bytes | None
    body_json: Any  # what `body` was made from, if that was JSON
    expect: Expected


@cache
def load_contract() -> dict[str, Any]:
    """Returns the contract as plain values. Callers share it and must not change it."""
    contract = _read_yaml(_package().joinpath("gateway.yaml"))
    assert isinstance(contract, dict)
    return contract


@cache
def contract_json() -> bytes:
    return orjson.dumps(load_contract())


def operations(contract: dict[str, Any]) -> Iterator[Operation]:
    """Returns all operations in the order of the document."""
    for path, item in contract["paths"].items():
        shared = item.get("parameters", [])
        for method, spec in item.items():
            if method in METHODS:
                merged = {**spec, "parameters": [*shared, *spec.get("parameters", [])]}
                yield Operation(method.upper(), path, merged)


def resolve(contract: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Returns the value itself, or the target of its `$ref`."""
    while "$ref" in value:
        target: Any = contract
        for part in value["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        value = target
    return value


@cache
def load_examples() -> tuple[Example, ...]:
    files = sorted(_package().joinpath("examples").iterdir(), key=lambda file: file.name)
    return tuple(_example(file) for file in files if file.name.endswith(".yaml"))


def _example(file: Traversable) -> Example:
    raw = _read_yaml(file)
    expect = raw["expect"]
    return Example(
        name=file.name.removesuffix(".yaml"),
        title=raw["title"],
        operation=raw["operation"],
        method=raw["method"],
        path=raw["path"],
        headers=raw.get("headers", {}),
        body=_body(raw),
        body_json=raw.get("json"),
        expect=Expected(
            status=expect["status"],
            headers=expect.get("headers", {}),
            json_subset=expect.get("json_subset"),
            varies=tuple(expect.get("varies", ())),
            text=expect.get("text"),
            text_contains=tuple(expect.get("text_contains", ())),
        ),
    )


def _body(raw: dict[str, Any]) -> bytes | None:
    """`json` is any JSON, `body` is text or, with YAML's !!binary, bytes."""
    if "json" in raw:
        return orjson.dumps(raw["json"])
    body = raw.get("body")
    return body.encode() if isinstance(body, str) else body


def _package() -> Traversable:
    return resources.files("openapi")


def _read_yaml(file: Traversable) -> Any:
    import yaml  # a node starts without it

    # The C loader takes a tenth of the time, but PyYAML has it only where libyaml was there at its build.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_bytes(), Loader=loader)  # noqa: S506  a safe loader, in either case
