"""`python -m tests.distributions.audit_dependencies`: compares the locked packages with published advisories.

Ends with 0 if every package was looked up and has no advisory, 1 if one has, and 3 if the audit did not run: pip-audit
failed, or did not find a package. pip-audit alone reports "No known vulnerabilities found" with status 0 if the index
has none of the packages. Its `--strict` ends at the first of these with 1, as for an advisory, and shows no advisory of
the others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "all.lock"  # has every package of serve.lock
OPTIONS = ["--format", "json", "--progress-spinner", "off", "--disable-pip", "--require-hashes"]
SHOWN_MAX = 5  # packages that were not looked up


class Outcome(IntEnum):
    """How the audit ended, as the status of the command."""

    CLEAN = 0
    VULNERABLE = 1
    DID_NOT_RUN = 3


class Audit(NamedTuple):
    outcome: Outcome
    lines: list[str]


def audit(lock: Path, environment: Mapping[str, str] | None = None) -> Audit:
    """Run pip-audit on a lock file with hashes."""
    command = [sys.executable, "-m", "pip_audit", *OPTIONS, "-r", str(lock)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    return judge(ended.stdout, ended.stderr, locked(lock.read_text()))


def locked(text: str) -> set[str]:
    """Return the names of the packages of a lock file."""
    return {_normal(name) for name in re.findall(r"^([\w.-]+)(?:\[[\w,-]*\])?==", text, re.MULTILINE)}


def judge(printed: str, errors: str, packages: set[str]) -> Audit:
    """Return the outcome of a run of pip-audit for these packages."""
    # 1. An advisory counts, whatever else went wrong. 2. Nothing was found out. 3. Some packages were not looked up.
    try:
        found = json.loads(printed)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Audit(Outcome.DID_NOT_RUN, ["did not run: pip-audit failed", *errors.splitlines()[-1:]])
    advisories = [_line(one, advisory) for one in found for advisory in one.get("vulns", ())]
    looked_up = {_normal(one["name"]) for one in found if "skip_reason" not in one}
    missing = sorted(packages - looked_up)
    if advisories:
        return Audit(
            Outcome.VULNERABLE, [*advisories, *([f"not looked up: {len(missing)} packages"] if missing else [])]
        )
    if missing or not looked_up:
        shown = ", ".join(missing[:SHOWN_MAX])
        text = f"did not run: {len(missing)} of {len(packages)} packages were not looked up, such as {shown}"
        return Audit(Outcome.DID_NOT_RUN, [text])
    return Audit(Outcome.CLEAN, [f"{len(looked_up)} packages, no known advisory"])


def _line(package: dict[str, Any], advisory: dict[str, Any]) -> str:
    fixed = ", ".join(advisory["fix_versions"]) or "no version"
    return f"{package['name']} {package['version']}: {advisory['id']}, fixed in {fixed}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    done = audit(LOCK)
    print("\n".join(done.lines))
    sys.exit(done.outcome)
