"""HTML that is always escaped: text becomes markup only through these functions.

It is not a template engine and does not know the contract.
Invariant: an `Html` is safe to put into a page; a plain `str` is text and is always escaped.
"""

import re
from collections.abc import Iterable
from html import escape

_VOID = {"input", "link", "meta", "wbr"}
_INLINE = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\*(?P<em>[^*]+)\*")


class Html(str):
    """Markup, already escaped."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: str | bool | None) -> Html:
    """Return one element. `class_` and `for_` lose their underscore, others become dashes.

    None and False omit an attribute.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID:
        assert not children
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(children)}</{name}>")


def joined(parts: Iterable[str | None], between: str = "") -> Html:
    return Html(_safe(between).join(_safe(part) for part in parts if part is not None))


def prose(text: str, links: dict[str, str] | None = None) -> Html:
    """Return paragraphs, separated by empty lines, with `code`, **strong** and *emphasis*."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text.strip()) if part]
    return joined(element("p", inline(" ".join(part.split()), links)) for part in paragraphs)


def inline(text: str, links: dict[str, str] | None = None) -> Html:
    """Return one line of prose as markup. Code that is a key of `links` becomes a link."""
    parts: list[str] = []
    end = 0
    for match in _INLINE.finditer(text):
        parts += [text[end : match.start()], _inline_element(match, links or {})]
        end = match.end()
    return joined([*parts, text[end:]])


def _inline_element(match: re.Match[str], links: dict[str, str]) -> Html:
    kind, text = str(match.lastgroup), str(match[str(match.lastgroup)])
    written = element(kind, text)
    return element("a", written, href=links[text]) if kind == "code" and text in links else written


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def _safe(text: str) -> str:
    return text if isinstance(text, Html) else escape(text, quote=False)
