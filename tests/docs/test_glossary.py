"""docs/glossary.md: each term has its name in the code, and the name exists there."""

import re

import pytest

from tests.architecture.sources import CODE, ROOT, modules_of
from tests.docs.prose import field_word

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

TERM = re.compile(r"^### .+ \(`(?P<name>\w+)`\)$", re.MULTILINE)
HEADING = re.compile(r"^### .*$", re.MULTILINE)


def names_of_code() -> set[str]:
    """Return every identifier and every module's name."""
    modules = modules_of(ROOT, CODE)
    return {module.path.stem for module in modules}.union(*(module.identifiers() for module in modules))


def test_each_term_of_the_glossary_is_a_name_of_the_code():
    page = (ROOT / "docs" / "glossary.md").read_text()
    terms = [match["name"] for match in TERM.finditer(page)]
    assert len(terms) == len(HEADING.findall(page)) == len(set(terms)) > 10
    assert not set(terms) - names_of_code()
    assert not [name for name in terms if field_word(name)]
