"""/docs shows the whole contract, escapes it, and needs neither network nor script."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from gateway.docs.markup import Html, element, inline, prose
from gateway.docs.page import content_security_policy, render_docs
from openapi import load_contract, load_examples, operations

CONTRACT = load_contract()
PAGE = render_docs(CONTRACT)


class Outline(HTMLParser):
    """What a page holds: its elements, its anchors, its links. Fails on elements that are not closed in order."""

    VOID = frozenset({"meta", "link", "wbr"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.classes: set[str] = set()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.anchors.append(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")
            if name == "class":
                self.classes.update((value or "").split())
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


OUTLINE = Outline(PAGE)


def test_every_operation_and_problem_has_its_anchor() -> None:
    wanted = {one.operation_id for one in operations(CONTRACT)}
    wanted |= {f"problem-{code}" for code in CONTRACT["x-penstock-problems"]}
    assert wanted <= set(OUTLINE.anchors)


def test_anchors_are_unique() -> None:
    assert len(OUTLINE.anchors) == len(set(OUTLINE.anchors))


def test_links_lead_to_anchors_of_the_page_or_to_the_contract() -> None:
    inside = {link.removeprefix("#") for link in OUTLINE.links if link.startswith("#")}
    assert inside <= set(OUTLINE.anchors)
    outside = {link for link in OUTLINE.links if not link.startswith("#")}
    assert outside == {"/openapi.json", "data:,"}


def test_every_parameter_and_example_is_shown() -> None:
    for operation in operations(CONTRACT):
        article = PAGE.split(f'<article id="{operation.operation_id}"')[1].split("</article>")[0]
        for step in re.findall(r"\{\w+\}", operation.path):
            assert step in article
        for example in load_examples():
            if example.operation == operation.operation_id:
                assert str(inline(example.title)) in article


def test_page_loads_and_runs_nothing() -> None:
    assert OUTLINE.tags.isdisjoint({"script", "img", "iframe", "object", "form"})
    assert "style" not in OUTLINE.attributes
    assert not any(name.startswith("on") for name in OUTLINE.attributes)
    sheet = PAGE.split("<style>")[1].split("</style>")[0]
    assert "url(" not in sheet
    assert "@import" not in sheet


def test_content_security_policy_allows_exactly_this_style_sheet() -> None:
    sheet = PAGE.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in content_security_policy()
    assert content_security_policy().startswith("default-src 'none'")


def test_style_sheet_has_no_class_that_the_page_lacks() -> None:
    sheet = re.sub(r"/\*.*?\*/", "", PAGE.split("<style>")[1].split("</style>")[0], flags=re.DOTALL)
    selectors = re.sub(r"\{[^{}]*\}", " ", sheet)
    assert set(re.findall(r"\.([a-z][\w-]*)", selectors)) <= OUTLINE.classes


def test_text_of_the_contract_is_escaped() -> None:
    hostile = '<script>alert("1")</script>'
    operation = {**CONTRACT["paths"]["/v1/topics"]["get"], "summary": hostile, "description": f"`{hostile}` {hostile}"}
    paths = {**CONTRACT["paths"], "/v1/topics": {"parameters": [], "get": operation}}
    page = render_docs({**CONTRACT, "paths": paths})
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    Outline(page)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a < b", "<p>a &lt; b</p>"),
        ("one\ntwo\n\nthree", "<p>one two</p><p>three</p>"),
        ("`a*b*c` and *d*", "<p><code>a*b*c</code> and <em>d</em></p>"),
        ("**x**", "<p><strong>x</strong></p>"),
        ("2 * 3", "<p>2 * 3</p>"),
    ],
)
def test_prose_knows_code_strong_and_emphasis(given: str, shown: str) -> None:
    assert prose(given) == shown


def test_attributes_are_escaped() -> None:
    assert element("a", Html("<b></b>"), title='"&') == '<a title="&quot;&amp;"><b></b></a>'
