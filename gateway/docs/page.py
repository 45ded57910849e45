"""The page at /docs: the contract, made readable, as one document that needs no network.

Not a general renderer of OpenAPI: it shows what openapi/gateway.yaml uses. Its frame is frame.py's.
Invariants: every operation has the anchor `#<operation id>` and every problem code `#problem-<code>`.
"""

import re
from collections.abc import Sequence
from functools import cache
from html import escape

from gateway.assets.files import asset_text
from gateway.assets.packed import Packed, pack_tagged
from gateway.docs.frame import content_security_policy, group, render_frame
from gateway.docs.guide import Contract, Guide, Part, guide_to, tag_anchor
from gateway.docs.markup import Html, element, prose
from gateway.docs.operation import method_label, operation_article
from gateway.docs.problems import problem_section
from gateway.docs.schema import parameter_rows
from openapi import Example, Operation, load_contract, load_examples

_ADDRESS = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+")
_ADDRESSES = 4  # packing a page takes 60 ms and 1.3 MB, and a client may make up any Host


class DocsPages:
    """The page as the clients of one node get it: with the address that they use in its examples.

    An address that is not scheme, host and port is not shown: it came with a request. After the first few addresses
    the examples have that of the contract.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._by_address: dict[str, Packed] = {}

    def __repr__(self) -> str:
        return f"DocsPages({sorted(self._by_address)})"

    def page(self, base_url: str) -> Packed:
        """Return the page with this address, to be called from a thread: the first call for an address packs it."""
        given = str(load_contract()["servers"][0]["url"])
        is_full = len(self._by_address) >= _ADDRESSES and base_url not in self._by_address
        address = given if is_full or not _ADDRESS.fullmatch(base_url) else base_url
        if address not in self._by_address:
            page = _rendered(self._version).replace(escape(given).encode(), escape(address).encode())
            self._by_address[address] = _packed(page)
        return self._by_address[address]


def _packed(page: bytes) -> Packed:
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": content_security_policy()}
    return pack_tagged(page, headers)


@cache
def _rendered(version: str) -> bytes:
    return render_docs(load_contract(), version=version).encode()


def render_docs(contract: Contract, examples: Sequence[Example] | None = None, *, version: str = "") -> str:
    """Return the whole page, to be sent as UTF-8 with `content_security_policy()`."""
    guide = guide_to(contract, load_examples() if examples is None else examples)
    main = element(
        "main",
        _introduction(guide, version),
        *[_group(guide, tag) for tag in guide.contract["tags"]],
        problem_section(guide),
    )
    return render_frame(f"{guide.contract['info']['title']}: API", main, _contents(guide), home="#top", root="docs/")


def _contents(guide: Guide) -> list[Html]:
    parts = [element("li", element("a", part.title, href=part.anchor)) for part in guide.parts()]
    tags = [tag["name"] for tag in guide.contract["tags"]]
    groups = [group(tag, *map(_item, guide.tagged(tag)), address=tag_anchor(tag)) for tag in tags]
    problems = element("p", element("a", "Errors", href="#problems"))
    return [*group("About", *parts), *(part for one in groups for part in one), problems]


def _item(operation: Operation) -> Html:
    summary = element("span", operation.spec["summary"])
    link = element("a", method_label(operation), summary, href=f"#{operation.operation_id}")
    return element("li", link)


def _introduction(guide: Guide, version: str) -> Html:
    info = guide.contract["info"]
    raw = element("a", "openapi.json", href="/openapi.json")
    product = f"{info['title']} {version}; API {info['version']}".replace("  ", " ").replace(" ,", ",")
    return element(
        "header",
        element("p", product, class_="version"),
        element("h1", info["title"]),
        element("p", info["summary"], " The contract for programs is ", raw, ".", class_="summary"),
        element("figure", Html(asset_text("positions.svg")), Html(asset_text("positions-narrow.svg"))),
        element("div", prose(guide.lead(), guide.links), class_="about"),
        *[_part(guide, part) for part in guide.parts()],
        element("h4", "Headers of every request"),
        parameter_rows(guide, guide.shared_parameters()),
        class_="introduction",
    )


def _part(guide: Guide, part: Part) -> Html:
    text = [element("h4", part.title), prose(part.text, guide.links)]
    return element("section", *text, id=part.anchor.removeprefix("#"), class_="part")


def _group(guide: Guide, tag: Contract) -> Html:
    head = element("header", element("h2", tag["name"]), prose(tag["description"], guide.links), class_="group-head")
    articles = [operation_article(guide, operation) for operation in guide.tagged(tag["name"])]
    return element("section", head, *articles, id=tag_anchor(tag["name"]).removeprefix("#"), class_="group")
