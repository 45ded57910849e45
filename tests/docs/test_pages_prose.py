"""The pages for users and the contract keep to the words of the house style, as the code does (test_prose.py).

Tables that are generated from code are omitted here: their sentences are counted in the code.
"""

import re

from tests.cells import each_cell
from tests.docs.pages import ROOT, prose
from tests.docs.prose import prose_findings

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
CONTRACT = ROOT / "openapi" / "gateway.yaml"
MADE = re.compile(r"<!-- (?:\w+: made by|begin: written by) .*?<!-- end.*?-->", re.DOTALL)
GENERATED = {ROOT / "docs" / "reference" / name for name in ("settings.md", "ingest-settings.md")}


def findings(text: str) -> list[tuple[str, str]]:
    return list(prose_findings(MADE.sub("", prose(text))))


@each_cell("page", sorted(set(PAGES) - GENERATED), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain(page):
    assert findings(page.read_text()) == []


def test_the_contract_is_plain():
    assert list(prose_findings(CONTRACT.read_text())) == []


def test_dialect_is_found_and_made_tables_are_left_out():
    assert findings("Whoever comes may do all.")
    assert findings("<!-- options: made by x -->\nNobody.\n<!-- end of options -->\nA node rejects it.") == []
