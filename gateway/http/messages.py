"""Requests and responses of the hot routes, without aiohttp's own.

An `HttpRequest` has the names of an aiohttp request that handlers of hot routes read, so that one handler serves both.
gateway/server/short_path.py makes it; aiohttp makes the requests of every other form.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from aiohttp import HttpVersion, web
from aiohttp.helpers import HeadersMixin
from multidict import CIMultiDictProxy, MultiDict, MultiDictProxy
from yarl import query_to_pairs

# Headers of every answer: who sends it, and that no browser may guess another type for it.
COMMON_HEADERS = (("Server", "penstock"), ("X-Content-Type-Options", "nosniff"))


class BodyReader(Protocol):
    """The body of a request: gateway/server/body.py, or the stream of aiohttp's own server."""

    async def readany(self) -> bytes: ...
    def is_eof(self) -> bool: ...


class RequestHeaders(HeadersMixin):
    """The headers that hot routes read. Requests with the same ones share this object."""

    def __init__(self, headers: CIMultiDictProxy[str]) -> None:
        self.all = self._headers = headers


@dataclass(slots=True, eq=False, repr=False)
class HttpRequest(dict[web.RequestKey[Any], Any]):
    """One request, and what its stages note for each other.

    `route` is the template of its path. `query_string` is as it was sent. `remote` is the client.
    """

    app: web.Application
    route: str
    method: str
    path: str
    query_string: str
    match_info: Mapping[str, str]
    headers: CIMultiDictProxy[str]
    typed: RequestHeaders
    version: HttpVersion
    content: BodyReader
    content_length: int | None
    remote: str

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.path})"

    @property
    def content_type(self) -> str:
        return self.typed.content_type

    @property
    def charset(self) -> str | None:
        return self.typed.charset

    @property
    def query(self) -> MultiDictProxy[str]:
        return MultiDictProxy(MultiDict(query_to_pairs(self.query_string)))


Request = web.Request | HttpRequest


# Returns the next piece of a body, and whether it is the last one. An error cuts the answer off.
NextPiece = Callable[[], Awaitable[tuple[bytes, bool]]]


@dataclass(slots=True, eq=False, repr=False)
class HttpResponse:
    """A response. The server adds the length, the date and its name.

    The body is whole unless there is a `rest`, which is called for each further piece, as the client takes them. A
    whole body may go on in `more`, so that large pieces need not be joined.
    """

    body: bytes | bytearray
    headers: dict[str, str]
    status: int = 200
    rest: NextPiece | None = None
    more: Sequence[bytes] = ()
    prepared: ClassVar[bool] = False  # as of an aiohttp response that has been sent

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {self.size_bytes} bytes)"

    @property
    def size_bytes(self) -> int:
        """The size of the body, as far as it is there."""
        return len(self.body) + sum(map(len, self.more)) if self.more else len(self.body)

    def join(self) -> bytes | bytearray:
        """Returns the body as far as it is there, which is in one piece from now on."""
        if self.more:
            self.body, self.more = b"".join((self.body, *self.more)), ()
        return self.body


class StreamedResponse(web.StreamResponse):
    """An HttpResponse with a rest, as aiohttp's application takes it."""

    def __init__(self, response: HttpResponse, rest: NextPiece) -> None:
        super().__init__(status=response.status, headers=response.headers)
        self.body = response.body
        self.rest = rest

    async def write_eof(self, data: bytes = b"") -> None:
        """Writes the body. Only aiohttp's own server calls it."""
        await self.write(self.body)
        is_last = False
        while not is_last:
            piece, is_last = await self.rest()
            await self.write(piece)
        await super().write_eof(data)


def for_aiohttp(response: HttpResponse | web.Response) -> web.Response:
    """Returns a whole response as aiohttp's application takes it."""
    if isinstance(response, web.Response):
        return response
    return web.Response(status=response.status, body=response.join() or None, headers=response.headers)
