"""What documents say about the repository is true: links, files, make targets, settings, routes, libraries,
decisions.
"""

import html
import re
import subprocess
from pathlib import Path

from engine.topic_settings import TOPIC_RULES
from gateway.docs.page import render_docs
from gateway.settings import NODE_RULES
from node.setup.settings_page import settings_page
from openapi import load_contract, operations
from spark_ingest.config.page import ingest_settings_page
from tests.architecture.test_libraries import GROUPS, distribution
from tests.cells import each_cell
from tests.docs.console import URL
from tests.docs.pages import (
    LINE_NUMBER,
    ROOT,
    anchors,
    broken_links,
    documents,
    make_targets,
    missing_files,
    named_targets,
    prose,
)

PAGES = {str(page.relative_to(ROOT)): page for page in documents()}
TARGETS = make_targets((ROOT / "Makefile").read_text())
DECISIONS = ROOT / "docs" / "decisions"
NOT_OF_NOW = {"CHANGELOG.md"}  # describes the past


@each_cell("name", PAGES)
def test_links_lead_somewhere(name):
    assert broken_links(PAGES[name], PAGES[name].read_text()) == []


@each_cell("name", sorted(PAGES.keys() - NOT_OF_NOW))
def test_files_and_make_targets_that_are_named_exist(name):
    text = PAGES[name].read_text()
    assert missing_files(text) == []
    assert named_targets(text) - TARGETS == set()


@each_cell("name", sorted(PAGES.keys() - NOT_OF_NOW))
def test_a_page_with_examples_begins_with_the_line_that_makes_them_run(name):
    """Nothing else sets the address and the path. Commands of other machines, as of a cluster, are exempt."""
    text = PAGES[name].read_text()
    found = re.findall(r"^```(?:sh|bash|console|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    first, *others = found or [""]
    uses = [block for block in others if re.search(r"PENSTOCK_(URL|STORE)\b", block) or block.startswith("$ penstock ")]
    assert not uses or first.startswith(f"export PENSTOCK_URL={URL} ")
    assert "jq " not in "".join(others) or "apt-get install jq" in text


@each_cell("name", PAGES)
def test_no_page_names_a_line_of_code(name):
    """A line number is wrong after the next change; name the function."""
    assert LINE_NUMBER.findall(PAGES[name].read_text()) == []


def test_help_lists_the_ten_targets_of_the_page_and_help_all_every_target():
    ten = listed_targets("help")
    assert len(ten) == 10
    section = (ROOT / "DEVELOPMENT.md").read_text().partition("## Ten targets")[2].partition("\n## ")[0]
    assert ten == re.findall(r"^\| `make ([a-z-]+)` \|", section, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed_targets("help-all")) == TARGETS == set(phony[1].split()) - {"compile-codec", "compile-tests"}


def listed_targets(target: str) -> list[str]:
    printed = subprocess.run(["make", "-s", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  make ([a-z-]+) +\S", printed, re.MULTILINE)


def test_settings_of_long_targets_are_read_by_tests():
    """A variable without effect would make the long run as short as CI's, and it would still pass."""
    settings = re.findall(r"^\t(PENSTOCK_\w+)=", (ROOT / "Makefile").read_text(), re.MULTILINE)
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert settings
    assert [name for name in settings if f'os.environ.get("{name}"' not in code] == []


def test_the_settings_page_is_what_the_declarations_say():
    assert (ROOT / "docs" / "reference" / "settings.md").read_text() == settings_page(), (
        "write it again: make docs-write"
    )


def test_the_page_of_ingestion_is_what_its_declarations_say():
    page = (ROOT / "docs" / "reference" / "ingest-settings.md").read_text()
    assert page == ingest_settings_page(), "write it again: make docs-write"


def test_the_settings_page_documents_every_setting():
    page = settings_page()
    for rule in [*NODE_RULES.values(), *TOPIC_RULES.values()]:
        assert len(rule.why.split()) > 3, f"{rule.name} does not say why"
        assert re.search(rf"^\| `{rule.name}` \| .* \| {re.escape(rule.why)} \|$", page, re.MULTILINE)


def test_the_docs_page_of_a_node_has_every_operation():
    page = html.unescape(re.sub(r"<[^>]*>", "", render_docs(load_contract())))
    assert [one.operation_id for one in operations(load_contract()) if one.path not in page] == []


def test_every_library_is_given_its_reason():
    text = (ROOT / "docs" / "internals" / "libraries.md").read_text()
    documented = {
        distribution(name) for cell in re.findall(r"^\| (.*?) \|", text, re.MULTILINE) for name in _names(cell)
    }
    assert documented - {"library"} == {distribution(one) for group in GROUPS.values() for one in group}


def _names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_changelog_has_an_unreleased_section_with_something_in_it():
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert sections[1].splitlines()[0] == "Unreleased"
    assert re.search(r"^- \w", sections[1], re.MULTILINE)


def test_every_decision_is_listed_under_its_title_and_says_what_and_why():
    index = (DECISIONS / "README.md").read_text()
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    assert len({page.name[:5] for page in pages}) == len(pages), "a number has two pages"
    for page in pages:
        text = page.read_text()
        title = text.splitlines()[0].removeprefix("# ")
        assert title.startswith(f"{page.name[:4]}: ")
        assert f"- [{title}]({page.name})" in index
        assert all(f"**{part}.**" in text for part in ("Decided", "Why", "What it costs")), page.name


def test_a_decision_that_another_one_replaces_says_so_under_its_title():
    pages = {page.name[:4]: page.read_text() for page in DECISIONS.glob("[0-9]*.md")}
    replaced = [
        (older, number)
        for number, text in pages.items()
        for older in re.findall(r"[Rr]eplaces[^.]*?\[(?:decision )?(\d{4})\]", text)
    ]
    assert len(replaced) > 3
    for older, number in replaced:
        line = pages[older].splitlines()[2]
        assert re.match(rf"Superseded (in part )?by \[{number}\]", line), f"{older} is replaced by {number}"


# The checks can fail.


def test_a_broken_link_is_found():
    page = ROOT / "README.md"
    text = "# A title\n[a](nowhere.md) [b](#a-title) [c](#no-title) [d](docs/reference/settings.md) [e](https://example.org/x)"
    assert broken_links(page, text) == ["nowhere.md", "#no-title"]


def test_a_missing_file_and_an_unknown_target_are_found():
    assert missing_files("see `engine/log/log.py` and `engine/no_such.py`") == ["engine/no_such.py"]
    assert named_targets("Run `make tset`, to make sure.\n```sh\nmake setup\n```\n") == {"tset", "setup"}
    assert LINE_NUMBER.findall("in gateway/server/routes.py:97") == ["gateway/server/routes.py:97"]


def test_anchors_are_made_as_github_does():
    assert anchors("## Limits, and what is not built yet\n### `make x`") == {
        "limits-and-what-is-not-built-yet",
        "make-x",
    }


def test_blocks_are_no_prose():
    assert prose("a\n```sh\nb\n```\nc") == "a\n\nc"


def test_the_pages_looked_at_are_those_that_a_newcomer_is_sent_to():
    assert {"README.md", "ARCHITECTURE.md", "DEVELOPMENT.md", "CHANGELOG.md", "engine/format/FORMAT.md"} <= PAGES.keys()
    assert Path("docs/reference/settings.md").as_posix() in PAGES
