"""The one matcher: finds the route of a method and a path.

A path is compared by its segments, decoded. A name matches one segment that is not empty and has no braces. `%2F`
and `%25` are decoded after the match, so that a name may have a slash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from yarl import URL

from gateway.http.problems import Problem
from gateway.http.request import Request, Route
from gateway.http.response import Response
from gateway.http.rights import AUTHENTICATED, OPEN

UNKNOWN = "unknown"  # the operation of a request to no route


class Match(NamedTuple):
    """The route of a request, and the values of the names in its path."""

    route: Route
    names: dict[str, str]


class _Node:
    """A segment of paths: what may follow it, and the routes that end here, by their methods."""

    __slots__ = ("by_method", "by_segment", "named", "path")

    def __init__(self) -> None:
        self.by_segment: dict[str, _Node] = {}
        self.named: _Node | None = None
        self.by_method: dict[str, Route] = {}
        self.path = ""


class RouteTable:
    """The routes of a server. A route of GET answers HEAD too, without the body."""

    def __init__(self, routes: Iterable[Route], answer_options: Callable[[Request, str], Response]) -> None:
        """`answer_options` takes the methods of a path, and answers OPTIONS, which no route takes."""
        self._root = _Node()
        self._answer_options = answer_options
        self.methods = {"HEAD"}
        for route in routes:
            node = self._root
            for segment in route.path.split("/"):
                if segment.startswith("{"):
                    node.named = node.named or _Node()
                    node = node.named
                else:
                    node = node.by_segment.setdefault(segment, _Node())
            node.path = route.path
            node.by_method[route.method] = route
            if route.method == "GET":
                node.by_method["HEAD"] = route
            self.methods.add(route.method)

    def __repr__(self) -> str:
        return f"RouteTable({sorted(self.methods)})"

    def find(self, method: str, path: str) -> Match:
        """Returns the route; for a path or a method that none has, one that answers so."""
        if "%" in path:
            path = URL.build(path=path, encoded=True).path_safe
        node: _Node | None = self._root
        values: list[str] = []
        for segment in path.split("/"):
            assert node is not None
            before = node
            node = before.by_segment.get(segment)
            if node is None and segment and "{" not in segment and "}" not in segment:
                node = before.named
                values.append(segment)
            if node is None:
                break
        if node is None or not node.by_method:
            return Match(self._without_route(method, path), {})
        route = node.by_method.get(method)
        if route is None:
            return Match(self._of_another_method(method, node), {})
        return Match(route, _names(node.path, values) if values else {})

    def _without_route(self, method: str, path: str) -> Route:
        if method == "OPTIONS" and path == "*":  # the node as a whole (RFC 9110 9.3.7)
            return self._options(path, self.methods)
        need = OPEN if method == "OPTIONS" else AUTHENTICATED
        return Route(method, "", UNKNOWN, need, _refuse_path)

    def _of_another_method(self, method: str, node: _Node) -> Route:
        if method == "OPTIONS":
            return self._options(node.path, set(node.by_method))
        allowed = ", ".join(sorted(node.by_method))

        def refuse_method(request: Request, _: object) -> Response:
            text = f"{URL.build(path=request.path, encoded=True).path} takes {allowed}"
            raise Problem("method_not_allowed", text, headers={"Allow": allowed})

        return Route(method, "", UNKNOWN, AUTHENTICATED, refuse_method)

    def _options(self, path: str, methods: set[str]) -> Route:
        allowed = ", ".join(sorted({*methods, "OPTIONS"}))

        def answer(request: Request, _: object) -> Response:
            return self._answer_options(request, allowed)

        return Route("OPTIONS", path, UNKNOWN, OPEN, answer)


def _names(path: str, values: list[str]) -> dict[str, str]:
    names = [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]
    decoded = [value.replace("%2F", "/").replace("%25", "%") if "%" in value else value for value in values]
    return dict(zip(names, decoded, strict=True))


def _refuse_path(request: Request, _: object) -> Response:
    """Raises Problem not_found, with a hint for paths that clients build by mistake."""
    hint = "see /docs"
    if request.path.startswith("/v1/v1/"):
        hint = "a client adds /v1 to the address that it is given: leave it out of that"
    elif request.path.endswith("/"):
        hint = "leave out the slash at its end, or see /docs"
    raise Problem("not_found", f"there is nothing at {request.path}; {hint}")
