"""/docs shows all of the contract, escapes it, and needs no network; it is readable without its script."""

import base64
import gzip
import hashlib
import re
from functools import cache
from html.parser import HTMLParser

import pytest

from gateway.docs.frame import content_security_policy
from gateway.docs.markup import Html, element, inline, prose
from gateway.docs.page import DocsPages, render_docs
from openapi import load_contract, load_examples, operations

CONTRACT = load_contract()
FIRST_BYTES_MAX = 150_000


class Outline(HTMLParser):
    """The elements, anchors and links of a page. Fails on elements that are not closed in order."""

    VOID = frozenset({"input", "link", "meta", "wbr"})

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


@cache  # not while tests are collected, which each worker does
def page() -> str:
    return render_docs(CONTRACT)


@cache
def outline() -> Outline:
    return Outline(page())


def test_every_operation_and_problem_has_its_anchor() -> None:
    anchors = {one.operation_id for one in operations(CONTRACT)}
    anchors |= {f"problem-{code}" for code in CONTRACT["x-penstock-problems"]}
    assert anchors <= set(outline().anchors)


def test_anchors_are_unique() -> None:
    assert len(outline().anchors) == len(set(outline().anchors))


def test_links_lead_to_anchors_of_the_page_or_to_the_contract() -> None:
    inside = {link.removeprefix("#") for link in outline().links if link.startswith("#")}
    assert inside <= set(outline().anchors)
    outside = {link for link in outline().links if not link.startswith("#")}
    assert outside == {"/openapi.json", "data:,", "docs/guides"}


def test_every_parameter_and_example_is_shown() -> None:
    for operation in operations(CONTRACT):
        article = page().split(f'<article id="{operation.operation_id}"')[1].split("</article>")[0]
        for step in re.findall(r"\{\w+\}", operation.path):
            assert step in article
        for example in load_examples():
            if example.operation == operation.operation_id:
                assert str(inline(example.title)) in article


def test_the_page_loads_nothing() -> None:
    assert outline().tags.isdisjoint({"img", "iframe", "object", "form"})
    assert "style" not in outline().attributes
    assert "src" not in outline().attributes
    assert not any(name.startswith("on") for name in outline().attributes)
    assert "url(" not in inside("style")
    assert "@import" not in inside("style")
    assert re.findall(r"fetch\(([^)]*)\)", inside("script")) == ["`${root}search.json`"]
    assert re.search(r"import\b|XMLHttp|innerHTML|\beval\b", inside("script")) is None


@pytest.mark.parametrize("tag", ["style", "script"])
def test_content_security_policy_allows_exactly_this_style_sheet_and_script(tag: str) -> None:
    digest = base64.b64encode(hashlib.sha256(inside(tag).encode()).digest()).decode()
    assert f"{tag}-src 'sha256-{digest}'" in content_security_policy()
    assert content_security_policy().startswith("default-src 'none'")


def test_addresses_that_clients_make_up_take_bounded_memory() -> None:
    served = DocsPages("1.2.3")
    pages = [served.page(f"http://made-up-{number}:80") for number in range(100)]
    assert len({id(page) for page in pages}) == 5
    assert b"http://127.0.0.1:8080/v1/topics" in (pages[-1].bodies[None] or b"")


def test_a_browser_loads_less_than_150_kb_at_first() -> None:
    served = DocsPages("1.2.3").page("http://127.0.0.1:8080")
    assert len(served.bodies["gzip"]) < FIRST_BYTES_MAX
    assert gzip.decompress(served.bodies["gzip"] or b"") == served.bodies[None]


def inside(tag: str) -> str:
    [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", page(), re.DOTALL)
    return str(content)


def test_what_needs_the_script_is_hidden_until_it_runs() -> None:
    assert re.search(r'<div role="search"[^>]* hidden>', page())
    buttons = re.findall(r"<button[^>]*>", page())
    assert len(buttons) == len(load_examples())
    assert all(" hidden" in button for button in buttons)


def test_every_example_shows_its_first_language_without_the_script() -> None:
    chosen = re.findall(r'<input type="radio"[^>]*class="tab (\w+)" checked>', page())
    assert chosen == ["curl"] * len(load_examples())


def test_examples_have_the_address_and_the_version_of_the_node() -> None:
    text = DocsPages("1.2.3").page("https://events.example.org:8443").bodies[None].decode()
    assert "https://events.example.org:8443/v1/topics" in text
    assert "127.0.0.1:8080" not in text
    assert "Penstock 1.2.3" in text


@pytest.mark.parametrize(
    "hostile", ["http://x';id;'", "http://<b>", "javascript:alert(1)", "http://a/b", "http://$(id)"]
)
def test_an_address_that_could_be_more_than_an_address_is_not_shown(hostile: str) -> None:
    page = DocsPages("1.2.3").page(hostile).bodies[None].decode()
    assert hostile not in page
    assert "http://127.0.0.1:8080/v1/topics" in page


def test_text_of_the_contract_is_escaped() -> None:
    hostile = '<script>alert("1")</script>'
    operation = {**CONTRACT["paths"]["/v1/topics"]["get"], "summary": hostile, "description": f"`{hostile}` {hostile}"}
    paths = {**CONTRACT["paths"], "/v1/topics": {"parameters": [], "get": operation}}
    page = render_docs({**CONTRACT, "paths": paths})
    assert page.count("<script") == 1
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
