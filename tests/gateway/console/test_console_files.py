"""The console's files: those of others are as published, ours are small, and ask for what the contract has."""

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.assets.files import asset_bytes, asset_names, asset_text
from gateway.console.page import MODULES, STYLES, TYPES, console_file, content_security_policy, shell
from gateway.docs.manual import pages
from openapi import load_contract, operations
from tests.console.pictures import RECORDED
from tests.console.recording import CALLS as RECORDED_CALLS
from tests.console.recording import rounded
from tests.console.runbook import sections
from tests.scenarios.conformity import assert_conforms

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "gateway" / "assets"
OWN = sorted(path.name for path in (ASSETS / "console").glob("*.js"))
LOCK = json.loads(asset_text("lock.json"))
CALLS = dict(re.findall(r'^  (\w+): "(\w+ /\S*)",$', asset_text("contract.js"), re.MULTILINE))
IMPORTS = {name: set(re.findall(r'(?:from|import) "([^"]+)"', asset_text(name))) for name in OWN}
LOADED_LATER = {name: set(re.findall(r'import\("([^"]+)"\)', asset_text(name))) for name in OWN}
KIB = 1024


def gzipped(*names: str) -> int:
    return sum(len(console_file(name).bodies["gzip"]) for name in names)


def test_files_of_others_are_those_of_the_lock() -> None:
    present = {path.name for path in (ASSETS / "vendor").iterdir()} - {"lock.json"}
    assert present == {*LOCK, *(f"{package}.LICENSE" for package in ("preact", "htm", "uPlot"))}
    for name, row in LOCK.items():
        assert hashlib.sha256(asset_bytes(name)).hexdigest() == row["sha256"], name


def test_every_call_is_an_operation_of_the_contract() -> None:
    contract = {one.operation_id: f"{one.method} {one.path}" for one in operations(load_contract())}
    assert CALLS
    assert {name: contract.get(name) for name in CALLS} == CALLS


def test_every_call_is_made_and_nothing_else_is_asked() -> None:
    pages = "".join(asset_text(name) for name in OWN if name != "contract.js")
    assert [name for name in CALLS if f'"{name}"' not in pages] == [], "calls that no page makes"
    assert "fetch(" not in pages
    assert not re.search(r"XMLHttpRequest|EventSource|WebSocket|sendBeacon|innerHTML|\beval\b|new Function", pages)
    assert "style=" not in pages


def test_modules_import_what_there_is_and_none_is_left_over() -> None:
    imported = {name for found in (*IMPORTS.values(), *LOADED_LATER.values()) for name in found}
    ours = {name.removeprefix("./") for name in imported if name.startswith("./")}
    assert ours == {*OWN, "runbook_sections.js"} - {"app.js"}
    assert {name for name in imported if not name.startswith("./")} == {*MODULES}


def test_the_runbook_of_the_package_is_that_of_the_documentation() -> None:
    assert asset_text("runbook_sections.js") == sections(), "python -m tests.console.runbook"
    links = re.findall(r"\]\((?:[^)]*/)?([^)/]+)\.md(?:#[^)]*)?\)", sections())
    assert len(links) == sections().count("]("), "runbook.js makes a link of each"
    assert {*links} <= {*pages()}


def test_links_to_the_page_of_the_contract_lead_somewhere() -> None:
    anchors = {one.operation_id for one in operations(load_contract())}
    for name in OWN:
        assert {*re.findall(r"docs#([\w-]+)", asset_text(name))} <= anchors, name


def test_the_first_page_all_files_and_our_code_are_small() -> None:
    first = loaded_first("app.js") | loaded_first("overview.js")
    page = len(shell("1.0").bodies["gzip"])
    assert page + gzipped(*first, *STYLES, *(MODULES[name] for name in MODULES if name != "uplot")) <= 50 * KIB
    assert page + gzipped(*OWN, *STYLES, *MODULES.values()) <= 200 * KIB
    ours = gzip.compress(b"".join(map(asset_bytes, OWN)), 9)
    assert len(ours) <= 40_000, "our code, as if a page loaded it in one file"


def loaded_first(name: str) -> set[str]:
    names = {name}
    for module in (path.removeprefix("./") for path in IMPORTS[name] if path.startswith("./")):
        names |= loaded_first(module)
    return names


def test_the_shell_allows_scripts_of_the_node_alone() -> None:
    policy = content_security_policy()
    text = shell("1.0").bodies[None].decode()
    (import_map,) = re.findall(r'<script type="importmap">(.*?)</script>', text)
    assert set(json.loads(import_map)["imports"]) == set(MODULES)
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    addresses = re.findall(r'(?:src|href)="([^"]+)"', text) + list(json.loads(import_map)["imports"].values())
    for address in addresses:
        assert not address.startswith(("/", "http")), address
        assert address in ("docs", "v1") or address.rpartition("/")[2] in asset_names()


def test_every_file_has_a_type() -> None:
    assert {name.rpartition(".")[2] for name in asset_names()} <= {*TYPES}


def test_a_file_that_is_not_there_is_no_file() -> None:
    with pytest.raises(KeyError):
        console_file("../secret.js")


def test_modules_are_javascript(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node")
    for name in OWN:
        (tmp_path / name.replace(".js", ".mjs")).write_text(asset_text(name))
    checks = [subprocess.Popen([node, "--check", path], stderr=subprocess.PIPE) for path in tmp_path.iterdir()]
    assert [check.communicate()[1].decode()[:300] for check in checks if check.wait(60)] == []


def test_what_the_picture_shows_is_an_answer_of_the_contract() -> None:
    recorded = json.loads(RECORDED.read_text())
    assert recorded.keys() == set(RECORDED_CALLS)
    for call, document in recorded.items():
        headers = {"Content-Type": "application/json", "Penstock-Request-Id": "r", "ETag": '"e"'}
        assert_conforms("GET", f"/v1/{call}", 200, headers, json.dumps(document).encode())
        assert json.loads(json.dumps(rounded(document))) == document
