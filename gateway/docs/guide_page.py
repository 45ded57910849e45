"""A guide of docs/ as a page under /docs."""

from functools import cache

from gateway.assets.packed import Packed, pack_tagged
from gateway.docs.frame import content_security_policy, group, render_frame
from gateway.docs.manual import Page, contents, pages
from gateway.docs.markdown import render
from gateway.docs.markup import Html, element


@cache
def guide_page(name: str) -> Packed:
    """Return the page of this name. Raises KeyError."""
    page = pages()[name]
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": content_security_policy()}
    return pack_tagged(render_guide(page).encode(), headers)


def render_guide(page: Page) -> str:
    main = element("main", element("h1", page.title), render(page.text, page.address), class_="guide")
    navigation = [part for title, links in contents() for part in group(title, *_items(links, page.name))]
    return render_frame(f"{page.title}: Penstock", main, navigation, home="../docs", root="")


def _items(links: list[tuple[str, str]], here: str) -> list[Html]:
    return [
        element("li", element("a", title, href=name, aria_current="page" if name == here else None))
        for name, title in links
    ]
