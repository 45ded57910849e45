"""Every module is used, and has a docstring that says what it is."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.architecture.sources import CODE, ROOT, Module, modules_of

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

# Not reached from any entry point, on purpose.
FOR_TESTS_ONLY = {
    "engine.testing.recording_disk": "the second Disk, which shows what a power loss may leave behind",
    "engine.testing.faulty_disk": "the third Disk, which refuses, shortens and delays calls by rule",
    "engine.testing.memory_store": "the third ObjectStore, in memory",
    "engine.testing.store_proxy": "an ObjectStore around another one, for faults",
}

# Imported by programs, and not by our commands.
PUBLIC = {
    "penstock.sync": "the client for programs that are not async",
    "penstock.testing.plugin": "fixtures for the tests of users",
    "spark_ingest.job": "the script that spark-submit is given",
    "spark_ingest.data_source": "what programs register with Spark",
}


@pytest.fixture(scope="module")
def code() -> list[Module]:
    return modules_of(ROOT, CODE)


@pytest.fixture(scope="module")
def tests() -> list[Module]:
    return modules_of(ROOT, ("tests",))


def started_by(text: str) -> set[str]:
    """Return the modules that a script or makefile runs: `python -m a.b`, `locust -f a/b.py`."""
    by_name = re.findall(r"-m ([a-z_][\w.]*)", text)
    by_path = [path.replace("/", ".") for path in re.findall(r"([a-z_][\w/]*)\.py\b", text)]
    return {*by_name, *by_path}


def entry_points(root: Path) -> set[str]:
    client = tomllib.loads((root / "penstock" / "pyproject.toml").read_text())["project"]
    server = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    targets = [*client["scripts"].values(), *server["entry-points"]["penstock.commands"].values()]
    started = started_by((root / "Makefile").read_text() + (root / ".ci" / "run").read_text())
    return {target.split(":")[0] for target in targets} | started


def reached(modules: Iterable[Module], begin: set[str]) -> set[str]:
    """Return everything that is imported from these modules, or named in their text constants. A module includes its
    packages.
    """
    by_name = {module.name: module for module in modules}
    found: set[str] = set()
    to_do = [name for name in begin if name in by_name]
    while to_do:
        name = to_do.pop()
        if name in found:
            continue
        found.add(name)
        module = by_name[name]
        used = (module.imports() | module.strings()) & by_name.keys()
        to_do += [*used, *_packages_of(name, by_name), *_main_of(used, by_name)]
    return found


def dead(modules: list[Module], begin: set[str]) -> list[str]:
    return sorted({module.name for module in modules} - reached(modules, begin))


def without_head(modules: Iterable[Module]) -> list[str]:
    return [module.name for module in modules if not module.has_head()]


def _packages_of(name: str, known: Iterable[str]) -> list[str]:
    parts = name.split(".")
    return [package for end in range(1, len(parts)) if (package := ".".join(parts[:end])) in known]


def _main_of(used: set[str], known: Iterable[str]) -> list[str]:
    """`python -m package` runs package.__main__."""
    return [f"{name}.__main__" for name in used if f"{name}.__main__" in known]


def test_every_module_is_reached_from_an_entry_point(code):
    begin = entry_points(ROOT)
    begin |= {f"{name}.__main__" for name in begin}
    assert dead(code, begin | PUBLIC.keys() | FOR_TESTS_ONLY.keys()) == []


def test_what_is_for_tests_only_is_used_by_tests_only(code, tests):
    reached_by_code = reached(code, entry_points(ROOT))
    imported_by_tests = {name for module in tests for name in module.imports()}
    for name in FOR_TESTS_ONLY:
        assert name not in reached_by_code
        assert name in imported_by_tests


def test_every_module_of_the_tests_is_a_test_or_used_by_one(code, tests):
    """Or `make` runs it, or a bench that `make` runs."""
    started = entry_points(ROOT)
    started |= {f"{name}.__main__" for name in started}
    of_code = reached(code, started)
    named = {text for module in code if module.name in of_code for text in module.strings()}
    begin = {module.name for module in tests if is_test(module.path)} | started | named
    assert dead(tests, begin) == []


def is_test(path: Path) -> bool:
    return path.name.startswith("test_") or path.name in ("conftest.py", "__init__.py")


def test_type_checkers_of_users_read_the_types_of_the_client():
    """PEP 561: the marker is in the package and in the built wheel."""
    built = tomllib.loads((ROOT / "penstock" / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "py.typed" in built["package-data"]["penstock"]
    assert (ROOT / "penstock" / "py.typed").exists()


def test_the_client_is_built_with_all_of_its_packages():
    built = tomllib.loads((ROOT / "penstock" / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert built == sorted(one.name for one in modules_of(ROOT, ("penstock",)) if one.is_package)


def test_every_module_says_what_it_is(code):
    assert without_head(code) == []


def planted(name: str, text: str = '"""A head."""\n') -> Module:
    return Module(name, Path(name.replace(".", "/") + ".py"), text)


def test_a_planted_dead_module_is_found():
    tree = [planted("a", "import b"), planted("b", "x = 'c'"), planted("c"), planted("d", "import e"), planted("e")]
    assert dead(tree, {"a"}) == ["d", "e"], "two that only use each other are dead together"


def test_a_planted_module_without_head_is_found():
    assert without_head([planted("a"), planted("b", "import a\n")]) == ["b"]


def test_what_a_makefile_starts_is_understood():
    assert started_by("\t@$(BIN)/python -m a.b $(ARGS)\n\tlocust -f c/d.py --host x") == {"a.b", "c.d"}
