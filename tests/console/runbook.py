"""Writes gateway/assets/runbook_sections.js from docs/operate/runbook.md: `python -m tests.console.runbook`."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE, FILE = ROOT / "docs/operate/runbook.md", ROOT / "gateway/assets/runbook_sections.js"
HEAD = "// Generated from docs/operate/runbook.md by `python -m tests.console.runbook`: by the code of a finding.\n"


def sections() -> str:
    """Return the module: a section's key is its finding's code without underscores."""
    found = re.findall(r"^### Penstock(\w+)\n(.*?)(?=\n\n|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    rows = {name.lower(): [f"Penstock{name}", " ".join(text.split())] for name, text in found}
    return f"{HEAD}export default {json.dumps(rows, indent=1, ensure_ascii=False)};\n"


if __name__ == "__main__":
    FILE.write_text(sections())
