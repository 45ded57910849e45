"""The guides below /docs: every page of docs/ but decisions, with links that lead somewhere, and a search over all."""

import re
from functools import cache
from pathlib import Path

import pytest

from gateway.docs.guide_page import guide_page, render_guide
from gateway.docs.index import entries, search_index
from gateway.docs.manual import INDEX, Page, contents, pages, pages_by_path
from gateway.docs.markdown import anchor, plain_text, render
from openapi import load_contract, operations
from tests.cells import each_cell
from tests.docs.pages import anchors
from tests.gateway.docs.test_page import Outline
from tests.gateway.docs.test_page import outline as api_outline

ROOT = Path(__file__).parents[3]
PAGE_BYTES_MAX, INDEX_BYTES_MAX = 40_000, 200_000


@cache  # not while tests are collected, which each worker does
def outline_of(name: str) -> Outline:
    return Outline(render_guide(pages()[name]))


def test_every_page_but_decisions_is_served_under_a_name_of_its_own() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    served = {path for path in files if "decisions" not in path} | {"README.md", "SECURITY.md"}
    assert {*pages_by_path()} == served
    assert len(pages()) == len(served)


def test_the_contents_lead_to_every_guide() -> None:
    listed = {name for _, links in contents() for name, _ in links}
    assert {*pages()} - listed == {"guides"}


@each_cell("name", pages())
def test_a_page_has_its_headings_and_links_that_lead_somewhere(name: str) -> None:
    outline, names = outline_of(name), {"", *pages()}
    assert anchors(pages()[name].text) - {anchor(pages()[name].title)} <= {*outline.anchors}
    for link in outline.links:
        page, _, part = link.partition("#")
        inside = api_outline() if page == "../docs" else outline_of(page or name) if page in names else None
        there = None if inside is None else {*inside.anchors}
        assert there is not None or "://" in link or link in ("data:,", "../docs"), link
        assert not part or there is None or part in there, link
    assert outline.tags.isdisjoint({"img", "iframe", "object", "form"})
    assert "style" not in outline.attributes
    assert len(guide_page(name).bodies["gzip"]) < PAGE_BYTES_MAX


def test_the_search_has_operations_errors_and_sections_of_guides() -> None:
    addresses = {address for _, _, address, _, _ in entries()}
    of_api = {f"../docs#{one.operation_id}" for one in operations(load_contract())}
    of_api |= {f"../docs#problem-{code}" for code in load_contract()["x-penstock-problems"]}
    assert of_api | {"produce#retry-without-duplicates", "quick-start#produce"} <= addresses
    for address in addresses - of_api:
        page, _, part = address.partition("#")
        assert not part or part in outline_of(page).anchors, address
    assert len(search_index().bodies["gzip"]) < INDEX_BYTES_MAX


ROWS = "<thead><tr><th>a</th></tr></thead><tbody><tr><td><code>c|d</code></td></tr></tbody>"
TABLE = f'<div class="table" tabindex="0"><table>{ROWS}</table></div>'
HOSTILE = '<script>alert("1")</script>'


@pytest.mark.parametrize(
    "text", [HOSTILE, f"`{HOSTILE}`", f"```\n{HOSTILE}\n```", f"| a |\n|---|\n| {HOSTILE} |", f"- {HOSTILE}"]
)
def test_text_is_escaped(text: str) -> None:
    shown = render_guide(Page("docs/x.md", f"# T\n\n{text}\n"))
    assert shown.count("<script") == 1
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("# T\n\na", "<p>a</p>"),
        ("## A `b`: c\ntext", '<h2 id="a-b-c"><a href="#a-b-c">A <code>b</code>: c</a></h2><p>text</p>'),
        ("[a](x.md#y) [`b`](../gone.py)", '<p><a href="x#y">a</a> <code>b</code></p>'),
        ("[a](https://b.md)", '<p><a href="https://b" rel="noreferrer">a</a></p>'),
        ("![picture](a.png)\n*Caption.*<!-- note -->", ""),
        (
            "| a |\n|--:|\n| `c\\|d` |",
            TABLE,
        ),
        ("- a\n\n  ```sh\n  b < c\n  ```", '<ul><li><p>a</p><pre tabindex="0"><code>b &lt; c</code></pre></li></ul>'),
    ],
)
def test_pages_have_our_anchors_addresses_and_attributes(given: str, shown: str) -> None:
    rendered = render(given, lambda target: target.replace(".md", "") if ".md" in target else None)
    assert re.sub(r"(?<=>)\n|\n(?=<)", "", rendered) == shown


def test_text_for_the_search_is_what_a_reader_sees() -> None:
    assert plain_text("| a `b` | [c](d.md) |\n|---|---|\n| **e** | |") == "a b c e"
    assert pages_by_path()[INDEX].title == "Documentation"
