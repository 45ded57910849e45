"""The audit of dependencies: that it did not run is an outcome of its own, and not "no known advisory"."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.distributions.audit_dependencies import LOCK, ROOT, Outcome, audit, judge, locked

CLEAN = {"name": "aiohttp", "version": "3.14.5", "vulns": []}
SKIPPED = {"name": "Types_X", "skip_reason": "Dependency not found on PyPI and could not be audited: types-x (1)"}
ADVISORY = {"id": "PYSEC-2026-1", "fix_versions": ["3.14.6"], "aliases": [], "description": ""}
VULNERABLE = {**CLEAN, "vulns": [ADVISORY]}


@pytest.mark.parametrize(
    ("found", "packages", "outcome", "said"),
    [
        ([CLEAN], {"aiohttp"}, Outcome.CLEAN, "1 packages, no known advisory"),
        ([VULNERABLE], {"aiohttp"}, Outcome.VULNERABLE, "aiohttp 3.14.5: PYSEC-2026-1, fixed in 3.14.6"),
        ([VULNERABLE, SKIPPED], {"aiohttp", "types-x"}, Outcome.VULNERABLE, "not looked up: 1 packages"),
        ([SKIPPED], {"types-x"}, Outcome.DID_NOT_RUN, "1 of 1 packages were not looked up, such as types-x"),
        ([CLEAN, SKIPPED], {"aiohttp", "types-x"}, Outcome.DID_NOT_RUN, "1 of 2"),
        ([CLEAN], {"aiohttp", "orjson"}, Outcome.DID_NOT_RUN, "such as orjson"),
        ([], set(), Outcome.DID_NOT_RUN, "0 of 0"),
    ],
)
def test_an_audit_is_clean_only_if_every_package_was_looked_up(
    found: list[Any], packages: set[str], outcome: Outcome, said: str
) -> None:
    judged = judge(json.dumps({"dependencies": found, "fixes": []}), "", packages)
    assert judged.outcome is outcome
    assert said in "\n".join(judged.lines)


@pytest.mark.slow
def test_an_audit_without_a_network_did_not_run(tmp_path: Path) -> None:
    lock = tmp_path / "one.lock"
    lock.write_text("orjson==3.13.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": ""}
    done = audit(lock, {**os.environ, **nowhere, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert done.outcome is Outcome.DID_NOT_RUN, done.lines


def test_the_audited_lock_has_what_a_server_installs() -> None:
    names = locked(LOCK.read_text())
    assert {"aiohttp", "cryptography", "kazoo"} < names
    assert locked((LOCK.parent / "serve.lock").read_text()) <= names


@pytest.mark.long
@pytest.mark.slow
def test_the_list_of_installed_packages_is_the_same_twice(tmp_path: Path) -> None:
    """The environment has one package; the options are those of `make sbom`."""
    venv.create(tmp_path / "environment", with_pip=False)
    [site] = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    [package] = (path for path in map(Path, sys.path) if (path / "orjson").is_dir())
    [metadata] = package.glob("orjson-*.dist-info")
    shutil.copytree(metadata, site / metadata.name)
    assert re.search(r"cyclonedx-py environment --output-reproducible --of JSON", (ROOT / "Makefile").read_text())
    options = ["environment", "--output-reproducible", "--of", "JSON", tmp_path / "environment"]
    command = [sys.executable, "-m", "cyclonedx_py", *options]
    first, second = (subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2))
    assert first == second
    assert [one["name"] for one in json.loads(first)["components"]] == ["orjson"]
