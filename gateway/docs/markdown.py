"""The pages of docs/ as HTML, by markdown-it-py: CommonMark and tables, with everything else as text.

Pictures and their captions are left out: a page loads nothing. Invariants: a heading has the anchor that GitHub gives
it, so that links between pages work in both; no element has a style, which the policy of the pages forbids.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gateway.docs.markup import Html, element

Link = Callable[[str], str | None]  # the target of a link in a page -> its address here; None: it is not served

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_SPACES = ("softbreak", "hardbreak")


def _show_code(tokens: Sequence[Token], at: int, *_: object) -> str:
    return element("pre", element("code", tokens[at].content.rstrip("\n")), tabindex="0") + "\n"


_MARKDOWN.renderer.rules |= {  # type: ignore[attr-defined]  # a dictionary, which its protocol does not have
    "fence": _show_code,
    "table_open": lambda *_: '<div class="table" tabindex="0"><table>',
    "table_close": lambda *_: "</table></div>\n",
}


def render(text: str, link: Link) -> Html:
    """Returns the page, without its first heading."""
    tokens = [token for block in _blocks(text) for token in _shown(block, link)]
    return Html(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def sections(text: str) -> list[tuple[str, str]]:
    """Returns the title and the text of each section; the first one is what is before the first heading."""
    found = [("", list[str]())]
    for block in _blocks(text):
        if block[0].type == "heading_open":
            if block[0].tag != "h1":
                found.append((_text(block), []))
        else:
            found[-1][1].append(_text(block))
    return [(title, " ".join(filter(None, texts))) for title, texts in found]


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def plain_text(text: str) -> str:
    """Returns what a reader sees of a text but its blocks of code, in one line."""
    return " ".join(filter(None, map(_text, _blocks(text))))


def _blocks(text: str) -> Iterator[list[Token]]:
    """Yields the tokens of each block of a page: those of a list or a table are one block."""
    block: list[Token] = []
    for token in _MARKDOWN.parse(_COMMENT.sub("\n", text)):
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            if not (block[0].type == "paragraph_open" and _is_picture(block[1])):
                yield block
            block = []


def _is_picture(paragraph: Token) -> bool:
    return (paragraph.children or [paragraph])[0].type == "image"


def _text(block: Sequence[Token]) -> str:
    parts: list[str] = []
    for token in block:
        for child in token.children or ():
            parts.append(" " if child.type in _SPACES else "" if child.type == "image" else child.content)
        parts.append(" ")
    return " ".join("".join(parts).split())


def _shown(block: list[Token], link: Link) -> list[Token]:
    """Returns the block with our anchors, addresses and attributes; an empty list for a heading of the first level."""
    for token in block:
        if token.type in ("th_open", "td_open"):
            token.attrs = {}  # an alignment is a style
        if token.children:
            token.children = list(_with_addresses(token.children, link))
    first = block[0]
    if first.type != "heading_open":
        return block
    name, children = anchor(_text(block)), block[1].children or []
    first.attrs = {"id": name}
    block[1].children = [_link_to(f"#{name}"), *children, Token("link_close", "a", -1)]
    return [] if first.tag == "h1" else block


def _with_addresses(children: Sequence[Token], link: Link) -> Iterator[Token]:
    is_served = True
    for child in children:
        if child.type == "link_open":
            address = link(str(child.attrs["href"]))
            if is_served := address is not None:
                yield _link_to(str(address))
        elif child.type != "image" and (is_served or child.type != "link_close"):
            yield child


def _link_to(address: str) -> Token:
    attributes: dict[str, str | int | float] = {"href": address}
    if "://" in address:
        attributes["rel"] = "noreferrer"
    return Token("link_open", "a", 1, attrs=attributes)
