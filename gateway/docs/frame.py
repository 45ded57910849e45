"""The frame of every page under /docs: its head, its bar with the search, its contents, its style and its script.

Markup comes from gateway/docs/markup.py, which escapes; styles from assets/tokens.css and docs.css; search and copying,
which need a script, from assets/docs.js. Invariants: a page can be read without the script, and contains nothing that
its policy forbids. The script asks its own node for the index of the search, and for nothing else.
"""

from functools import cache

from gateway.assets.files import asset_text, hash_source
from gateway.docs.markup import Html, element


@cache
def content_security_policy() -> str:
    """Return the page's permissions: its own style sheet and script, and the index of the search."""
    rules = {
        "default-src": "'none'",
        "style-src": hash_source(_style()),
        "script-src": hash_source(asset_text("docs.js")),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def render_frame(title: str, main: Html, contents: list[Html], *, home: str, root: str) -> str:
    """Return a whole page, to be sent as UTF-8 with `content_security_policy()`.

    `home` is the address of /docs and `root` that of the pages below it, as seen from this page: addresses are
    relative, so that they work behind a prefix.
    """
    skip = element("a", "Skip to the contents", href="#contents", class_="skip")
    # On a narrow screen the contents are at the end of the page, and the bar leads there; on a wide one at the side.
    to_contents = element("a", "Contents", href="#contents", class_="to-contents")
    bar = element("header", _brand(home), _search(root), to_contents, class_="bar")
    navigation = element("nav", _brand(home), _switch(home, root), *contents, id="contents", aria_label="Contents")
    script = element("script", Html(asset_text("docs.js")))
    body = element("body", skip, bar, main, navigation, script, id="top")
    return f"<!doctype html>\n{element('html', _head(title), body, lang='en')}\n"


def group(title: str, *items: Html, address: str | None = None) -> list[Html]:
    """Return a group of the contents."""
    return [element("p", title if address is None else element("a", title, href=address)), element("ul", *items)]


def _switch(home: str, root: str) -> Html:
    """Return the choice between the page of the API and the guides."""
    api = element("a", "API", href=home, aria_current="true" if root else None)
    guides = element("a", "Guides", href=f"{root}guides", aria_current=None if root else "true")
    return element("ul", element("li", api), element("li", guides), class_="switch")


def _style() -> str:
    return asset_text("tokens.css") + asset_text("docs.css")


def _head(title: str) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("link", rel="icon", href="data:,"),  # without it, the browser asks for /favicon.ico
        element("style", Html(_style())),
    )


def _search(root: str) -> Html:
    """Return the search box. It is hidden until the script, which it needs, shows it."""
    label = element("label", "Search", for_="search")
    box = element("input", type="search", id="search", placeholder="Search  /", autocomplete="off", spellcheck="false")
    found = [element("output", for_="search"), element("ul", hidden=True)]
    return element("div", label, box, *found, role="search", class_="search", data_root=root, hidden=True)


def _brand(home: str) -> Html:
    return element("a", Html(asset_text("mark.svg")), element("span", "Penstock"), href=home, class_="brand")
